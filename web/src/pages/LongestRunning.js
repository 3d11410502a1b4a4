// What runs now, the longest first: all of it, or that of one worker.
import { html } from "../lib/html.js";
import { useData } from "../lib/answers.js";
import { openDialog } from "../lib/overlays.js";
import { at, jobsAt } from "../lib/place.js";
import { cut, figure, tail } from "../lib/words.js";
import { Action } from "../components/Action.js";
import { Meter } from "../components/Meter.js";
import { shown } from "../components/Odd.js";
import { Panel } from "../components/Panel.js";
import { Age } from "../components/Time.js";
import { ActOnJobs } from "../dialogs/ActOnJobs.js";

/** @typedef {import("../api.d.ts").JobRecord} Job */

const MOST = 10;
const LOOKED_AT = 500; // the most that one answer holds

/** The running jobs, the longest first; the newest 500 are looked at. */
export function useRunning() {
  const entry = useData("/jobs", { q: "state:running", limit: LOOKED_AT }, { everyMs: 3_000 });
  const jobs = /** @type {Job[]} */ ([...(entry.value.value?.jobs ?? [])]);
  jobs.sort((a, b) => ((a.started_at ?? "") < (b.started_at ?? "") ? -1 : 1));
  return { entry, jobs, whole: !entry.value.value?.cursor };
}

export function LongestRunning() {
  const { entry, jobs, whole } = useRunning();
  return html`<${Panel}
    title="Longest running"
    end=${html`<a class="link" href=${jobsAt("state:running")}>${whole ? `all ${jobs.length}` : "all"}</a>`}
  >
    ${shown(entry, () =>
      jobs.length
        ? html`<div class="wrap-t">
            <table class="dense tight">
              <thead>
                <tr>
                  <th scope="col">Task</th>
                  <th class="p1" scope="col">Id</th>
                  <th class="p2" scope="col">Tenant</th>
                  <th class="p2" scope="col">Worker</th>
                  <th class="p1" scope="col">Progress</th>
                  <th class="num" scope="col">Runs for</th>
                  <th scope="col"><span class="sr">Actions</span></th>
                </tr>
              </thead>
              <tbody>
                ${jobs.slice(0, MOST).map((each) => html`<${Row} key=${each.id} job=${each} />`)}
              </tbody>
            </table>
          </div>`
        : html`<p class="pad dim">Nothing runs now.</p>`,
    )}
    ${!whole && html`<footer>Of the ${LOOKED_AT} that were enqueued last.</footer>`}
  <//>`;
}

/** @param {{job: Job}} props */
function Row({ job }) {
  return html`<tr>
    <th scope="row" class="any"><a class="mono said" href=${at("jobs", job.id)}>${cut(job.task, 80)}</a></th>
    <td class="p1 id">${tail(job.id)}</td>
    <td class="p2 said">${job.tenant ? cut(job.tenant, 40) : html`<span class="dim">–</span>`}</td>
    <td class="p2">
      ${job.session ? html`<a class="mono small said" href=${at(job.session.startsWith("agent:") ? "agents" : "workers", job.session)}>${cut(job.session, 40)}</a>` : html`<span class="dim">–</span>`}
    </td>
    <td class="p1"><${ProgressBar} job=${job} /></td>
    <td class="num"><${Age} iso=${job.started_at} /></td>
    <td class="go">
      ${
        job.cancel_requested
          ? html`<span class="small dim">was asked to stop</span>`
          : html`<${Action}
              tiny
              kind="quiet"
              label="Cancel…"
              name="Cancel… job ${tail(job.id)}"
              run=${() => openDialog(ActOnJobs, { verb: "cancel", ids: [job.id] })}
            />`
      }
    </td>
  </tr>`;
}

/** @param {{job: Job}} props */
export function ProgressBar({ job }) {
  if (!job.progress) return html`<span class="dim">–</span>`;
  const { done, total, message } = job.progress;
  const text = `${figure(done)}${total ? ` of ${figure(total)}` : ""}${message ? ` ${message}` : ""}`;
  return html`<span class="meter-l"
    >${total ? html`<${Meter} parts=${[["run", done / total]]} />` : ""}<span class="small mid cut said"
      >${cut(text, 80)}</span
    ></span
  >`;
}

/** The jobs of one session. @param {{session: string}} props */
export function RunningJobs({ session }) {
  const { entry, jobs, whole } = useRunning();
  const here = jobs.filter((each) => each.session === session);
  return shown(entry, () =>
    here.length
      ? html`<ul class="nextfive">
            ${here.slice(0, MOST).map(
              (each) =>
                html`<li key=${each.id}>
                  <span class="any"
                    ><a class="link mono said" href=${at("jobs", each.id)}>${cut(each.task, 60)}</a>
                    <span class="id">${tail(each.id)}</span></span
                  ><span class="dim nowrap"><${Age} iso=${each.started_at} /></span>
                </li>`,
            )}
          </ul>
          ${here.length > MOST && html`<p class="small dim">and ${here.length - MOST} more</p>`}`
      : html`<p class="small dim">
          ${whole ? "Nothing." : `None of the ${LOOKED_AT} running jobs that were enqueued last.`}
        </p>`,
  );
}
