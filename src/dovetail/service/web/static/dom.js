// Small helpers: elements, texts of times and durations. Whatever comes from jobs is only ever set as text.

export const $ = (id) => document.getElementById(id);

/** An element: `make("td", {class: "number"}, "3", other)`. Functions among the attributes hear events. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** 0.4 s, 12 s, 3 min 20 s, 7 h 5 min, 3 d 4 h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "";
  if (seconds < 0) return `-${duration(-seconds)}`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([size]) => whole >= size);
  const [big, small] = [parts[first], parts[first + 1]];
  const text = `${Math.floor(whole / big[0])} ${big[1]}`;
  const rest = small ? Math.floor((whole % big[0]) / small[0]) : 0;
  return rest ? `${text} ${rest} ${small[1]}` : text;
}

/** 14:03:20, with the day where it is not today. */
export function moment(epoch) {
  if (epoch === null || epoch === undefined) return "";
  const then = new Date(epoch * 1000);
  const time = then.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  if (then.toDateString() === new Date().toDateString()) return time;
  return `${then.toLocaleDateString([], { year: "numeric", month: "short", day: "numeric" })} ${time}`;
}

/** `between 14:10:00 and 16:30:00 (90 %)` of a predicted time; empty where there is no interval. */
export function between(job, name) {
  const [low, high] = [job[`${name}_low`], job[`${name}_high`]];
  return low && high ? `between ${moment(low)} and ${moment(high)} (${Math.round(100 * job.confidence)} %)` : "";
}

/** A predicted time: its interval, or about when; empty where it is not known. */
export const expected = (job, name) => between(job, name) || (job[name] ? `~ ${moment(job[name])}` : "");

const about = (job) => (job.predicted_end ? `~ ${moment(job.predicted_end)}` : "");

/** When a job ends, in the words of `ahead`; of one that runs longer than expected by when nine in ten do, or that it is
 * overdue. Too few runs show no such bound: past a guess nothing is known. */
export function endTime(job, ahead = about) {
  const now = Date.now() / 1000;
  if (job.start === null || job.predicted_end === null || job.predicted_end >= now) return ahead(job);
  if (!job.predicted_end_by) return "unknown";
  return job.predicted_end_by < now ? "overdue" : `by ~ ${moment(job.predicted_end_by)}`;
}

export const percent = (share) => (share === null || share === undefined ? "" : `${(100 * share).toFixed(1)} %`);
export const count = (number) => number.toLocaleString("en");

let hide;
/** Say something at the edge of the page for a while. */
export function notice(text) {
  const place = $("notice");
  place.textContent = text;
  place.hidden = false;
  clearTimeout(hide);
  hide = setTimeout(() => { place.hidden = true; }, 8000);
}

/** A question with yes and no. */
export function ask(question) {
  const dialog = $("ask");
  $("ask-text").textContent = question;
  dialog.returnValue = "no";
  dialog.showModal();
  $("ask-no").focus();
  return new Promise((answer) => {
    dialog.addEventListener("close", () => answer(dialog.returnValue === "yes"), { once: true });
  });
}

/** What words mean that a newcomer may not know; shown where the pointer, or the keyboard, rests on them. */
export const TERMS = {
  "waiting": "submitted and not started yet",
  "held": "kept back: by its user, until a moment, or until another job has ended",
  "did not complete": "failed, out of memory, at its walltime, or lost with its node, in the time that is shown",
  "devices in use": "GPUs and other accelerators on which a job runs",
  "in use, mean": "share of all CPUs and devices that jobs held, on average over the time that is shown",
  "Start": "when it started; with ~ when it is predicted to start",
  "End": "with ~: when it is predicted to end; by: nine in ten have ended by then; overdue: it runs longer than that",
  "Where": "nodes, or the devices of nodes, on which it runs",
  "Why it waits": "what has to happen before it starts",
  "Waited": "from its submission to its start",
  "Ran": "how long its process ran",
  "Predicted": "how long it was expected to run, from earlier runs of the same app",
  "Off by": "how far the prediction was from what it took",
  "Implementation": "the way it was run: an app may have one for CPUs and one for GPUs",
  "90 % by": "in nine of ten cases it takes no longer than this; too few runs: only a guess is known",
  "From": "what the prediction rests on",
  "App": "the program, as the history knows it",
  "Walltime": "a limit: it is ended when it has run so long",
  "Attempts": "how often it was started",
  "Depends on": "jobs that have to end, or begin, before it starts",
  "Predictions off by": "mean of the difference from what runs took, as a share of it",
  "Predicted runs": "runs that had a prediction when they started",
};

/** Where an interval ends at so many times what is expected, it shows only that too few runs are known. */
const TOO_WIDE = 20;

/** By when nine of ten runs end; `too few runs` where that is no figure to go by. */
export function nineInTen({ predicted, upper }) {
  if (predicted === null || predicted === undefined) return "";
  return upper === null || upper > TOO_WIDE * predicted ? "too few runs" : duration(upper);
}

/** A word, explained where it may need that. */
export function term(word) {
  const about = TERMS[word];
  return about ? make("abbr", { title: about, tabindex: "0", "aria-label": `${word}: ${about}` }, word) : word;
}

/** A text of at most `most` characters, cut out of its middle. */
export function shortened(text, most = 40) {
  if (text.length <= most) return text;
  const end = Math.floor(most / 2);
  return `${text.slice(0, most - end - 1).trimEnd()}…${text.slice(-end).trimStart()}`;
}

/** What a job is known by: the name that its user gave it, else its command, shortened in the middle. */
export function titleOf(job, most = 40) {
  return job.name !== job.app || !job.command ? job.name : shortened(job.command, most);
}
