// The service's API, and its stream of changes.

import { notice } from "./dom.js";

const BASE = "api/v1";  // below the page, whose place is a secret of this service

/** The JSON at an address; raises an Error with the service's sentence. */
export async function get(path, options = {}) {
  const answer = await fetch(BASE + path, options);
  return read(answer);
}

export function post(path, body) {
  return get(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
}

async function read(answer) {
  let form = null;
  try {
    form = await answer.json();
  } catch {
    form = {};
  }
  if (answer.status === 401) location.assign("/");
  if (!answer.ok) throw new Error(form.error || `the service answered ${answer.status}`);
  return form;
}

/** Bytes of a job's output from `offset` on, and where they stand. */
export async function log(id, stream, offset, wait, signal) {
  const query = new URLSearchParams({ stream, offset, wait });
  const answer = await fetch(`${BASE}/jobs/${encodeURIComponent(id)}/log?${query}`, { signal });
  if (!answer.ok) return read(answer);
  const number = (name) => Number(answer.headers.get(`dovetail-${name}`));
  return { bytes: await answer.arrayBuffer(), offset: number("offset"), length: number("length"),
    ended: number("ended") === 1 };
}

/** Ask for something to be done to jobs; tells what could not be. */
export async function act(action, ids) {
  try {
    await post(`/${action}`, { jobs: ids.join(",") });
    return true;
  } catch (error) {
    notice(error.message);
    return false;
  }
}

/** Hear of changes; `state` hears "live", "lost". The browser connects again by itself. */
export function listen(changed, state) {
  const open = () => {
    const source = new EventSource(`${BASE}/events`);
    source.addEventListener("change", (event) => { state("live"); changed(JSON.parse(event.data)); });
    source.addEventListener("open", () => state("live"));
    source.addEventListener("error", () => state("lost"));
    // A page that is left may be kept for "back", with its connection; of six that a browser opens to a host.
    addEventListener("pagehide", () => source.close(), { once: true });
  };
  addEventListener("pageshow", (event) => { if (event.persisted) open(); });
  open();
}
