// Decides what a key does: single keys belong to the page, unless a person writes or has switched them off.
import { place } from "./place.js";
import { at, go } from "./place.js";
import { pauseLive } from "./live.js";
import { turnTheme } from "./theme.js";
import { opened } from "./overlays.js";

const PLACES = /** @type {Record<string, string>} */ ({
  o: "overview",
  q: "queues",
  j: "jobs",
  f: "flows",
  d: "dead",
  s: "schedules",
  t: "tasks",
  l: "limits",
  a: "approvals",
  w: "workers",
});

/** What the page that is shown does with keys. @type {{current: Record<string, (event: KeyboardEvent) => void>}} */
export const own = { current: {} };

const OFF = "limpet.keys";
export const keysAreOn = () => stored() !== "off";
/** @param {boolean} on */
export function switchKeys(on) {
  try {
    localStorage.setItem(OFF, on ? "on" : "off");
  } catch {
    // A private window may have no storage: they stay as they are.
  }
}
function stored() {
  try {
    return localStorage.getItem(OFF);
  } catch {
    return null;
  }
}

let going = false;

/** @param {KeyboardEvent} event */
function pressed(event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    opened.value = "palette";
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || opened.value || document.querySelector("dialog[open]")) return;
  const target = /** @type {HTMLElement} */ (event.target);
  if (target.matches("input:not([type=checkbox]):not([type=radio]), textarea, select")) return;
  if (event.key === "Escape") return own.current.Escape?.(event);
  if (!keysAreOn()) return;
  if (going) {
    going = false;
    const page = PLACES[event.key];
    if (page) return go(at(page));
  }
  const act = own.current[event.key] ?? EVERYWHERE[event.key];
  if (act) {
    if (event.key !== "Enter") event.preventDefault();
    act(event);
  }
}

/** @type {Record<string, (event: KeyboardEvent) => void>} */
const EVERYWHERE = {
  g: () => (going = true),
  "?": () => (opened.value = "help"),
  "/": () => {
    const field = /** @type {HTMLElement | null} */ (document.querySelector("[data-query]"));
    if (field) field.focus();
    else if (place.value.page !== "jobs") opened.value = "palette";
  },
  r: pauseLive,
  t: turnTheme,
};

export const listenToKeys = () => document.addEventListener("keydown", pressed);
