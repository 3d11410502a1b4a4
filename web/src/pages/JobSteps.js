// The durable steps of a job: what is recorded and will not be paid again.
import { html } from "../lib/html.js";
import { cut, json } from "../lib/words.js";
import { Panel } from "../components/Panel.js";
import { StateBadge } from "../components/StateBadge.js";
import { Ago } from "../components/Time.js";

/** @param {{job: import("../api.d.ts").JobDetail}} props */
export function Steps({ job }) {
  return html`<${Panel}
    title="Steps"
    n=${`${job.steps.length} recorded`}
    end="the next attempt begins after them and pays nothing twice"
  >
    <ul class="steps">
      ${job.steps.map(
        (each) =>
          html`<li key=${each.name}>
            <${StateBadge} state=${each.error ? "dead" : isOpen(each) ? "scheduled" : "succeeded"} word="" />
            <span class="nm said">${each.name}</span>
            <span class="end said p1"
              >${each.error ? html`<span class="dead-t">${cut(each.error, 80)}</span>` : each.question ? cut(each.question, 80) : each.value === null || each.value === undefined ? "" : cut(json(each.value, 0), 60)}</span
            >
            <span class="end"
              >${isOpen(each) ? html`${each.event ? `waits for ${each.event}` : each.kind}${each.until && html`, <${Ago} iso=${each.until} />`}` : each.over ? "time was over" : "recorded"}</span
            >
          </li>`,
      )}
    </ul>
  <//>`;

  /** @param {import("../api.d.ts").StepRecord} step */
  function isOpen(step) {
    return job.state === "scheduled" && step.event !== null && job.waits_for.includes(step.event);
  }
}
