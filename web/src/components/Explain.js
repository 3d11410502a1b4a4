// Why a job is not running: the most decisive reason first, each with its "until" and the way to what holds it.
import { html } from "../lib/html.js";
import { at } from "../lib/place.js";
import { useData } from "../lib/answers.js";
import { part } from "../lib/api.js";
import { Copy } from "./Copy.js";
import { shown } from "./Odd.js";
import { Panel } from "./Panel.js";
import { StateBadge } from "./StateBadge.js";
import { Ago, At } from "./Time.js";

const TITLES = /** @type {Record<string, string>} */ ({
  running: "What it does",
  succeeded: "What became of it",
  cancelled: "What became of it",
  dead: "Why it died",
});
const WARN = new Set([
  "held",
  "slow",
  "concurrency",
  "rate",
  "budget",
  "spent",
  "breaker_open",
  "breaker_half_open",
  "breaker_probe",
  "paused",
  "never_fits",
  "no_workers",
  "unknown_task",
  "worker_lost",
  "code",
  "capability",
  "unserved_queue",
]);

/** @param {{id: string, state: string}} props */
export function Explain({ id, state }) {
  const entry = useData(`/jobs/${part(id)}/explain`);
  const text = entry.value.value?.text ?? "";
  return html`<${Panel}
    class="why-p"
    title=${TITLES[state] ?? "Why it is not running"}
    end=${html`<${Copy} text=${text} what="The explanation" />`}
  >
    <div class="pad">
      ${shown(
        entry,
        ({ reasons }) =>
          html`<ul class="why">
            ${reasons.map((/** @type {any} */ each) => html`<${Reason} reason=${each} state=${state} />`)}
          </ul>`,
      )}
    </div>
  <//>`;
}

/** @param {{reason: any, state: string}} props */
function Reason({ reason, state }) {
  const text = reason.text[0].toUpperCase() + reason.text.slice(1);
  const href = hrefOf(reason);
  return html`<li>
    <${StateBadge} state=${WARN.has(reason.code) || reason.code.endsWith("paused") ? "warn" : state} word="" />
    <div>
      <span class="said">${text}${/[.!?]$/.test(text) ? "" : "."}</span>
      ${href && html` <a class="link" href=${href}>Open it</a>`}
      ${reason.until && html`<span class="until">until <${At} iso=${reason.until} />, <${Ago} iso=${reason.until} /></span>`}
    </div>
  </li>`;
}

/** @param {any} reason */
function hrefOf({ code, data }) {
  const key = data.key ?? data.limit ?? data.breaker;
  if (typeof key === "string" && key.startsWith("queue:")) return at("queues", key.slice(6));
  if (typeof key === "string") return at("limits", key.replace(/^(limit|breaker):/, ""));
  if (code === "approval") return at("approvals");
  if (code === "no_workers") return at("workers");
  return data.parent ? at("jobs", data.parent) : null;
}
