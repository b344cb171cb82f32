// The pages. Each has `load` (asks the service), `show` (builds the page), and may have `tick` (once a second).

import { act, get, log } from "./api.js";
import { ask, count, duration, endTime, expected, make, moment, nineInTen, percent, term, titleOf } from "./dom.js";
import { area, failed, gantt, legend, meanUsage, usage, WENT_WRONG } from "./gantt.js";
import { APPS, ENDED, QUEUE, stateOf, table, where } from "./tables.js";

const ROWS = 100;
const PAST = 2000;
const WRONG = 500;

const filters = { text: "", state: "" };
const window_ = { past: 900 };
const each = (states) => states.map((state) => [state, state]);
const FAILED = WENT_WRONG.join(",");

/** Fields of the filter: a name, or user:NAME. */
function query(extra) {
  const found = new URLSearchParams(extra);
  const text = filters.text.trim();
  if (text.startsWith("user:")) found.set("user", text.slice(5));
  else if (text) found.set("name", text);
  for (const state of filters.state ? filters.state.split(",") : []) found.append("state", state);
  return found;
}

function filterBar(states, changed) {
  if (!states.some(([state]) => state === filters.state)) filters.state = "";
  const text = make("input", { type: "search", id: "filter", placeholder: "name, or user:NAME", "aria-label": "Filter jobs",
    value: filters.text, input: (event) => { filters.text = event.target.value; changed(); } });
  const state = make("select", { "aria-label": "State", change: (event) => { filters.state = event.target.value; changed(); } },
    ...[["", "all states"], ...states].map(([value, name]) => make("option", { value, selected: value === filters.state }, name)));
  return make("div", { class: "bar" }, text, state);
}

const more = (shown, total, next) => make("p", {}, `${count(shown)} of ${count(total)} `,
  make("button", { type: "button", click: next }, "Show more"));

export async function cancel(id) {
  if (await ask(`Cancel job ${id}? If it runs, it is stopped.`)) await act("cancel", [id]);
}

export async function holdOrRelease(job) {
  await act(job.held ? "release" : "hold", [job.id]);
}

function buttonsOf(job) {
  const found = [];
  if (job.state === "PENDING") {
    found.push(make("button", { type: "button", click: () => holdOrRelease(job) }, job.held ? "Release" : "Hold"), " ");
  }
  if (job.state === "PENDING" || job.state === "RUNNING") {
    found.push(make("button", { type: "button", click: () => cancel(job.id) }, "Cancel"));
  }
  return found;
}

const HELD = /^(held|hold)/i;
const withHeld = (jobs) => jobs.map((job) => ({ ...job, held: job.state === "PENDING" && HELD.test(job.reason || "") }));

// ------------------------------------------------------------------------------------------------------ queue

