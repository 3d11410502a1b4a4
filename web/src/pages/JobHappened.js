// What happened to a job, the newest first: what people did to it, how its attempts ended, what stood in its way.
import { html } from "../lib/html.js";
import { part } from "../lib/api.js";
import { useData } from "../lib/answers.js";
import { cut, shortError } from "../lib/words.js";
import { Panel } from "../components/Panel.js";
import { At } from "../components/Time.js";

/** @param {{job: import("../api.d.ts").JobDetail}} props */
export function Happened({ job }) {
  const logs = useData(`/jobs/${part(job.id)}/events`, {}, { everyMs: 3_000 }).value.value;
  const lines = [
    {
      at: job.enqueued_at,
      text: html`enqueued${job.schedule ? html` by schedule <span class="said">${job.schedule}</span>` : ""}`,
    },
    ...job.history.map((each) => ({
      at: each.finished_at,
      text: html`attempt ${each.number}
      ${each.outcome}${each.error ? html`: <span class="said">${shortError(each.error)}</span>` : ""}`,
    })),
    ...(logs?.audit ?? []).map((/** @type {any} */ each) => ({
      at: each.at,
      text: html`<b class="said">${each.actor}</b>:
        ${each.kind.replace(/^job\./, "")}${each.reason ? html`, “<span class="said">${cut(each.reason)}</span>”` : ""}`,
    })),
    ...(logs?.events ?? []).map((/** @type {any} */ each) => ({
      at: each.at,
      text: html`<span class="said">${each.text}</span>`,
    })),
  ].sort((a, b) => (a.at < b.at ? 1 : -1));
  return html`<${Panel} title="What happened">
    <ul class="audit pad">
      ${lines.slice(0, 40).map((each) => html`<li><${At} iso=${each.at} /><span>${each.text}</span></li>`)}
    </ul>
  <//>`;
}
