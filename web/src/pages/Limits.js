// What holds jobs back, until when, and who decides? Breakers, budgets, pauses, then every limit.
import { html } from "../lib/html.js";
import { part } from "../lib/api.js";
import { useData } from "../lib/answers.js";
import { at } from "../lib/place.js";
import { bareKey, count, cut, duration, figure, money, percent, some } from "../lib/words.js";
import { Action, Locked } from "../components/Action.js";
import { Meter } from "../components/Meter.js";
import { Nothing, shown } from "../components/Odd.js";
import { Panel } from "../components/Panel.js";
import { RecordTable } from "../components/RecordTable.js";
import { useHeading } from "../components/Shell.js";
import { StateBadge } from "../components/StateBadge.js";
import { Ago } from "../components/Time.js";
import { askReason } from "../dialogs/AskReason.js";

/** @typedef {import("../api.d.ts").LimitRecord} Limit */
/** @typedef {import("../api.d.ts").BreakerRecord} Breaker */

/** @param {{name?: string | null}} props the key that is looked for */
export function Limits({ name = null }) {
  const breakers = useData("/breakers", { limit: 100 }, { everyMs: 2_000 });
  const limits = useData("/limits", {}, { everyMs: 2_000 });
  const [open, all] = [
    /** @type {Breaker[]} */ (breakers.value.value?.breakers ?? []),
    /** @type {Limit[]} */ (limits.value.value?.limits ?? []),
  ];
  const stopped = open.filter((each) => each.state !== "closed").length;
  const held = all.filter((each) => each.held_until || each.shut).length;
  const waiting = all.reduce((sum, each) => sum + each.waiting, 0);
  useHeading("Limits & breakers", {
    title: stopped ? `${some(stopped, "breaker")} open · Limits & breakers` : "Limits & breakers",
  });
  return html`<div class="pagebar">
      <p class="grow">
        <b>${some(stopped, "breaker")} open, ${some(held, "limit")} held.</b> ${some(waiting, "ready job")}
        ${waiting === 1 ? "waits" : "wait"} behind a limit.
      </p>
      ${name !== null && html`<a class="b" href=${at("limits")}>Show all</a>`}
    </div>
    <${Locked} what="Changing limits" />
    <div class="cols c2">
      ${shown(breakers, () => html`<${Panel} title="Breakers" n=${open.length}>${named(open, name, (each) => each.breaker).length ? named(open, name, (each) => each.breaker).map((each) => html`<${BreakerBox} key=${each.breaker} breaker=${each} />`) : html`<p class="pad dim">No breaker is declared, or none has this name.</p>`}<//>`)}
      ${shown(limits, () => html`<${Budgets} limits=${named(all, name, keyOf)} />`)}
    </div>
    ${shown(limits, () => html`<${Table} limits=${named(all, name, keyOf).filter((each) => !each.budget)} />`)}`;
}

/** @param {Limit} limit */
const keyOf = (limit) => limit.key;

/** @template T @param {T[]} all @param {string | null} name @param {(each: T) => string} key @returns {T[]} */
const named = (all, name, key) =>
  name === null ? all : all.filter((each) => key(each).includes(name) || name.includes(key(each)));

/** @param {{breaker: Breaker}} props */
function BreakerBox({ breaker }) {
  const { breaker: name, state } = breaker;
  const path = `/breakers/${part(name)}`;
  const reset = () =>
    askReason({
      title: `Reset breaker ${cut(name, 60)}`,
      about: "It closes, and its failures are forgotten. Jobs that wait may start at once.",
      button: "Reset it",
      safe: "Leave it",
      method: "POST",
      path: `${path}/reset`,
      told: () => `Breaker ${name} is closed.`,
    });
  const trip = () =>
    askReason({
      title: `Trip breaker ${cut(name, 60)}`,
      about: "Its jobs wait and spend no attempt.",
      button: "Trip it",
      safe: "Leave it closed",
      fatal: true,
      method: "POST",
      path: `${path}/trip`,
      fields: [{ name: "duration", label: "For", note: "10m; empty: until it is reset" }],
      told: () => `Breaker ${name} is open.`,
    });
  return html`<div class="breaker">
    <div class="line">
      <${StateBadge} state=${state} pill /><b class="mono said any">${name}</b>
      <span class="end row"
        >${state === "closed" ? html`<${Action} tiny label="Trip…" name=${`Trip ${name}`} run=${trip} />` : html`<${Action} tiny label="Reset…" name=${`Reset ${name}`} run=${reset} />`}</span
      >
    </div>
    <p class="mid">${sentence(breaker)}</p>
  </div>`;
}

/** @param {Breaker} breaker */
function sentence({ state, by_hand, open_until, probe_under_way, recent_failures, recent_calls, opened }) {
  const before = opened ? ` It has opened ${some(opened, "time")}.` : "";
  if (state === "open")
    return html`Opened
    ${by_hand ? "by hand" : recent_failures ? `after ${some(recent_failures, "failure")}` : "after failures"}.
    ${open_until ? html`One job is let through as a probe <b><${Ago} iso=${open_until} /></b>.` : "It stays so until it is reset."}${before}`;
  if (state === "half-open")
    return `${probe_under_way ? "The probe is under way." : "The next job that is claimed is its probe."} If it succeeds the breaker closes.${before}`;
  return `Lets all through; ${some(recent_failures, "failure")} lately${recent_calls === null ? "" : ` in ${some(recent_calls, "call")}`}.${before}`;
}

/** @param {{limits: Limit[]}} props */
function Budgets({ limits }) {
  const budgets = limits.filter((each) => each.budget);
  return html`<${Panel}
    title="Budgets"
    n=${budgets.length}
    end=${html`<span class="p1">spent or reserved · marks at 50 and 80 %</span>`}
  >
    ${budgets.length === 0 && html`<p class="pad dim">No budget is declared, or none has this name.</p>`}
    ${budgets.map((each) => {
      const budget = /** @type {NonNullable<Limit["budget"]>} */ (each.budget);
      const used = budget.cap ? budget.spent / budget.cap : 0;
      return html`<div class="budget" key=${each.key}>
        <div class="line">
          <b class="mono said any">${bareKey(each.key)}</b
          ><span class=${used >= 0.8 ? "warn-t" : "mid"}>${money(budget.spent, budget.unit)} spent</span>
          <span class="end"
            ><b>${percent(used)}</b> <span class="mid">of ${money(budget.cap, budget.unit)} a ${budget.per}</span></span
          >
        </div>
        <${Meter} tall parts=${[[used >= 0.8 ? "warn" : "run", used]]} marks=${[0.5, 0.8]} />
        <div class="line">
          <p class="mid small">
            ${money(budget.left, budget.unit)} left; the ${budget.per} ends
            <${Ago}
              iso=${budget.ends_at}
            />.${each.waiting ? ` ${some(each.waiting, "job")} ${each.waiting === 1 ? "waits" : "wait"}.` : ""}
          </p>
          <span class="end"><${SetAction} limit=${each} /></span>
        </div>
      </div>`;
    })}
  <//>`;
}

