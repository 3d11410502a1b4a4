// Gathers what needs a person, the worst first: what is open, what died anew, what is late, paused, nearly spent, or asks.
import { useData } from "../lib/answers.js";

const SAID_ELSE = new Set(["breaker_open", "dead_letters", "budget"]); // each has a sentence of its own here

/** @returns {import("../components/Needs.js").Need[]} */
export function useNeeds() {
  const breakers = useData("/breakers", { limit: 100 }, { everyMs: 5_000 }).value.value?.breakers ?? [];
  const causes =
    useData("/dead/causes", { status: ["open", "regressed"], limit: 50 }, { everyMs: 5_000 }).value.value?.causes ?? [];
  const limits = useData("/limits", {}, { everyMs: 5_000 }).value.value?.limits ?? [];
  const workers = useData("/workers", {}, { everyMs: 5_000 }).value.value?.workers ?? [];
  const approvals = useData("/approvals", { limit: 100 }, { everyMs: 5_000 }).value.value?.approvals ?? [];
  const queues = useData("/queues").value.value?.queues ?? [];
  const alerts = useData("/alerts", {}, { everyMs: 5_000 }).value.value?.alerts ?? [];
  /** @type {import("../components/Needs.js").Need[]} */
  const needs = [];
  for (const each of breakers)
    if (each.state !== "closed") needs.push({ kind: "breaker", key: each.breaker, value: each });
  const named = causes.filter((/** @type {any} */ each) => each.count);
  if (named.length) needs.push({ kind: "causes", key: "causes", value: named });
  for (const each of alerts)
    if (!SAID_ELSE.has(each.rule) && each.state === "firing" && !each.silenced_until)
      needs.push({ kind: "alert", key: each.alert, value: each });
  for (const each of queues) if (each.paused) needs.push({ kind: "paused", key: each.queue, value: each });
  for (const each of limits)
    if (each.budget && each.budget.cap && each.budget.spent / each.budget.cap >= 0.8)
      needs.push({ kind: "budget", key: each.key, value: each });
  for (const each of workers)
    if (each.silent_s !== null || each.stuck) needs.push({ kind: "worker", key: each.session, value: each });
  if (approvals.length) needs.push({ kind: "approvals", key: "approvals", value: approvals });
  return needs;
}
