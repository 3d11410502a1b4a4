// The one store of what the server has said: read once for all that show it, and again when something has happened.
import { batch, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { ask, Problem, urlOf } from "./api.js";
import { heard, liveness } from "./live.js";

const IDLE_MS = 15_000; // even when nothing is heard: schedules tick, leases end, other faces act
const KEPT = 40; // answers of pages that were left, so that back shows something at once

/**
 * @typedef {object} Entry
 * @property {string} path
 * @property {Record<string, any>} query
 * @property {import("@preact/signals").Signal<any>} value
 * @property {import("@preact/signals").Signal<Problem | null>} error
 * @property {number} users
 * @property {number} everyMs
 * @property {number} askedAt
 * @property {number} heardAt
 * @property {boolean} busy
 * @property {boolean} again
 */

/** @type {Map<string, Entry>} */
const entries = new Map();

/**
 * What the API answers at a path, kept up to date while it is shown; `value` is undefined until the first answer.
 * @param {string | null} path null: nothing is asked
 * @param {Record<string, any>} [query]
 * @param {{everyMs?: number}} [how]
 * @returns {Entry}
 */
export function useData(path, query = {}, { everyMs = 2_000 } = {}) {
  const key = path === null ? "" : urlOf(path, query);
  const entry = useMemo(() => entryOf(key, path ?? "", query), [key]);
  entry.everyMs = Math.min(entry.everyMs, everyMs);
  useEffect(() => {
    if (!key) return;
    entries.set(key, entry);
    entry.users += 1;
    if (isDue(entry, true)) refresh(entry);
    return () => {
      entry.users -= 1;
      forgetOld();
    };
  }, [entry]);
  return entry;
}

/** Ask again at once for everything on the page: something was changed here. */
export async function refreshAll() {
  await Promise.all([...entries.values()].filter((each) => each.users).map((each) => refresh(each)));
}

/** Nothing of another caller stays. */
export const forgetAll = () => entries.clear();

export function startRefreshing() {
  setInterval(() => {
    if (document.hidden || liveness.value !== "live") return;
    for (const entry of entries.values()) if (entry.users && isDue(entry, false)) refresh(entry);
  }, 250);
}

/** @param {string} key @param {string} path @param {Record<string, any>} query @returns {Entry} */
function entryOf(key, path, query) {
  const known = entries.get(key);
  if (known) return known;
  const value = signal(undefined);
  const entry = {
    path,
    query,
    value,
    error: signal(null),
    users: 0,
    everyMs: Infinity,
    askedAt: 0,
    heardAt: -1,
    busy: false,
    again: false,
  };
  if (key) entries.set(key, entry); // at once: all that show it in one look share it
  return entry;
}

/** @param {Entry} entry @param {boolean} first */
function isDue(entry, first) {
  const age = Date.now() - entry.askedAt;
  if (first && entry.value.peek() === undefined) return true;
  if (entry.heardAt !== heard.peek() && age >= entry.everyMs) return true;
  return age >= Math.max(IDLE_MS, entry.everyMs);
}

/** @param {Entry} entry */
async function refresh(entry) {
  entry.again = entry.busy; // what is on its way may be older than what has just been changed
  if (entry.busy) return;
  entry.busy = true;
  entry.askedAt = Date.now();
  entry.heardAt = heard.peek();
  try {
    const value = await ask("GET", entry.path, { query: entry.query });
    batch(() => {
      entry.value.value = value;
      entry.error.value = null;
    });
  } catch (error) {
    if (error instanceof Problem) entry.error.value = error;
    else throw error;
  } finally {
    entry.busy = false;
    if (entry.again) await refresh(entry);
  }
}

function forgetOld() {
  const unused = [...entries].filter(([, entry]) => !entry.users);
  for (const [key] of unused.slice(0, Math.max(0, unused.length - KEPT))) entries.delete(key);
}
