// One claim of an agent: its jobs, the last word it kept with them, and how much of the lease is left.
import { html } from "../lib/html.js";
import { ask, part } from "../lib/api.js";
import { now } from "../lib/clock.js";
import { useData } from "../lib/answers.js";
import { at } from "../lib/place.js";
import { cut, duration, json, money, ms, some, tail } from "../lib/words.js";
import { Action } from "../components/Action.js";
import { Meter } from "../components/Meter.js";
import { StateBadge } from "../components/StateBadge.js";
import { Ago } from "../components/Time.js";
import { askReason } from "../dialogs/AskReason.js";

/** @typedef {import("../api.d.ts").JobRecord} Job */

/** @param {{agent: import("../api.d.ts").WorkerRecord, jobs: Job[]}} props */
export function AgentRow({ agent, jobs }) {
  const name = String(agent.info?.agent ?? agent.session);
  const [job] = jobs;
  const more = agent.running - 1;
  return html`<tr>
    <td>
      <${StateBadge}
        state=${agent.running ? "running" : "ready"}
        word=${agent.running ? some(agent.running, "lease") : "waits"}
      />
    </td>
    <th scope="row">
      <span class="mono said any">${cut(name, 80)}</span>
      <span class="sub said">${cut(agent.capabilities.join(", "), 120) || "no capability"}</span>
      ${agent.running > 0 && html`<span class="sub only-s">lease ends <${Ago} iso=${agent.deadline_at} /></span>`}
    </th>
    <td>
      ${
        job
          ? html`<a class="mono small said any" href=${at("jobs", job.id)}>${cut(job.task, 60)}</a
              ><span class="sub mono">${tail(job.id)}${more > 0 ? ` and ${more} more` : ""}</span>`
          : html`<span class="dim">–</span>`
      }
    </td>
    <td class="p1 small mid"><${LastWord} job=${job} since=${agent.started_at} /></td>
    <td class="p1">${agent.running ? html`<${Lease} agent=${agent} />` : html`<span class="dim">–</span>`}</td>
    <td class="num p2"><${Spent} jobs=${jobs} /></td>
    <td class="go p1">
      ${job && html`<${Action} tiny kind="quiet" role="worker" label="Take back…" name="Take back… the lease of ${cut(name, 80)}" run=${() => takeBack(job, name)} />`}
    </td>
  </tr>`;
}

/** The checkpoint or the progress that it kept last. @param {{job: Job | undefined, since: string}} props */
function LastWord({ job, since }) {
  const detail = useData(job ? `/jobs/${part(job.id)}` : null, {}, { everyMs: 5_000 }).value.value;
  if (!job) return html`asks for jobs since <${Ago} iso=${since} />`;
  const kept = detail?.notes.findLast((/** @type {any} */ each) => each.kind === "checkpoint");
  const progress =
    job.progress &&
    `${job.progress.done}${job.progress.total ? ` of ${job.progress.total}` : ""} ${job.progress.message}`;
  if (!kept) return html`<span class="said any">${progress ? cut(progress, 120) : "no checkpoint yet"}</span>`;
  const text = typeof kept.body === "string" ? kept.body : json(kept.body, 0);
  return html`checkpoint:
    <span class="said any">${cut(text, 160)}</span
    >${progress && html`<span class="sub said">${cut(progress, 120)}</span>`}`;
}

/** @param {{agent: import("../api.d.ts").WorkerRecord}} props */
function Lease({ agent }) {
  const [whole, left] = [ms(agent.deadline_at) - ms(agent.beat_at), ms(agent.deadline_at) - now.value];
  const share = Math.max(0, Math.min(1, left / Math.max(1, whole)));
  return html`<span class="meter-l"
    ><${Meter} parts=${[[share < 0.1 ? "warn" : "run", share]]} /><span
      class="small nowrap ${share < 0.1 ? "warn-t" : ""}"
      >${left > 0 ? `${duration(Math.ceil(left / 1_000) * 1_000)} left` : "is over"}</span
    ></span
  >`;
}

/** @param {{jobs: Job[]}} props */
function Spent({ jobs }) {
  /** @type {Map<string, number>} */
  const units = new Map();
  for (const job of jobs)
    for (const [unit, n] of Object.entries(job.spent)) units.set(unit, (units.get(unit) ?? 0) + n);
  if (!units.size) return html`<span class="dim">–</span>`;
  return [...units].map(([unit, n]) => money(n, unit)).join(", ");
}

/** The lease is named by its token, which only who may end jobs is told. @param {Job} job @param {string} name */
async function takeBack(job, name) {
  const held = await ask("GET", `/jobs/${part(job.id)}`);
  askReason({
    title: `Take job ${tail(job.id)} back from ${cut(name, 80)}`,
    about:
      "The job is ready for another agent, with its last checkpoint, and no attempt is spent. This agent is refused when it comes back.",
    button: "Take it back",
    safe: "Leave it there",
    method: "POST",
    path: `/leases/${part(job.id)}/release`,
    body: { token: held.token ?? 0 },
    told: () => `Job ${tail(job.id)} was taken back from ${cut(name, 80)}.`,
  });
}
