// What ran where, what runs, and until when it is predicted to run: a lane for each node's CPUs and each device.

import { between, draw, duration, make, moment, titleOf } from "./dom.js";

const TOP = 18;
const LETTER = 6.5;
const DEVICE = 18;
const MOST_LANES = 120;
const MOST_BARS = 3000;
const FORECAST = 14;
const MOST_FORECASTS = 8;
export const WENT_WRONG = ["FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"];

/** What each colour and line of the chart means: its class, its form, and the words. */
export const LEGEND = [
  ["job RUNNING", "bar", "runs"], ["job COMPLETED", "bar", "completed"],
  ["job FAILED", "bar", "failed, out of memory, or lost with its node"], ["job CANCELLED", "bar", "cancelled, or at its walltime"],
  ["ahead", "bar", "until its predicted end"], ["forecast", "bar", "waits: when it is predicted to run"],
  ["whisker", "whisker", "waits: between when and when it starts, 9 times in 10"],
  ["over", "line", "predicted end that has passed"], ["now", "line", "now"], ["area", "bar", "CPUs and devices in use"],
];

/** The legend, drawn as the chart is. */
export function legend() {
  const item = ([kind, form, words]) => make("li", {}, draw("svg", { class: "chart", width: 18, height: 12, "aria-hidden": "true" },
    form === "bar" ? draw("rect", { class: kind, x: 1, y: 1, width: 16, height: 10, rx: 2 })
    : form === "whisker" ? draw("path", { class: kind, d: "M1 6H17M1 3V9M17 3V9" })
    : draw("line", { class: kind, x1: 9, x2: 9, y1: 0, y2: 12 })), words);
  return make("ul", { class: "legend", "aria-label": "Colours of the chart" }, ...LEGEND.map(item));
}

/** Room for the names of lanes: on a phone, where the chart is not wider than the screen, half as much. */
const namesRoom = (width) => (width < 560 ? 66 : 132);

/** Whether a job came to no good end. */
export const failed = (job) => WENT_WRONG.includes(job.state);

/** Lanes from the nodes: {node, device|null, cpus, height, top}. */
export function lanesOf(nodes) {
  const lanes = [];
  let top = TOP;
  for (const node of nodes) {
    const own = [];
    if (node.cpus > 0) own.push({ node: node.name, device: null, cpus: node.cpus, cores: coresOf(node),
      height: Math.min(Math.max(14 * node.cpus, 18), 84) });
    for (const device of node.devices) {
      own.push({ node: node.name, device: nameOf(device), height: DEVICE });
    }
    for (const lane of own) {
      if (lanes.length >= MOST_LANES) return { lanes, height: top, left: nodes.length };
      lanes.push({ ...lane, top, down: node.state !== "up" });
      top += lane.height + 4;
    }
    top += 4;
  }
  return { lanes, height: top, left: 0 };
}

const nameOf = (device) => (typeof device === "string" ? device : device.name);
const coresOf = (node) => node.cores || null;

/** Runs of neighbouring numbers: [2,3,4,7] gives [[2,3],[7,1]]. */
export function runs(numbers) {
  const found = [];
  for (const n of [...numbers].sort((a, b) => a - b)) {
    const last = found[found.length - 1];
    if (last && last[0] + last[1] === n) last[1] += 1;
    else found.push([n, 1]);
  }
  return found;
}

/** Rows below the lanes for waiting jobs, from their predicted start to their predicted end. */
function forecastsOf(waiting, to) {
  const rows = [];
  const known = waiting.filter((job) => job.predicted_start && job.predicted_start < to);
  for (const job of known.sort((a, b) => a.predicted_start - b.predicted_start)) {
    const row = rows.find((one) => (one[one.length - 1].predicted_end ?? to) <= job.predicted_start);
    if (row) row.push(job);
    else if (rows.length < MOST_FORECASTS) rows.push([job]);
  }
  return rows;
}

/** What bars are called: the name; where several share it, with the id; where it is long, the part that tells them apart. */
function labelsOf(jobs) {
  const many = new Map();
  const names_ = new Map(jobs.map((job) => [job, titleOf(job, 60)]));
  for (const name of names_.values()) many.set(name, (many.get(name) ?? 0) + 1);
  const names = [...many.keys()].sort();
  const start = names.length > 1 ? alike(names[0], names[names.length - 1]) : 0;
  return (job, room) => {
    const title = names_.get(job) ?? titleOf(job, 60);
    const word = start > 0 ? Math.max(...[..."-_. /:="].map((mark) => title.lastIndexOf(mark, start - 1))) + 1 : 0;
    const found = many.get(title) > 1 ? [`${job.id} ${title}`, job.id] : [title, title.slice(word)];
    const last = found[found.length - 1];
    return found.find((name) => name.length <= room) ?? (room < 4 ? "" : `…${last.slice(1 - room)}`);
  };
}

function alike(first, last) {
  let at = 0;
  while (at < first.length && first[at] === last[at]) at += 1;
  return at;
}

