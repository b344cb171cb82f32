// Which page is shown; changes pushed by the service; keys.

import { get, listen } from "./api.js";
import { $, notice } from "./dom.js";
import { appsPage, cancel, endedPage, holdOrRelease, jobPage, queuePage } from "./pages.js";
import { mark, select, selected } from "./tables.js";

const GAP = 1000;
let page = null;
let busy = false;
let again = false;
let timer = null;

function route() {
  const [, name = "", id = ""] = location.hash.split("/");
  if (name === "job") return jobPage(decodeURIComponent(id));
  return { ended: endedPage, apps: appsPage }[name]?.() ?? queuePage();
}

async function go() {
  page?.leave?.();
  page = route();
  page.onRefresh?.(refresh);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === (location.hash || "#/")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  // A busy machine takes seconds for the first answer: the page shows that it waits.
  const wait = Object.assign(document.createElement("p"), { className: "muted", textContent: "Loading…" });
  $("page").replaceChildren(wait, page.page);
  await refresh();
  wait.remove();
}

/** Ask anew and show it; while one is under way, once more afterwards. */
async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  const mine = page;
  try {
    await mine.load();
    if (mine === page) {
      const chosen = selected();
      mine.show();
      if (chosen) mark(chosen);
    }
  } catch (error) {
    notice(error.message);
  } finally {
    busy = false;
    if (again) { again = false; refresh(); }
  }
}

/** A change: look again, at most once a second, and only if somebody looks at the page. */
function changed() {
  if (timer !== null || document.hidden) return;
  refresh();
  timer = setTimeout(() => { timer = null; if (pending) { pending = false; changed(); } }, GAP);
}
let pending = false;

function heard(pulse) {
  document.title = pulse.jobs ? `${pulse.jobs.running} running, ${pulse.jobs.waiting} waiting: Dovetail` : "Dovetail";
  if (timer !== null) pending = true;
  else changed();
}

function linkState(state) {
  $("link").textContent = state === "live" ? "live" : "the service does not answer; trying again";
  $("link").classList.toggle("lost", state !== "live");
}

// --------------------------------------------------------------------------------------------------- keys, look

let before = "";
async function key(event) {
  const typing = event.target.matches("input, select, textarea") || document.querySelector("dialog[open]");
  if (event.key === "Escape" && event.target.matches("input")) { event.target.blur(); return; }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const two = before + event.key;
  before = event.key === "g" ? "g" : "";
  const places = { gq: "#/", ge: "#/ended", ga: "#/apps" };
  const job = () => page.job?.(selected());
  const keys = {
    j: () => select(1),
    k: () => select(-1),
    Enter: () => { if (selected() && event.target.tagName !== "A" && event.target.tagName !== "BUTTON") location.hash = `#/job/${encodeURIComponent(selected())}`; },
    "/": () => $("filter")?.focus(),
    c: () => { if (job() && job().end === null) cancel(job().id); },
    h: () => { if (job()?.state === "PENDING") holdOrRelease(job()); },
    "?": () => $("help").showModal(),
    Escape: () => { location.hash = "#/"; },
  };
  if (places[two]) location.hash = places[two];
  else if (keys[event.key]) keys[event.key]();
  else return;
  if (event.key === "/" ) event.preventDefault();
}

function theme() {
  const next = { "": "light", light: "dark", dark: "" }[document.documentElement.dataset.theme ?? ""];
  remember(next);
}

function remember(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  $("theme").textContent = { "": "Theme: system", light: "Theme: light", dark: "Theme: dark" }[name];
  try { localStorage.setItem("theme", name); } catch { /* a browser that keeps nothing */ }
}

async function begin() {
  let kept = "";
  try { kept = localStorage.getItem("theme") ?? ""; } catch { /* a browser that keeps nothing */ }
  remember(["light", "dark"].includes(kept) ? kept : "");
  $("theme").addEventListener("click", theme);
  $("help-open").addEventListener("click", () => $("help").showModal());
  addEventListener("hashchange", go);
  addEventListener("keydown", key);
  addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  setInterval(() => { if (!document.hidden) page?.tick?.(); }, 1000);
  listen(heard, linkState);
  await go();
  const info = await get("/info");
  $("service").textContent = `${info.cluster} · ${info.policy} · ${info.executor}`;
}

begin().catch((error) => notice(error.message));
