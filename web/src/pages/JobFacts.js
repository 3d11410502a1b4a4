// What a job is: its declaration, its costs, and the jobs, flow and schedule that it belongs to.
import { html } from "../lib/html.js";
import { at, jobsAt } from "../lib/place.js";
import { duration, json, money, tail, term } from "../lib/words.js";
import { Panel } from "../components/Panel.js";
import { Ago, At } from "../components/Time.js";

const PRIORITIES = /** @type {Record<number, string>} */ ({ 0: "critical", 3: "high", 5: "normal", 8: "low" });

/** @param {{facts: [string, any][]}} props those without a value are left out */
export function FactList({ facts }) {
  return html`<dl class="facts">
    ${facts
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(
        ([name, value]) =>
          html`<dt>${name}</dt>
            <dd>${value}</dd>`,
      )}
  </dl>`;
}

/** @param {{job: import("../api.d.ts").JobDetail}} props */
export function Facts({ job }) {
  const spent = Object.entries(job.spent);
  const costs = Object.entries(job.costs);
  return html`<${Panel} title="Facts">
    <div class="pad">
      <${FactList}
        facts=${[
          [
            "Queue",
            html`<a class="link said" href=${at("queues", job.queue)}>${job.queue}</a>, priority
              ${PRIORITIES[job.priority] ?? ""} ${job.priority}`,
          ],
          [
            "Tenant",
            job.tenant && html`<a class="link said" href=${jobsAt(term("tenant", job.tenant))}>${job.tenant}</a>`,
          ],
          [
            "Tags",
            job.tags.length
              ? html`<span class="row wrap"
                  >${job.tags.map((each) => html`<a class="tag said" href=${jobsAt(term("tag", each))}>${each}</a>`)}</span
                >`
              : null,
          ],
          ["Needs", job.needs.join(", ")],
          [
            "Unique",
            job.unique &&
              html`<a class="link mono small said" href=${jobsAt(term("unique", job.unique))}>${job.unique}</a>`,
          ],
          [
            "Limits",
            job.limits.length
              ? html`<span class="row wrap"
                  >${job.limits.map((each) => html`<a class="link mono small said" href=${at("limits", each)}>${each}</a>`)}</span
                >`
              : null,
          ],
          [
            "Breaker",
            job.breaker && html`<a class="link mono small said" href=${at("limits", job.breaker)}>${job.breaker}</a>`,
          ],
          ["Costs", costs.length ? costs.map(([unit, n]) => money(n, unit)).join(", ") : null],
          ["Spent", spent.length ? spent.map(([unit, n]) => money(n, unit)).join(", ") : null],
          ["Timeout", job.timeout_s === null ? null : duration(job.timeout_s * 1_000)],
          ["Held", job.held ? `${job.held} times` : null],
          ["Leases lost", job.lost || null],
          ["Enqueued", html`<${Ago} iso=${job.enqueued_at} />, <${At} iso=${job.enqueued_at} />`],
          ["Ended", job.finished_at && html`<${Ago} iso=${job.finished_at} />, <${At} iso=${job.finished_at} />`],
          ["Expires", job.expires_at && html`<${Ago} iso=${job.expires_at} />`],
          ["Meta", Object.keys(job.meta).length ? html`<code class="any">${json(job.meta, 0)}</code>` : null],
        ]}
      />
    </div>
  <//>`;
}

/** @param {{job: import("../api.d.ts").JobDetail}} props */
export function Belongs({ job }) {
  const facts = [
    ["Flow", job.flow && html`<a class="link mono small" href=${at("flows", job.flow)}>${tail(job.flow)}</a>`],
    [
      "Waits for",
      job.after.length
        ? html`<span class="row wrap"
            >${job.after.slice(0, 8).map((each) => html`<a class="link mono small" href=${at("jobs", each)}>${tail(each)}</a>`)}${job.after.length > 8 && html`<span>and ${job.after.length - 8} more</span>`}</span
          >`
        : null,
    ],
    ["Schedule", job.schedule && html`<a class="link said" href=${at("schedules", job.schedule)}>${job.schedule}</a>`],
    ["Tick", job.tick && html`<${At} iso=${job.tick} />`],
    [
      "Made of",
      job.rerun_of && html`<a class="link mono small" href=${at("jobs", job.rerun_of)}>${tail(job.rerun_of)}</a>`,
    ],
    [
      "Worker",
      job.session &&
        html`<a
          class="link mono small said"
          href=${at(job.session.startsWith("agent:") ? "agents" : "workers", job.session)}
          >${job.session}</a
        >`,
    ],
  ];
  if (!facts.some(([, value]) => value)) return null;
  return html`<${Panel} title="Where it belongs"
    ><div class="pad"><${FactList} facts=${facts} /></div
  ><//>`;
}