export function queuePage() {
  let asked = ROWS;
  let data = null;
  const load = async () => {
    const now = Date.now() / 1000;
    const since = now - window_.past;
    const wrong = new URLSearchParams([["since", since], ["limit", WRONG], ...WENT_WRONG.map((state) => ["state", state])]);
    const first = [get(`/jobs?${query({ limit: asked })}`), get("/info"), get("/nodes")];
    const others = [get("/jobs?state=RUNNING&limit=1000"), get(`/jobs?state=PENDING&limit=${ROWS}`),
      get(`/ended?since=${since}&limit=${PAST}`), get(`/ended?${wrong}`)]; // those that failed however many others there are
    const all = Promise.all(others);
    all.catch(() => {}); // it is awaited below
    const [jobs, info, nodes] = await Promise.all(first);
    const put = ([running, waiting, past, bad]) => {
      data = { nodes: nodes.nodes, running: running.jobs, jobs: withHeld(jobs.jobs), total: jobs.total,
        waiting: waiting.jobs, past: [...past.jobs.filter((job) => !failed(job)), ...bad.jobs], bad: bad.jobs.length,
        info, age: jobs.forecast_age, ahead: info.now - now };
    };
    if (data === null) { // what waits and runs at once; what has been comes when it is found
      put([{ jobs: jobs.jobs.filter((job) => job.state === "RUNNING") }, { jobs: [] }, { jobs: [] }, { jobs: [] }]);
      show();
    }
    put(await all);
  };
  const open = (id) => { location.hash = `#/job/${encodeURIComponent(id)}`; };
  const charts = make("div", { id: "charts", class: "wide" });
  const figures = make("ul", { class: "figures" });
  const list = make("div", { id: "list" }, make("p", { class: "muted", role: "status" }, "The queue is being read …"));
  const spans = make("select", { "aria-label": "How far back", change: (event) => {
    window_.past = Number(event.target.value);
    refresh();
  } }, ...[[300, "5 minutes"], [900, "15 minutes"], [3600, "1 hour"], [21600, "6 hours"], [86400, "1 day"]]
    .map(([value, text]) => make("option", { value, selected: value === window_.past }, text)));
  let refresh = () => {};
  const page = make("div", { class: "home" }, figures, make("section", { class: "where" },
    make("h2", {}, "What runs where"),
    make("div", { class: "bar" }, make("label", {}, "The last ", spans)),
    charts, legend()), make("section", {}, make("h2", {}, "Queue"),
    filterBar(each(["PENDING", "RUNNING"]), () => refresh()), list));
  const show = () => {
    const { info } = data;
    const jobs = info.jobs;
    drawCharts();
    list.replaceChildren(table(QUEUE, data.jobs, { label: "Queue", buttons: buttonsOf,
      empty: filters.text || filters.state ? "No job is like that." : "Nothing waits and nothing runs. Try: dovetail submit -- sleep 10" }));
    if (data.jobs.length < data.total) list.append(more(data.jobs.length, data.total, () => { asked += 10 * ROWS; refresh(); }));
    if (data.age !== null && data.jobs.length) {
      list.append(make("p", { class: "muted" }, `Starts and ends with ~ are predicted; the forecast is ${duration(data.age)} old.`));
    }
    figures.replaceChildren(...[
      [count(jobs.running), "running"], [count(jobs.waiting), "waiting"], [count(jobs.held), "held"],
      [`${info.cpus_used} / ${info.cpus}`, "CPUs in use"],
      ...(info.devices ? [[`${data.nodes.reduce((n, node) => n + node.devices.filter((d) => d.job || (d.jobs || []).length).length, 0)} / ${info.devices}`, "devices in use"]] : []),
      [percent(data.mean), "in use, mean"],
    ].map(([value, name]) => make("li", {}, make("b", {}, value), term(name))));
    if (data.bad) {
      const many = data.bad < WRONG ? count(data.bad) : `${count(WRONG)} or more`;
      figures.children[2].after(make("li", { class: "wrong" }, make("a", { href: "#/ended",
        click: () => { filters.state = FAILED; } }, make("b", {}, many), term("did not complete"))));
    }
    if (info.blocked) figures.append(make("li", {}, make("b", {}, "blocked"), info.blocked));
  };
  const drawCharts = () => {
    const now = Date.now() / 1000 + data.ahead;
    const jobs = [...data.past, ...data.running];
    const ends = [...data.running, ...data.waiting].map((job) => job.predicted_end ?? 0);
    const from = now - window_.past;
    const to = Math.min(Math.max(now + window_.past / 5, ...ends), now + 2 * window_.past);
    const width = charts.clientWidth || 900;
    const levels = usage(data.nodes, jobs, from, now);
    const since = Math.max(from, data.info.since);
    data.mean = meanUsage(levels.filter(([at]) => at >= since), since, now);
    charts.replaceChildren(gantt({ nodes: data.nodes, jobs, waiting: data.waiting, from, to, now, width, open }),
      area(levels, { from, to, now, width }));
  };
  return { load, show, page, tick: () => { if (data && data.running.length) drawCharts(); },
    job: (id) => data?.jobs.find((job) => job.id === id), onRefresh: (hear) => { refresh = hear; } };
}

// ------------------------------------------------------------------------------------------------------ ended

export function endedPage() {
  let asked = ROWS;
  let rows = [];
  let refresh = () => {};
  const list = make("div", {});
  const page = make("div", {}, make("h2", {}, "Ended"),
    filterBar([[FAILED, "did not complete"],
      ...each(["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY"])], () => refresh()), list);
  return {
    page,
    load: async () => { rows = (await get(`/ended?${query({ limit: asked })}`)).jobs; },
    show: () => {
      list.replaceChildren(table(ENDED, rows, { label: "Ended jobs", empty: "No job has ended yet, or none is like that." }));
      if (rows.length === asked) {
        list.append(make("p", {}, make("button", { type: "button", click: () => { asked += 10 * ROWS; refresh(); } }, "Show more")));
      }
    },
    job: (id) => rows.find((job) => job.id === id),
    onRefresh: (hear) => { refresh = hear; },
  };
}

// ------------------------------------------------------------------------------------------------------- apps

export function appsPage() {
  let apps = [];
  const page = make("div", {});
  return {
    page,
    load: async () => { ({ apps } = await get("/apps")); },
    show: () => page.replaceChildren(make("h2", {}, "Apps"),
      table(APPS, apps, { label: "Apps", empty: "Nothing has run yet." }),
      make("p", { class: "muted" }, "How far predictions were off: the mean of |predicted - real| / real over the runs that were predicted.")),
  };
}

// -------------------------------------------------------------------------------------------------------- job

const MOST_LOG = 1 << 20;

