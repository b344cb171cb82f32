// Tables of jobs and apps; a row that is selected, filters.

import { count, duration, endTime, make, moment, percent, term, titleOf } from "./dom.js";

export const stateOf = (job) => make("span", { class: `state ${job.state}` },
  job.state === "PENDING" && job.held ? "HELD" : job.state);

const link = (job) => make("a", { href: `#/job/${encodeURIComponent(job.id)}` }, job.id);

const waitsFor = (job) => (job.reason === "begins later" && job.begin ? `begins ${moment(job.begin)}` : job.reason);

/** Columns: heading, class of heading and cells, what stands in a cell. */
export const QUEUE = [
  ["ID", "", link],
  ["Name", "name", (job) => make("span", { title: job.command || job.name }, titleOf(job))],
  ["User", "rare", (job) => job.user ?? ""],
  ["State", "", stateOf],
  ["Submitted", "rare", (job) => moment(job.submit)],
  ["Start", "", (job) => begins(job)],
  ["End", "", endTime],
  ["Where", "", (job) => where(job)],
  ["Why it waits", "text", (job) => (job.state === "PENDING" ? waitsFor(job) : "")],
];

export const ENDED = [
  ["ID", "", link],
  ["Name", "name", (job) => make("span", { title: job.command || job.name }, titleOf(job))],
  ["User", "rare", (job) => job.user ?? ""],
  ["State", "", stateOf],
  ["Ended", "", (job) => moment(job.end)],
  ["Waited", "number rare", (job) => (job.start === null ? "" : duration(job.start - job.submit))],
  ["Ran", "number", (job) => (job.start === null ? "" : duration(job.end - job.start))],
  ["Predicted", "number", (job) => duration(job.predicted)],
  ["Off by", "number rare", (job) => off(job)],
  ["Where", "", (job) => where(job)],
  ["Why", "text", (job) => job.detail || job.reason || (job.exit_code ? `exit status ${job.exit_code}` : "")],
];

export const APPS = [
  ["App", "name", (app) => app.app],
  ["Implementation", "", (app) => app.implementation],
  ["Runs", "number", (app) => count(app.runs)],
  ["Mean", "number", (app) => duration(app.mean_seconds)],
  ["Predicted runs", "number", (app) => count(app.predicted_runs)],
  ["Predictions off by", "number", (app) => percent(app.mean_error)],
];

function begins(job) {
  if (job.start !== null) return moment(job.start);
  // The forecast is a little older than this moment: nothing that waits starts in the past.
  return job.predicted_start ? `~ ${moment(Math.max(job.predicted_start, Date.now() / 1000))}` : "";
}

/** n0, n0/gpu0: nodes, or devices where there are some. */
export function where(job) {
  return job.devices && job.devices.length ? job.devices.join(", ") : job.nodes || "";
}

function off(job) {
  if (job.state !== "COMPLETED" || job.start === null || !job.predicted) return "";
  const ran = job.end - job.start;
  return ran > 0 ? percent(Math.abs(job.predicted - ran) / ran) : "";
}

/** A table; `buttons` makes what stands at the end of a row. */
export function table(columns, rows, { label, buttons = null, empty }) {
  if (!rows.length) return make("p", { class: "muted" }, empty);
  const heads = columns.map(([text, kind]) => make("th", { scope: "col", class: kind }, term(text)));
  if (buttons) heads.push(make("th", { scope: "col" }, make("span", { class: "muted" }, "")));
  const body = rows.map((row) => {
    const cells = columns.map(([text, kind, show]) => make("td", { class: kind, "data-label": text }, show(row)));
    if (buttons) cells.push(make("td", { class: "actions" }, ...buttons(row)));
    return make("tr", { "data-id": row.id ?? null }, ...cells);
  });
  return make("div", { class: "wide" }, make("table", { "aria-label": label },
    make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...body)));
}

/** Move the selection by so many rows; returns the id of the row that is selected then. */
export function select(step) {
  const rows = [...document.querySelectorAll("tr[data-id]")];
  if (!rows.length) return null;
  const at = rows.findIndex((row) => row.getAttribute("aria-selected") === "true");
  const next = rows[Math.min(Math.max(at + step, 0), rows.length - 1)];
  mark(next.dataset.id);
  next.scrollIntoView({ block: "nearest" });
  return next.dataset.id;
}

/** Which row is selected. */
export const selected = () => document.querySelector('tr[aria-selected="true"]')?.dataset.id ?? null;

/** Select the row of that id, where it is shown. */
export function mark(id) {
  for (const row of document.querySelectorAll("tr[data-id]")) {
    row.setAttribute("aria-selected", String(row.dataset.id === id));
  }
}
