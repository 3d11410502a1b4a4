// Lays the attempts of a job out on one line: true to scale, but for gaps that would leave nothing else to see.
import { duration, ms as at } from "./words.js";

/**
 * @typedef {object} Part
 * @property {"wait" | "run" | "gap" | "now" | "next"} kind
 * @property {number} x
 * @property {number} w
 * @property {number} ms
 * @property {number} [number]
 * @property {string} [at]
 * @property {"bad" | "good" | ""} [end]
 * @property {boolean} [cut]
 * @property {boolean} [held]
 */

const WIDTH = 860;
const LEAST = 26;
const GAP_RUNS = 3; // a gap longer than so many times the longest run is cut
const NEXT = 74;

/** @param {import("../api.d.ts").JobDetail} job @param {number} nowMs @returns {{parts: Part[], width: number, said: string} | null} */
export function layout(job, nowMs) {
  const runs = runsOf(job, nowMs);
  if (!runs.length) return null;
  const longest = Math.max(...runs.map((each) => each.end - each.begin), 1);
  /** @type {Part[]} */
  const parts = [];
  let from = Math.min(at(job.enqueued_at), runs[0].begin);
  for (const [i, each] of runs.entries()) {
    if (each.begin > from)
      parts.push({
        kind: i ? "gap" : "wait",
        x: 0,
        w: 0,
        ms: each.begin - from,
        cut: each.begin - from > GAP_RUNS * longest,
        held: i > 0 && HELD.has(runs[i - 1].outcome),
      });
    parts.push({
      kind: "run",
      x: 0,
      w: 0,
      ms: each.end - each.begin,
      number: each.number,
      at: new Date(each.begin).toISOString(),
      end: endOf(each.outcome),
    });
    from = each.end;
  }
  const waits = job.state === "scheduled" || job.state === "ready";
  if (waits && nowMs > from)
    parts.push({ kind: "gap", x: 0, w: 0, ms: nowMs - from, cut: nowMs - from > GAP_RUNS * longest });
  return { ...place(parts, longest, waits, job, nowMs), said: said(runs, job) };
}

/** @param {Part[]} parts @param {number} longest @param {boolean} waits @param {import("../api.d.ts").JobDetail} job @param {number} nowMs */
function place(parts, longest, waits, job, nowMs) {
  const shown = (/** @type {Part} */ part) => (part.cut ? GAP_RUNS * longest : part.ms);
  const tail = waits ? NEXT + 40 : 12;
  const whole = parts.reduce((sum, each) => sum + shown(each), 0) || 1;
  const room = Math.max(LEAST * parts.length, WIDTH - tail);
  const free = room - parts.reduce((sum, each) => sum + leastOf(each), 0);
  let x = 0;
  const placed = parts.map((each) => {
    const part = { ...each, x, w: leastOf(each) + Math.max(0, free) * (shown(each) / whole) };
    x += part.w;
    return part;
  });
  if (waits) {
    placed.push({ kind: "now", x, w: 0, ms: 0 });
    const due = job.due_at ? at(job.due_at) - nowMs : 0;
    placed.push({ kind: "next", x: x + 36, w: NEXT, ms: due, number: job.attempt + 1 });
  }
  return { parts: placed, width: x + tail };
}

/** @param {Part} part */
const leastOf = (part) => (part.kind === "wait" ? 8 : part.kind === "gap" ? 64 : 78);

const HELD = new Set(["held", "snoozed", "released"]);
/** @param {string} outcome */
const endOf = (outcome) => (outcome === "succeeded" ? "good" : outcome === "running" || HELD.has(outcome) ? "" : "bad");

/** @param {import("../api.d.ts").JobDetail} job @param {number} nowMs */
function runsOf(job, nowMs) {
  const runs = job.history.map((each) => ({
    number: each.number,
    outcome: each.outcome,
    begin: at(each.started_at),
    end: at(each.finished_at),
  }));
  const last = runs.at(-1)?.begin ?? 0;
  if (job.started_at && at(job.started_at) > last && (job.state === "running" || job.finished_at))
    runs.push({
      number: job.attempt,
      outcome: job.state,
      begin: at(job.started_at),
      end: job.finished_at ? at(job.finished_at) : Math.max(nowMs, at(job.started_at)),
    });
  return runs;
}

/** @param {{number: number, outcome: string, begin: number, end: number}[]} runs @param {import("../api.d.ts").JobDetail} job */
const said = (runs, job) =>
  `${runs.map((each) => `Attempt ${each.number} ${each.outcome} after ${duration(each.end - each.begin)}`).join("; ")}; the job is ${job.state}.`;