/** @param {{limits: Limit[]}} props */
function Table({ limits }) {
  const sorted = [...limits].sort(
    (a, b) =>
      b.waiting - a.waiting ||
      Number(Boolean(b.held_until)) - Number(Boolean(a.held_until)) ||
      a.key.localeCompare(b.key),
  );
  if (!sorted.length)
    return html`<section class="panel">
      <${Nothing} title="No limit stops a job">Limits are declared with tasks, or set by hand.<//>
    </section>`;
  const columns = [
    {
      head: "Key",
      name: true,
      cell: (/** @type {Limit} */ each) =>
        html`<span class="mono said">${cut(bareKey(each.key), 80)}</span
          >${each.paused && html` <${StateBadge} state="paused" pill />`}`,
    },
    { head: "Rule", rank: "p1", cell: (/** @type {Limit} */ each) => html`<span class="mid">${rule(each)}</span>` },
    {
      head: "Used",
      rank: "p2",
      cell: (/** @type {Limit} */ each) =>
        html`<${Meter} parts=${[[each.held_until || each.shut ? "warn" : "run", level(each)]]} />`,
    },
    {
      head: "Level",
      kind: "num",
      cell: (/** @type {Limit} */ each) =>
        each.held_until
          ? html`<span class="warn-t">held</span>`
          : each.shut
            ? html`<span class="warn-t">no money left</span>`
            : each.concurrency
              ? `${count(each.used)}/${count(each.concurrency)}`
              : each.free === null
                ? "–"
                : `${figure(each.free)} left`,
    },
    {
      head: "Pace",
      kind: "num",
      rank: "p3",
      cell: (/** @type {Limit} */ each) =>
        each.pace ? `${Math.round(each.pace.percent)} %` : html`<span class="dim">–</span>`,
    },
    {
      head: "Waiting",
      kind: "num",
      cell: (/** @type {Limit} */ each) =>
        html`<span class=${each.waiting ? "" : "dim"}
          >${count(each.waiting)}${each.all_counted ? "" : " or more"}</span
        >`,
    },
    {
      head: "Opens",
      kind: "num",
      rank: "p1",
      cell: (/** @type {Limit} */ each) =>
        (each.held_until ?? each.shut_until)
          ? html`<${Ago} iso=${each.held_until ?? each.shut_until} />`
          : html`<span class="dim">now</span>`,
    },
    {
      head: "Set by",
      rank: "p3",
      cell: (/** @type {Limit} */ each) =>
        html`<span class=${each.set_by === "code" ? "dim" : ""}>${each.set_by}</span>`,
    },
    { head: "", kind: "go", rank: "p1", cell: (/** @type {Limit} */ each) => html`<${SetAction} limit=${each} />` },
  ];
  return html`<${Panel}
    title="Limits"
    n=${`${count(sorted.length)} ${sorted.length === 1 ? "key" : "keys"}`}
    end="those that stop jobs first"
    ><${RecordTable} label="Limits" rows=${sorted} columns=${columns} keyOf=${keyOf}
  /><//>`;
}

