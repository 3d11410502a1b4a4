// Listens to the one stream of events of this tab, and says whether the numbers are live, paused or old.
import { signal } from "@preact/signals";
import { urlOf } from "./api.js";

/** "live" | "paused" | "lost" */
export const liveness = signal("live");
/** Grows with everything that has happened to jobs, as far as the stream tells. */
export const heard = signal(0);
/** When the stream was last known to be there. */
export const heardAt = signal(Date.now());

const EVERY_S = 0.5;
const AGAIN_MS = 2_000;

/** @type {EventSource | null} */
let source = null;
let paused = false;
let again = 0;

export function startLive() {
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  open();
}

export function pauseLive() {
  paused = !paused;
  if (paused) close();
  else open();
}

export function stopLive() {
  close();
}

function open() {
  if (paused || document.hidden || source) return;
  clearTimeout(again);
  source = new EventSource(urlOf("/events", { every: EVERY_S }));
  source.onopen = () => {
    liveness.value = "live";
    tell(); // what happened meanwhile was not heard
  };
  for (const name of ["job", "counts", "gap"]) source.addEventListener(name, tell);
  source.onerror = () => {
    if (!source) return;
    liveness.value = "lost";
    if (source.readyState === EventSource.CLOSED) {
      close();
      liveness.value = "lost";
      again = setTimeout(open, AGAIN_MS);
    }
  };
}

function tell() {
  heardAt.value = Date.now();
  heard.value += 1;
}

function close() {
  clearTimeout(again);
  source?.close();
  source = null;
  if (paused) liveness.value = "paused";
}