/** The chart. `from`, `to`, `now` are seconds since the epoch; `open` hears the id of a job that is chosen. */
export function gantt({ nodes, jobs, waiting, from, to, now, width, open }) {
  const { lanes, height: below, left } = lanesOf(nodes);
  const forecasts = forecastsOf(waiting, to);
  const height = below + forecasts.length * (FORECAST + 2) + (forecasts.length ? 4 : 0);
  const room = namesRoom(width);
  const letters = Math.floor(room / LETTER);
  const scale = (t) => room + ((Math.min(Math.max(t, from), to) - from) / (to - from)) * (width - room - 8);
  const chart = draw("svg", { class: "chart", width, height: height + 18, viewBox: `0 0 ${width} ${height + 18}`,
    role: "img", "aria-label": `What ran where from ${moment(from)} to ${moment(to)}` });
  for (const at of ticks(from, to, (width - room) / 60)) {
    chart.append(draw("line", { class: "grid", x1: scale(at), x2: scale(at), y1: TOP - 4, y2: height }));
    chart.append(draw("text", { x: scale(at), y: 11, "text-anchor": "middle" }, moment(at).slice(-8, -3)));
  }
  const places = new Map();
  for (const lane of lanes) {
    places.set(`${lane.node}/${lane.device ?? "cpu"}`, lane);
    const name = lane.device === null ? lane.node : `${lane.node}/${lane.device}`;
    const label = draw("text", { x: 0, y: lane.top + Math.min(lane.height, 24) / 2 + 4 },
      (name.length > letters ? `…${name.slice(1 - letters)}` : name) + (lane.down ? " (down)" : ""));
    label.append(draw("title", {}, name));
    chart.append(label);
    chart.append(draw("line", { class: "lane", x1: room, x2: width - 8, y1: lane.top + lane.height + 2,
      y2: lane.top + lane.height + 2 }));
  }
  const label = labelsOf([...jobs, ...waiting]);
  let bars = 0;
  // What failed is above what else there is, and never left out for it.
  for (const job of [...jobs.filter((one) => !failed(one)).slice(0, MOST_BARS), ...jobs.filter(failed)]) {
    for (const box of boxes(job, places)) {
      if (bars++ >= MOST_BARS && !failed(job)) break;
      bar(chart, job, box, { scale, from, to, now, open, label });
    }
  }
  if (forecasts.length) chart.append(draw("text", { x: 0, y: below + FORECAST - 2 }, "waiting"));
  forecasts.forEach((row, place) => {
    for (const job of row) forecast(chart, job, below + place * (FORECAST + 2), { scale, to, now, open, label });
  });
  chart.append(draw("line", { class: "now", x1: scale(now), x2: scale(now), y1: TOP - 4, y2: height }));
  if (left) chart.append(draw("text", { x: 0, y: height + 12 }, `${MOST_LANES} lanes are shown; there are ${left} nodes`));
  return chart;
}

/** Where a job's bars lie: {lane, top, height}. */
function* boxes(job, places) {
  for (const [node, cores] of Object.entries(job.cores || {})) {
    const lane = places.get(`${node}/cpu`);
    if (!lane) continue;
    const each = lane.height / lane.cpus;
    for (const [first, many] of runs(cores.map((core) => place(lane, core)))) {
      yield { top: lane.top + first * each, height: Math.max(many * each - 1, 1.5) };
    }
  }
  for (const name of job.devices || []) {
    const lane = places.get(name) || [...places.values()].find((one) => one.device === name);
    if (lane) yield { top: lane.top, height: lane.height - 1 };
  }
}

/** The row of a core; those that host devices are not among a node's CPUs, so ids may have gaps. */
function place(lane, core) {
  lane.seen ??= new Map();
  const known = lane.cores ? lane.cores.indexOf(core) : core;
  if (known >= 0 && known < lane.cpus) return known;
  if (!lane.seen.has(core)) lane.seen.set(core, lane.seen.size);
  return lane.seen.get(core) % lane.cpus;
}

/** A waiting job, from when it is predicted to start until when it is predicted to end. */
function forecast(chart, job, top, { scale, to, now, open, label }) {
  const x = scale(Math.max(job.predicted_start, now)); // a forecast is a little older than now
  const wide = Math.max(scale(job.predicted_end ?? to) - x, 2);
  const told = [`${job.id} ${titleOf(job, 200)}`, "PENDING",
    `predicted ~ ${moment(job.predicted_start)} to ${job.predicted_end ? moment(job.predicted_end) : "?"}`,
    ...(job.confidence ? [`starts ${between(job, "predicted_start")}`] : [])].join("\n");
  chart.append(draw("rect", { class: "forecast", x, y: top, width: wide, height: FORECAST, rx: 2, "data-forecast": job.id,
    click: () => open(job.id) }, draw("title", {}, told)));
  if (job.predicted_start_low && job.predicted_start_high) {
    chart.append(whisker(job, top + FORECAST / 2, scale, to));
  }
  const text = wide > 24 ? label(job, Math.floor((wide - 6) / LETTER)) : "";
  if (text) chart.append(draw("text", { class: "coming", x: x + 3, y: top + FORECAST - 3 }, text));
}