/** @param {Limit} limit */
function rule(limit) {
  const parts = [];
  if (limit.per_second)
    parts.push(
      limit.per_second >= 1
        ? `${figure(limit.per_second)} ${limit.unit} a second`
        : `one ${limit.unit} every ${duration(1_000 / limit.per_second)}`,
    );
  if (limit.concurrency !== null) parts.push(`${count(limit.concurrency)} at once`);
  if (limit.depth !== null) parts.push(`${count(limit.depth)} may wait`);
  return parts.join(" · ") || "–";
}

/** @param {Limit} limit */
function level(limit) {
  if (limit.held_until || limit.shut) return 1;
  if (limit.concurrency) return limit.used / limit.concurrency;
  return limit.burst && limit.tokens !== null ? Math.max(0, 1 - limit.tokens / limit.burst) : 0;
}

/** @param {{limit: Limit}} props */
function SetAction({ limit }) {
  const path = `/limits/${part(limit.key)}`;
  const set = () =>
    askReason({
      title: `Set limit ${cut(limit.key, 60)}`,
      about: "What is given wins over the code's declaration until it is cleared.",
      button: "Set it",
      safe: "Leave it",
      method: "PUT",
      path,
      fields: [
        { name: "rate", label: "Rate", note: "60/m, 10/s; empty: as it is" },
        { name: "concurrency", label: "At once", note: "empty: as it is", number: true },
      ],
      told: () => `Limit ${limit.key} is set.`,
    });
  const clear = () =>
    askReason({
      title: `Clear limit ${cut(limit.key, 60)}`,
      about: "The code's declaration rules again.",
      button: "Clear it",
      safe: "Leave it",
      method: "DELETE",
      path,
      told: () => `Limit ${limit.key} is cleared.`,
    });
  return html`<span class="row"
    >${!limit.budget && html`<${Action} tiny label="Set…" name=${`Set ${limit.key}`} run=${set} />`}${limit.set_by === "operator" && html`<${Action} tiny label="Clear…" name=${`Clear ${limit.key}`} run=${clear} />`}</span
  >`;
}
