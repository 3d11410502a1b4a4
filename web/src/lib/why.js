// Says in a few words why a job is where it is: the line of a table, where `explain` would be too long.
import { ms, shortError } from "./words.js";

/** @typedef {import("../api.d.ts").JobRecord} Job */

/**
 * How long a job has waited and run, as far as its last attempt tells.
 * @param {Job} job @param {number} nowMs
 * @returns {{waited: number | null, ran: number | null}}
 */
export function times(job, nowMs) {
  const due = Math.max(ms(job.enqueued_at), job.due_at ? ms(job.due_at) : 0);
  const [began, ended] = [job.started_at ? ms(job.started_at) : null, job.finished_at ? ms(job.finished_at) : null];
  if (job.state === "ready") return { waited: Math.max(0, nowMs - due), ran: null };
  if (job.state === "running" && began)
    return { waited: began >= due ? began - due : null, ran: Math.max(0, nowMs - began) };
  if (began && ended) return { waited: began >= due ? began - due : null, ran: Math.max(0, ended - began) };
  return { waited: null, ran: null };
}

/** @param {Job} job @returns {{error: string | null, text: string, due: string | null}} */
export function whyOf(job) {
  const reason = job.reason ?? "";
  if (job.state === "dead") return { error: shortError(job.error), text: reason, due: null };
  if (job.state === "cancelled") return { error: null, text: reason, due: null };
  if (job.state === "succeeded") return { error: null, text: "", due: null };
  if (job.state === "blocked") return { error: null, text: "waits for other jobs", due: null };
  if (job.waits_for.length) return { error: null, text: waitsFor(job.waits_for), due: null };
  if (job.state === "scheduled") return { error: null, text: shortError(job.error), due: job.due_at };
  if (job.cancel_requested) return { error: null, text: "was asked to stop", due: null };
  if (job.state === "running") return { error: null, text: progressOf(job), due: null };
  return { error: null, text: job.error ? `after ${shortError(job.error)}` : "", due: null };
}

/** @param {Job} job */
function progressOf(job) {
  if (!job.progress) return job.attempt > 1 ? `attempt ${job.attempt}` : "";
  const { done, total, message } = job.progress;
  return `${total ? `${done} of ${total}` : done}${message ? ` · ${message}` : ""}`;
}

/** @param {string[]} events */
export const waitsFor = (events) =>
  events.every((each) => each.startsWith("approval:")) ? "asks a person" : `waits for ${events.join(", ")}`;
