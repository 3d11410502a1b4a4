// What dialogs about jobs share: which jobs are meant, the dry run, and what is said afterwards.
import { useEffect, useState } from "preact/hooks";
import { ask } from "../lib/api.js";
import { refreshAll } from "../lib/answers.js";
import { at, go } from "../lib/place.js";
import { say } from "../lib/toasts.js";
import { count, some } from "../lib/words.js";

/** @typedef {{q?: string, ids?: string[]}} Meant */

/** Above this number a person types it before jobs are removed or stopped. */
export const TYPED_ABOVE = 100;
/** Above this number an operation of the server does it, which can be paused and survives the server's end. */
export const DIRECT_MOST = 500;

/** @type {Record<string, {verb: string, past: string, primary: string, safe: string, fatal: boolean, about: string}>} */
export const VERBS = {
  retry: {
    verb: "Retry",
    past: "retried",
    primary: "primary",
    safe: "Keep as they are",
    fatal: false,
    about: "They keep their ids, get fresh attempts, and obey limits and unique keys. Scheduled ones start now.",
  },
  rerun: {
    verb: "Run again",
    past: "made anew",
    primary: "primary",
    safe: "Keep as they are",
    fatal: false,
    about: "New jobs are made of them, with the same arguments.",
  },
  cancel: {
    verb: "Cancel",
    past: "cancelled, or asked to stop",
    primary: "fatal",
    safe: "Keep them",
    fatal: true,
    about: "Waiting jobs are cancelled with those that wait for them. Running ones are asked to stop.",
  },
  discard: {
    verb: "Discard",
    past: "discarded",
    primary: "fatal",
    safe: "Keep them",
    fatal: true,
    about: "They are removed for good. The audit log keeps who and why.",
  },
};

/** @param {Meant} meant */
export const body = (meant) => (meant.ids ? { ids: meant.ids } : { q: meant.q ?? "" });

/**
 * What an action would do, asked again when its options change.
 * @param {string} verb @param {Meant} meant @param {Record<string, any>} [options] @param {string} [raw] a part of the body as it is written
 */
export function useDryRun(verb, meant, options = {}, raw = "") {
  const [found, set] = useState(/** @type {{report: any, error: any}} */ ({ report: null, error: null }));
  useEffect(() => {
    const stop = new AbortController();
    const timer = setTimeout(() => {
      const text = spliced({ ...body(meant), ...options, dry_run: true }, raw);
      ask("POST", `/jobs/${verb}`, { raw: text, signal: stop.signal }).then(
        (report) => set({ report, error: null }),
        (error) => stop.signal.aborted || set({ report: null, error }),
      );
    }, 150);
    return () => (clearTimeout(timer), stop.abort());
  }, [verb, JSON.stringify(options), raw]);
  return found;
}

/** A body with a part that is written as it stands, so that large numbers in it stay exact. @param {any} value @param {string} raw */
export const spliced = (value, raw) => (raw ? `${JSON.stringify(value).slice(0, -1)},${raw}}` : JSON.stringify(value));

/** Do it, and say what the server did. @param {string} verb @param {Meant} meant @param {Record<string, any>} options @param {string} [raw] */
export async function act(verb, meant, options, raw = "") {
  const report = await ask("POST", `/jobs/${verb}`, { raw: spliced({ ...body(meant), ...options }, raw) });
  const refused = Object.entries(report.answers).filter(([answer]) => !DONE.has(answer));
  const others = refused
    .map(([answer, n]) => `${count(/** @type {number} */ (n))} ${answer.replaceAll("_", " ")}`)
    .join(", ");
  say(
    refused.length && !report.done ? "warn" : "succeeded",
    `${some(report.done, "job")} ${VERBS[verb].past}${others ? `; not: ${others}` : ""}.`,
    shownAfter(report),
  );
  await refreshAll();
  return report;
}

const DONE = new Set(["retried", "cancelled", "cancelling", "rerun", "discarded"]);

/** @param {any} report */
function shownAfter(report) {
  const made = Object.values(report.made ?? {});
  if (made.length === 1) return { label: "Open it", run: () => go(at("jobs", /** @type {string} */ (made[0]))) };
  const holders = Object.values(report.holders ?? {});
  return holders.length === 1
    ? { label: "Open the holder", run: () => go(at("jobs", /** @type {string} */ (holders[0]))) }
    : undefined;
}

/** Let the server do it slowly; the page of the operation shows how far it is. @param {any} asked @param {string} [raw] */
export async function operate(asked, raw = "") {
  const made = await ask("POST", "/operations", { raw: spliced(asked, raw) });
  say("succeeded", `The operation is under way: ${some(made.matched, "job")}.`, {
    label: "Watch it",
    run: () => go(at("operations", made.id)),
  });
  await refreshAll();
  return made;
}
