// Sorts a table by the column whose heading is pressed; numbers by data-v, texts by themselves.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const heading = button.closest("th");
    const column = heading.cellIndex;
    const body = heading.closest("table").tBodies[0];
    const up = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = (row) => {
      const cell = row.cells[column];
      const given = cell.dataset.v;
      return given === undefined ? cell.textContent : given === "" ? null : Number(given);
    };
    const rows = [...body.rows].map((row, place) => [value(row), place, row]);
    rows.sort(([a, i], [b, j]) => {
      if (a === null || b === null) return (a === null) - (b === null) || i - j;
      const order = typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true });
      return (up ? order : -order) || i - j;
    });
    body.append(...rows.map(([, , row]) => row));
  });
}

// Draws the schedules: those that are seen at once, others when their section is opened.
const told = document.getElementById("charts");
const data = told === null ? null : JSON.parse(told.textContent);
const WIDTH = 1000;

function element(name, attributes, parent, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function duration(seconds) {
  if (seconds >= 172800) return `${(seconds / 86400).toFixed(1)} days`;
  if (seconds >= 7200) return `${(seconds / 3600).toFixed(1)} h`;
  if (seconds >= 120) return `${(seconds / 60).toFixed(1)} min`;
  if (seconds >= 1) return `${Number(seconds.toPrecision(4))} s`;
  return seconds === 0 ? "0 s" : `${Number((seconds * 1000).toPrecision(4))} ms`;
}

function ticks(span) {
  const steps = [];
  for (let e = -9; e < 2; e++) for (const m of [1, 2, 5]) steps.push(m * 10 ** e);
  steps.pop();
  steps.push(...[1, 2, 5, 10, 20, 30].map((m) => 60 * m), ...[1, 2, 3, 6, 12].map((m) => 3600 * m));
  for (let e = 0; e < 6; e++) for (const m of [1, 2, 5]) steps.push(86400 * m * 10 ** e);
  const step = steps.find((s) => span / s <= 9) ?? span;
  const [size, unit] = step >= 43200 ? [86400, "d"] : step >= 1800 ? [3600, "h"] : step >= 60 ? [60, "min"]
    : step >= 0.1 ? [1, "s"] : step >= 1e-4 ? [1e-3, "ms"] : [1e-6, "µs"];
  const found = [];
  for (let i = 0; i * step <= span * (1 + 1e-9); i++) {
    found.push([i * step, i ? `${Number(((i * step) / size).toPrecision(6))} ${unit}` : "0"]);
  }
  return found;
}

function axis(svg, left, inner, top, span) {
  element("line", { class: "axis", x1: left, x2: left + inner, y1: top + 2, y2: top + 2 }, svg);
  for (const [at, text] of ticks(span)) {
    const x = left + (at / span) * inner;
    element("line", { class: "axis", x1: x, x2: x, y1: top + 2, y2: top + 6 }, svg);
    element("text", { class: "tick", x, y: top + 19 }, svg, text);
  }
}

function inkOn(colour) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16) / 255);
  return 0.299 * r + 0.587 * g + 0.114 * b > 0.55 ? "#111111" : "#ffffff";
}

function about(names, app, submit, [, start, end, state, as, predicted, basis]) {
  const words = data.words;
  const lines = [`${names[0]}: ${app}${words[as] ? ` (${words[as]})` : ""}`];
  lines.push(`${words[state]}, from ${duration(start)} to ${duration(end)}`);
  let ran = `ran ${duration(end - start)}`;
  if (predicted !== null) ran += `, predicted ${duration(predicted)}${words[basis] ? ` (${words[basis]})` : ""}`;
  lines.push(ran, `waited ${duration(start - submit)}`);
  return lines.join("\n");
}

