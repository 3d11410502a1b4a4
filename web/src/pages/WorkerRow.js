// One worker: how it is, how full, what it runs; opened, everything that it says about itself.
import { html } from "../lib/html.js";
import { at, jobsAt } from "../lib/place.js";
import { bytes, count, cut, duration, figure, term } from "../lib/words.js";
import { Fold } from "../components/Fold.js";
import { Pips } from "../components/Meter.js";
import { StateBadge } from "../components/StateBadge.js";
import { Age, Ago } from "../components/Time.js";
import { FactList } from "./JobFacts.js";
import { RunningJobs } from "./LongestRunning.js";
import { short } from "./Workers.js";

const COLUMNS = 9;

/** @param {{worker: import("../api.d.ts").WorkerRecord, state: string, open: boolean, odd: boolean}} props `odd`: on other code than most */
export function WorkerRow({ worker, state, open, odd }) {
  const info = worker.info ?? {};
  const places = info.concurrency ?? 0;
  const bad = state !== "live";
  return html`<tr class=${open ? "open" : ""}>
      <td><${StateBadge} state=${state} /></td>
      <th scope="row">
        <span class="row"
          ><${Fold} open=${open} of=${worker.session} to=${at("workers", open ? null : worker.session)} /><a
            class="mono said any"
            href=${at("workers", open ? null : worker.session)}
            >${cut(worker.session, 80)}</a
          ></span
        >
        <span class="sub said">${info.host ? `${cut(String(info.host), 60)}, ` : ""}pid ${info.pid ?? "–"}</span>
      </th>
      <td class="num ${state === "silent" ? "warn-t" : ""}"><${Age} iso=${worker.beat_at} /></td>
      <td class="p1"><${Pips} used=${worker.running} of=${places} bad=${bad} /></td>
      <td class="num">
        <a href=${at("workers", worker.session)}>${count(worker.running)}${places ? `/${places}` : ""}</a>
      </td>
      <td class="num p2">${figure(info.per_second ?? 0)}</td>
      <td class="num p2">${info.memory_bytes ? bytes(info.memory_bytes) : html`<span class="dim">–</span>`}</td>
      <td class="p3 small mid cut w"><${Queues} queues=${worker.queues} /></td>
      <td class="p3 mono small said ${odd ? "warn-t" : "dim"}">${short(worker.code_version)}</td>
    </tr>
    ${
      open &&
      html`<tr class="detail">
        <td colspan=${COLUMNS}><${Detail} worker=${worker} info=${info} /></td>
      </tr>`
    }`;
}

/** @param {{queues: string[] | null}} props */
function Queues({ queues }) {
  if (queues === null) return "every queue";
  return queues.map(
    (each, i) =>
      html`${i ? ", " : ""}<a class="said" href=${jobsAt(`state:ready ${term("queue", each)}`)}>${cut(each, 40)}</a>`,
  );
}

/** @param {{worker: import("../api.d.ts").WorkerRecord, info: any}} props */
function Detail({ worker, info }) {
  const tasks = worker.tasks;
  return html`<div class="cols c2">
    <div class="mini">
      <h3>What it says of itself</h3>
      <${FactList}
        facts=${[
          ["Started", html`<${Ago} iso=${worker.started_at} />`],
          ["Its loop", worker.loop ? html`<span class="said">${worker.loop}</span>` : "turns"],
          ["Lease", html`ends <${Ago} iso=${worker.deadline_at} /> without another beat`],
          ["Stuck", worker.stuck ? `${worker.stuck} places do not come back` : null],
          ["Held back", info.held || null],
          ["Grace", info.grace_ms === undefined ? null : duration(info.grace_ms)],
          ["Queues", html`<${Queues} queues=${worker.queues} />`],
          [
            "Tasks",
            tasks === null ? "every task" : html`<span class="mono small said">${cut(tasks.join(", "), 500)}</span>`,
          ],
          ["Capabilities", worker.capabilities.join(", ")],
          ["Code", html`<span class="mono small said">${worker.code_version}</span>`],
          ["Limpet", info.version],
        ]}
      />
    </div>
    <div class="mini">
      <h3>What it runs</h3>
      <${RunningJobs} session=${worker.session} />
    </div>
  </div>`;
}
