// One sentence for each trouble: what, how much, since when, and one button; the worst first.
import { html } from "../lib/html.js";
import { at } from "../lib/place.js";
import { count, cut, duration, money, percent, some } from "../lib/words.js";
import { Panel } from "./Panel.js";
import { StateBadge } from "./StateBadge.js";
import { Ago } from "./Time.js";

/** @typedef {{kind: string, key: string, value: any}} Need */

/** @param {{found: Need[]}} props */
export function Needs({ found }) {
  return html`<${Panel}
    title="Needs a person"
    n=${found.length || ""}
    end=${found.length ? html`<span class="p1">worst first</span>` : ""}
  >
    ${
      found.length
        ? html`<ul class="needs">
            ${found.map((each) => html`<${Line} key=${each.kind + each.key} ...${SAID[each.kind](each.value)} />`)}
          </ul>`
        : html`<p class="pad row"><${StateBadge} state="succeeded" word="" />Nothing needs you.</p>`
    }
  <//>`;
}

/** @param {{state: string, text: any, since?: string | null, label: string, href: string}} props */
function Line({ state, text, since, label, href }) {
  return html`<li>
    <${StateBadge} state=${state} word="" />
    <p>${text}</p>
    <span class="when">${since && html`<${Ago} iso=${since} />`}</span>
    <a class="b tiny" href=${href}>${label}</a>
  </li>`;
}

/** @type {Record<string, (value: any) => {state: string, text: any, since?: string | null, label: string, href: string}>} */
const SAID = {
  breaker: (each) => ({
    state: each.state,
    text: html`Breaker <b class="mono said">${each.breaker}</b> is
      ${each.state}${each.by_hand ? ", by hand" : ""}${each.state === "half-open" ? ": the next job that is claimed is its probe" : each.open_until ? html`: a probe goes <${Ago} iso=${each.open_until} />` : each.state === "open" ? " until it is reset" : ""}`,
    label: "Open breaker",
    href: at("limits", each.breaker),
  }),
  causes: (causes) => {
    const [fresh, back] = ["open", "regressed"].map(
      (status) => causes.filter((/** @type {any} */ each) => each.status === status).length,
    );
    const heads = [fresh && `${some(fresh, "open cause")}`, back && `${count(back)} regressed`]
      .filter(Boolean)
      .join(", ");
    return {
      state: "dead",
      text: html`<b>${heads}</b> in the dead letters:
        ${causes.slice(0, 2).map((/** @type {any} */ each, /** @type {number} */ i) => html`${i ? ", " : ""}${some(each.count, "job")} of <span class="mono said">${cut(each.task, 60)}</span>`)}${causes.length > 2 ? ` and ${causes.length - 2} more` : ""}`,
      since: causes
        .map((/** @type {any} */ each) => each.last_at)
        .sort()
        .at(-1),
      label: "Open causes",
      href: at("dead"),
    };
  },
  alert: (each) => ({
    state: "warn",
    text: html`<span class="said">${sentence(each.text)}</span>`,
    since: each.fired_at,
    label: "Look",
    href: each.queue ? at("queues", each.queue) : at("overview"),
  }),
  paused: (each) => ({
    state: "paused",
    text: html`Queue <b class="said">${each.queue}</b> is paused by
      <span class="said">${each.paused.by}</span
      >${each.paused.reason ? html`: <span class="said">${cut(each.paused.reason)}</span>` : ""};
      ${some(each.ready, "job")} ${each.ready === 1 ? "waits" : "wait"}`,
    since: each.paused.at,
    label: "Open queue",
    href: at("queues", each.queue),
  }),
  budget: (each) => ({
    state: "warn",
    text: html`Budget <b class="mono said">${each.key}</b> is at ${percent(each.budget.spent / each.budget.cap)}:
      ${money(each.budget.spent, each.budget.unit)} of ${money(each.budget.cap, each.budget.unit)} a ${each.budget.per}
      is spent or reserved`,
    label: "Open budget",
    href: at("limits", each.key),
  }),
  worker: (each) => ({
    state: "silent",
    text: html`Worker
      <b class="mono said">${each.session}</b>
      ${each.silent_s === null ? `has ${some(each.stuck, "place")} that do not come back` : `is silent for ${duration(each.silent_s * 1_000)}`};
      ${some(each.running, "job")} ${each.running === 1 ? "runs" : "run"} there`,
    label: "Open workers",
    href: at("workers"),
  }),
  approvals: (approvals) => ({
    state: "asks",
    text: html`<b>${some(approvals.length, "job")}</b> ${approvals.length === 1 ? "asks" : "ask"} for approval: “<span
        class="said"
        >${cut(approvals[0].question, 120)}</span
      >”`,
    since: approvals.map((/** @type {any} */ each) => each.enqueued_at).sort()[0],
    label: "Decide",
    href: at("approvals"),
  }),
};

/** @param {string} text */
const sentence = (text) => text[0].toUpperCase() + text.slice(1);
