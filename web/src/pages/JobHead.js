// The head of a job: its state and next instant, what can be done, and its way through the states.
import { html } from "../lib/html.js";
import { copy, Copy } from "../components/Copy.js";
import { openDialog } from "../lib/overlays.js";
import { PREFIX } from "../lib/place.js";
import { waitsFor } from "../lib/why.js";
import { json } from "../lib/words.js";
import { Action, Locked } from "../components/Action.js";
import { StateBadge } from "../components/StateBadge.js";
import { Ago } from "../components/Time.js";
import { ActOnJobs } from "../dialogs/ActOnJobs.js";
import { EditAndReplay } from "../dialogs/EditAndReplay.js";

/** @typedef {import("../api.d.ts").JobDetail} Job */

/** @param {Job} job @param {string} verb */
export function actOnJob(job, verb) {
  const ids = [job.id];
  if (verb === "edit") return job.state === "dead" && openDialog(EditAndReplay, { ids, patch: json(job.args) });
  const fits = {
    retry: job.state === "dead" || job.state === "scheduled",
    cancel: LIVE.has(job.state),
    rerun: job.state === "succeeded" || job.state === "cancelled",
    discard: job.state === "dead",
  };
  return fits[/** @type {"retry"} */ (verb)] && openDialog(ActOnJobs, { verb, ids });
}

const LIVE = new Set(["blocked", "scheduled", "ready", "running"]);

/** @param {{job: Job}} props */
export function Head({ job }) {
  const { state } = job;
  const act = (/** @type {string} */ verb) => () => actOnJob(job, verb);
  return html`<section class="jobhead" aria-label="The job">
    <div class="row wrap">
      <h2 class="said">${job.task}</h2>
      <${StateBadge} state=${state} pill />
      <span class="mid">${sentence(job)}</span>
      <span class="grow"></span>
      ${state === "scheduled" && html`<${Action} kind="primary" icon="retry" label="Start now…" run=${act("retry")} />`}
      ${state === "dead" && html`<${Action} kind="primary" icon="retry" label="Retry…" run=${act("retry")} />`}
      ${state === "dead" && html`<${Action} icon="edit" label="Edit and replay…" run=${act("edit")} />`}
      ${(state === "succeeded" || state === "cancelled") && html`<${Action} icon="retry" label="Run again…" run=${act("rerun")} />`}
      ${LIVE.has(state) && html`<${Action} kind="danger" icon="cancel" label="Cancel…" run=${act("cancel")} />`}
      ${state === "dead" && html`<${Action} kind="danger" icon="trash" label="Discard…" run=${act("discard")} />`}
      <${CopyAs} job=${job} />
    </div>
    <div class="row wrap">
      <span class="mono small mid any">${job.id}</span><${Copy} text=${job.id} what="The id" />
      <${Machine} job=${job} />
    </div>
    <${Locked} what="Changing a job" />
  </section>`;
}

/** @param {Job} job */
function sentence(job) {
  const of = `attempt ${job.attempt} of ${job.attempts}`;
  if (job.cancel_requested && job.state === "running") return `was asked to stop, ${of}`;
  if (job.state === "running") return job.progress ? `${of}, ${progress(job.progress)}` : of;
  if (job.state === "scheduled")
    return html`attempt ${job.attempt + 1} of ${job.attempts}
    ${job.due_at ? html`is due <b><${Ago} iso=${job.due_at} /></b>` : waitsFor(job.waits_for)}`;
  if (job.state === "ready")
    return html`waits for a worker${job.due_at ? html` since <${Ago} iso=${job.due_at} />` : ""}`;
  if (job.finished_at) return html`<${Ago} iso=${job.finished_at} />, ${of}`;
  return "";
}

/** @param {{done: number, total: number | null, message: string}} progress */
const progress = ({ done, total, message }) =>
  `${total ? `${Math.round((done / total) * 100)} %` : done}${message ? ` · ${message}` : ""}`;

const WAY = ["ready", "running", "succeeded"];

/** @param {{job: Job}} props */
function Machine({ job }) {
  const was = [...(job.after.length ? ["blocked"] : []), "ready", ...(job.attempt ? ["running"] : [])].filter(
    (each) => each !== job.state,
  );
  const rest = LIVE.has(job.state)
    ? WAY.slice(WAY.indexOf(job.state) + 1).filter(
        (each) => each !== job.state && !(each === "ready" && job.state !== "blocked" && job.state !== "scheduled"),
      )
    : [];
  return html`<ol class="machine p1" aria-label="Its way through the states">
    ${was.map((each) => html`<li class="was"><${StateBadge} state=${each} word=${each === "running" && job.attempt > 1 ? `running ×${job.attempt}` : each} /></li>`)}
    <li class="now" aria-current="step"><${StateBadge} state=${job.state} /></li>
    ${rest.map((each) => html`<li><${StateBadge} state="plain" word=${each} /></li>`)}
  </ol>`;
}

/** @param {{job: Job}} props */
function CopyAs({ job }) {
  const args = json(job.args ?? {}, 0);
  const ways = {
    Python: () =>
      `await app.enqueue(${JSON.stringify(job.task)}, json.loads(${JSON.stringify(args)}), queue=${JSON.stringify(job.queue)})`,
    curl: () =>
      `curl -s ${location.origin}${PREFIX}api/v1/jobs -H 'content-type: application/json' -d '${JSON.stringify({ task: job.task, queue: job.queue }).slice(0, -1)},"args":${args}}'`.replace(
        /(?<=-d '.*)'(?=.*'$)/g,
        "'\\''",
      ),
    CLI: () => `limpet enqueue ${job.task} '${args.replace(/'/g, "'\\''")}' --queue ${job.queue}`,
  };
  return html`<span class="row" role="group" aria-label="Copy the job as"
    >${Object.entries(ways).map(([name, text]) => html`<button class="b quiet tiny p1" type="button" onClick=${() => copy(text(), `The job as ${name}`)}>as ${name}</button>`)}</span
  >`;
}