/** Between when and when a waiting job starts: a line with a stroke at each end that lies in sight. */
function whisker(job, y, scale, to) {
  const [low, high] = [job.predicted_start_low, Math.min(job.predicted_start_high, to)].map(scale);
  const cap = (x) => `M${x} ${y - 3}V${y + 3}`;
  const last = job.predicted_start_high <= to ? cap(high) : "";
  return draw("path", { class: "whisker", d: `M${low} ${y}H${high}${cap(low)}${last}`, "data-whisker": job.id });
}

function bar(chart, job, box, { scale, from, to, now, open, label }) {
  const end = job.end ?? now;
  if (job.start === null || end < from || job.start > to) return;
  const about = draw("title", {}, describe(job, now));
  const choose = () => open(job.id);
  const x = scale(job.start);
  const wide = Math.max(scale(end) - x, failed(job) ? 4 : 1.5);
  chart.append(draw("rect", { class: `job ${job.state}`, x, y: box.top, width: wide, height: box.height, rx: 2,
    "data-job": job.id, click: choose }, about));
  if (job.end === null && job.predicted_end) {
    const over = job.predicted_end < now;
    const until = scale(job.predicted_end);
    if (over) {
      chart.append(draw("line", { class: "over", x1: until, x2: until, y1: box.top, y2: box.top + box.height }));
    } else {
      chart.append(draw("rect", { class: "ahead", x: x + wide, y: box.top + .5, width: Math.max(until - x - wide, 0),
        height: Math.max(box.height - 1, 1), "data-ahead": job.id, click: choose }));
    }
  }
  const text = box.height >= 11 ? label(job, Math.floor((wide - 8) / LETTER)) : "";
  if (text) {
    chart.append(draw("text", { class: "label", x: x + 4, y: box.top + box.height / 2 + 4 }, text));
  }
}

function describe(job, now) {
  const ran = (job.end ?? now) - job.start;
  const parts = [`${job.id} ${titleOf(job, 200)}`, job.state, `${moment(job.start)}, ${duration(ran)}`];
  if (job.predicted) parts.push(`predicted ${duration(job.predicted)}`);
  if (job.reason) parts.push(job.reason);
  return parts.join("\n");
}

/** Round moments, some six of them; no more than `most`. */
export function ticks(from, to, most = 8) {
  const steps = [10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400];
  const step = steps.find((one) => (to - from) / one <= Math.min(most, 8)) ?? 86400;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return found;
}

/** CPUs and devices in use over time, as shares of what there is: [[t, share], …]. */
export function usage(nodes, jobs, from, now) {
  const all = nodes.reduce((sum, node) => sum + node.cpus + node.devices.length, 0);
  const steps = new Map([[from, 0]]);
  for (const job of jobs) {
    if (job.start === null) continue;
    const held = Object.values(job.cores || {}).reduce((sum, cores) => sum + cores.length, 0) + (job.devices || []).length;
    const begin = Math.max(job.start, from);
    const end = Math.min(job.end ?? now, now);
    if (end <= begin) continue;
    steps.set(begin, (steps.get(begin) ?? 0) + held);
    steps.set(end, (steps.get(end) ?? 0) - held);
  }
  let level = 0;
  const found = [];
  for (const [at, change] of [...steps].sort((a, b) => a[0] - b[0])) {
    level += change;
    found.push([at, all ? level / all : 0]);
  }
  return found;
}

/** Their mean share from `from` to `now`. */
export function meanUsage(levels, from, now) {
  let sum = 0;
  levels.forEach(([at, level], i) => { sum += level * ((levels[i + 1]?.[0] ?? now) - at); });
  return now > from ? sum / (now - from) : 0;
}

/** The area under them. */
export function area(levels, { from, to, now, width }) {
  const high = 36;
  const room = namesRoom(width);
  const scale = (t) => room + ((t - from) / (to - from)) * (width - room - 8);
  let path = `M${scale(from)} ${high}`;
  let last = 0;
  for (const [at, level] of levels) {
    path += `L${scale(at)} ${high - high * last}L${scale(at)} ${high - high * Math.min(level, 1)}`;
    last = Math.min(level, 1);
  }
  path += `L${scale(now)} ${high - high * last}L${scale(now)} ${high}Z`;
  const chart = draw("svg", { class: "chart", width, height: high + 2, viewBox: `0 0 ${width} ${high + 2}`, role: "img",
    "aria-label": "Share of CPUs and devices in use" });
  chart.append(draw("text", { x: 0, y: 22 }, "in use"), draw("line", { class: "lane", x1: room, x2: width - 8, y1: high, y2: high }),
    draw("path", { class: "area", d: path }));
  return chart;
}