export function jobPage(id) {
  let job = null;
  let reasons = null;
  let stream = "out";
  let reader = null;
  const head = make("div", {});
  const story = make("div", {});
  const text = make("pre", { id: "log", tabindex: "0", "aria-label": "Output" });
  const note = make("span", { class: "muted" });
  const choose = (name) => make("button", { type: "button", "aria-pressed": String(stream === name), click: (event) => {
    stream = name;
    for (const other of event.target.parentNode.querySelectorAll("button")) {
      other.setAttribute("aria-pressed", String(other === event.target));
    }
    follow();
  } }, name === "out" ? "stdout" : "stderr");
  const page = make("div", {}, head, make("h2", {}, "Output"),
    make("div", { class: "bar" }, choose("out"), choose("err"), note), text, make("h2", {}, "Why it went there"), story);

  async function follow() {
    reader?.abort();
    const mine = new AbortController();
    reader = mine;
    const decoder = new TextDecoder();
    text.textContent = "";
    note.textContent = "";
    let offset = -MOST_LOG;
    try {
      while (!mine.signal.aborted) {
        const piece = await log(id, stream, offset, offset < 0 ? 0 : 25, mine.signal);
        if (mine.signal.aborted) return;
        if (offset < 0 && piece.offset > 0) note.textContent = "the end of a long output";
        const low = text.scrollHeight - text.scrollTop - text.clientHeight < 30;
        text.append(decoder.decode(piece.bytes, { stream: true }));
        if (low) text.scrollTop = text.scrollHeight;
        offset = piece.offset + piece.bytes.byteLength;
        if (piece.ended && offset >= piece.length) break;
      }
      if (!text.textContent) note.textContent = "nothing was written";
    } catch (error) {
      if (!mine.signal.aborted) note.textContent = error.message;
    }
  }


  function about() {
    const rows = [
      ["State", stateOf(job)], ["App", job.app],
      ["Inputs", Object.entries(job.inputs || {}).map(([k, v]) => `${k} = ${v}`).join(", ")],
      ["User", job.user ?? ""], ["Submitted", moment(job.submit)],
      ...(job.start === null ? [["Predicted start", expected(job, "predicted_start")]] : [["Started", moment(job.start)]]),
      ...(job.end === null ? [["Predicted end", endTime(job, (one) => expected(one, "predicted_end"))]] : [["Ended", moment(job.end)]]),
      ["Ran", job.start === null ? "" : duration((job.end ?? Date.now() / 1000) - job.start)],
      ["Predicted", duration(job.predicted)], ["Where", where(job)], ["Implementation", job.implementation ?? ""],
      ["Walltime", duration(job.walltime)], ["Depends on", (job.depends || []).join(", ")],
      ["GPU memory", job.gpu_memory == null ? "" : `${(job.gpu_memory / 1e9).toFixed(1)} GB`],
      ["GPU use", job.gpu_use == null ? "" : `${Math.round(100 * job.gpu_use)} %`],
      ["Attempts", String(job.attempts)], ["Exit status", job.exit_code ?? ""], ["Why", job.detail || job.reason],
      ["Folder", job.folder ?? ""],
      ...Object.entries(job.commands || {}).map(([name, argv]) => [`Command (${name})`, Array.isArray(argv) ? argv.join(" ") : String(argv)]),
    ];
    return make("dl", { class: "about" }, ...rows.filter(([, value]) => value !== "" && value !== null && value !== undefined)
      .flatMap(([name, value]) => [make("dt", {}, term(name)), make("dd", {}, value instanceof Node ? value : String(value))]));
  }

  function options() {
    if (!reasons) return make("p", { class: "muted" }, "Nothing is known of its choice yet.");
    const columns = [
      ["", "", (o) => (o.chosen ? "chosen" : "")], ["Implementation", "", (o) => o.implementation],
      ["Device", "", (o) => o.device ?? ""], ["Nodes", "number", (o) => String(o.nodes ?? "")],
      ["Predicted", "number", (o) => duration(o.predicted)], ["90 % by", "number", nineInTen],
      ["From", "text", (o) => o.basis ?? ""],
    ];
    const told = reasons.why || reasons.reason;
    return make("div", {}, told ? make("p", {}, told) : null,
      table(columns, reasons.considered || [], { label: "Ways to run it", empty: "Nothing is known of its choice yet." }));
  }

  return {
    page,
    load: async () => {
      [job] = withHeld([await get(`/jobs/${encodeURIComponent(id)}`)]);
      reasons = await get(`/jobs/${encodeURIComponent(id)}/explain`).catch(() => null);
    },
    show: () => {
      head.replaceChildren(make("h2", {}, `Job ${job.id}: ${titleOf(job, 80)}`),
        make("div", { class: "bar" }, ...buttonsOf(job),
          job.end !== null ? make("button", { type: "button", click: () => act("requeue", [job.id]) }, "Run it again") : null), about());
      story.replaceChildren(options());
      if (!reader) follow();
    },
    leave: () => reader?.abort(),
    job: () => job,
  };
}