function drawLanes(chart, svg, span) {
  const count = chart.lanes.length;
  const left = 14 + 6.6 * Math.min(24, Math.max(...chart.lanes.map(([name]) => name.length)));
  const inner = WIDTH - left - 46;
  const least = count <= 16 ? 30 : count <= 32 ? 20 : 14;
  const heights = chart.lanes.map(([, , rows]) => least + 12 * Math.min(4, rows - 1));
  const tops = heights.map((_, row) => heights.slice(0, row).reduce((sum, height) => sum + height, 0));
  const bottom = tops[count - 1] + heights[count - 1];
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${bottom + 26}`);
  chart.lanes.forEach(([name, used], row) => {
    const [top, tall] = [tops[row], heights[row]];
    const short = name.length > 24 ? `${name.slice(0, 12)}…${name.slice(-11)}` : name;
    const text = element("text", { class: "lane", x: left - 8, y: top + tall / 2 + 4, "text-anchor": "end" }, svg, short);
    if (short !== name) element("title", {}, text, name);
    element("rect", { class: "ground", x: left, y: top + 2, width: inner, height: tall - 4 }, svg);
    const share = `${Math.round(used * 100)}%`;
    element("text", { class: "busy", x: left + inner + 6, y: top + tall / 2 + 4 }, svg, share);
  });
  for (const bar of chart.bars) {
    const [job, start, end, , , , , failed, places] = bar;
    const [names, app, submit, colour] = data.jobs[job];
    const group = element("g", failed ? { class: "failed" } : {}, svg);
    element("title", {}, group, about(names, app, submit, bar));
    const x = left + (start / span) * inner;
    const width = Math.max(0.6, ((end - start) / span) * inner);
    for (let i = 0; i < places.length; i += 3) {
      const [lane, low, high] = places.slice(i, i + 3);
      const [top, tall] = [tops[lane], heights[lane]];
      const height = ((tall - 4) * (high - low)) / 1000;
      const y = top + tall - 2 - (low * (tall - 4)) / 1000 - height;
      element("rect", { class: "bar", x, y, width, height, fill: colour }, group);
      const size = Math.min(12, height * 0.72);
      const room = size < 8 ? 0 : Math.floor((width - 6) / (size * 0.6));
      // The whole name, or the part that tells jobs apart; else its end.
      const name = names.find((n) => n.length <= room) ?? (room < 4 ? "" : `…${names[names.length - 1].slice(1 - room)}`);
      if (name === "") continue;
      const at = { class: "name", x: x + width / 2, y: y + height / 2 + size * 0.35, "font-size": size };
      element("text", { ...at, fill: inkOn(colour) }, group, name);
    }
  }
  axis(svg, left, inner, bottom, span);
}

function drawShares(chart, svg, span) {
  const count = chart.groups.length;
  const tall = Math.min(14, Math.max(5, 400 / count));
  const left = 14 + 6.6 * Math.min(24, Math.max(...chart.groups.map((name) => name.length)));
  const inner = WIDTH - left - 20;
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${tall * count + 26}`);
  const columns = chart.shares[0].length;
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [columns, count];
  const paint = canvas.getContext("2d");
  paint.fillStyle = "#4269d0";
  chart.shares.forEach((row, y) => {
    for (let x = 0; x < columns; x++) {
      paint.globalAlpha = 0.04 + (0.96 * parseInt(row[x], 36)) / 35;
      paint.fillRect(x, y, 1, 1);
    }
  });
  const place = { x: left, y: 0, width: inner, height: tall * count, preserveAspectRatio: "none" };
  element("image", { ...place, href: canvas.toDataURL(), style: "image-rendering: pixelated" }, svg);
  const every = Math.ceil(12 / tall);
  chart.groups.forEach((name, row) => {
    if (row % every) return;
    const y = row * tall + tall / 2 + 4;
    element("text", { class: "lane small", x: left - 8, y, "text-anchor": "end" }, svg, name);
  });
  axis(svg, left, inner, tall * count, span);
}

function legend(place) {
  const list = document.createElement("ul");
  list.className = "legend";
  const entries = data.legend.map(([name, colour]) => [name, colour, "swatch"]);
  if (data.marked) entries.push(["did not complete", "", "swatch failed"]);
  for (const [name, colour, style] of entries) {
    const item = document.createElement("li");
    const swatch = document.createElement("span");
    swatch.className = style;
    swatch.style.background = colour;
    item.append(swatch, name);
    list.append(item);
  }
  place.after(list);
}

function draw(place) {
  if (place.firstChild !== null) return;
  const chart = data.charts[Number(place.dataset.chart)];
  const span = data.span[1] - data.span[0] || 1;
  const svg = element("svg", { class: "gantt", role: "img", "aria-label": JSON.parse(place.dataset.name) }, place);
  if (chart.lanes === undefined) {
    drawShares(chart, svg, span);
  } else {
    drawLanes(chart, svg, span);
    legend(place);
  }
}

for (const place of document.querySelectorAll("[data-chart]")) {
  const closed = place.closest("details:not([open])");
  if (closed === null) draw(place);
  else closed.addEventListener("toggle", () => draw(place));
}

// The main chart as a picture for slides and mails: the SVG with what the page's style gives it, on a canvas.
const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight", "font-family", "text-anchor"];
const SHARP = 2;

function picture(svg) {
  const copy = svg.cloneNode(true);
  const [from, to] = [svg, copy].map((one) => [one, ...one.querySelectorAll("*")]);
  from.forEach((one, i) => {
    const style = getComputedStyle(one);
    for (const name of STYLES) to[i].style.setProperty(name, style.getPropertyValue(name));
  });
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const wide = Math.max(width, svg.getBoundingClientRect().width) * SHARP;
  copy.setAttribute("width", wide);
  copy.setAttribute("height", (wide * height) / width);
  copy.style.maxWidth = "none";
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  return image.decode().then(() => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [wide, (wide * height) / width];
    const paint = canvas.getContext("2d");
    paint.fillStyle = getComputedStyle(svg.parentElement).backgroundColor;
    paint.fillRect(0, 0, canvas.width, canvas.height);
    paint.drawImage(image, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL("image/png");
  });
}

for (const place of document.querySelectorAll("[data-save]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "save";
  button.textContent = "Save as PNG";
  button.addEventListener("click", async () => {
    const link = document.createElement("a");
    link.href = await picture(place.querySelector("svg"));
    link.download = `${document.title.replace(/[^\w.-]+/g, "-")}.png`;
    link.click();
  });
  const next = place.nextElementSibling;
  (next !== null && next.matches(".legend") ? next : place).after(button);
}
