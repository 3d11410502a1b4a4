// Who is silent, full, or on an old version? Silent ones first, with their places and the jobs that run there.
import { html } from "../lib/html.js";
import { useData } from "../lib/answers.js";
import { at, jobsAt } from "../lib/place.js";
import { count, cut, duration, json, tail } from "../lib/words.js";
import { Pips } from "../components/Meter.js";
import { Nothing, shown } from "../components/Odd.js";
import { Panel } from "../components/Panel.js";
import { RecordTable } from "../components/RecordTable.js";
import { useHeading } from "../components/Shell.js";
import { StateBadge } from "../components/StateBadge.js";
import { Ago } from "../components/Time.js";

/** @typedef {import("../api.d.ts").WorkerRecord} Worker */

/** Workers tell how many places they have; agents do not. @param {Worker} worker */
const isAgent = (worker) => typeof worker.info?.concurrency !== "number";

/** @param {{agents?: boolean}} props */
export function Workers({ agents = false }) {
  const entry = useData("/workers", {}, { everyMs: 2_000 });
  const all = /** @type {Worker[]} */ (entry.value.value?.workers ?? []).filter((each) => isAgent(each) === agents);
  all.sort(
    (a, b) =>
      Number(b.silent_s !== null || b.stuck > 0) - Number(a.silent_s !== null || a.stuck > 0) ||
      b.running - a.running ||
      a.session.localeCompare(b.session),
  );
  const silent = all.filter((each) => each.silent_s !== null).length;
  const title = agents ? "Agents" : "Workers";
  useHeading(title, { title: silent ? `${silent} silent · ${title}` : title });
  const running = all.reduce((sum, each) => sum + each.running, 0);
  const columns = [
    {
      head: agents ? "Agent" : "Worker",
      name: true,
      cell: (/** @type {Worker} */ each) =>
        html`<span class="mono said">${cut(each.session, 80)}</span>
          ${each.silent_s !== null || each.stuck ? html`<${StateBadge} state="silent" word=${each.stuck ? `${each.stuck} stuck` : "silent"} pill />` : ""}`,
    },
    {
      head: "Running",
      kind: "num",
      cell: (/** @type {Worker} */ each) =>
        html`<a class=${each.running ? "" : "dim"} href=${jobsAt("state:running")}
          >${count(each.running)}${agents ? "" : `/${count(each.info.concurrency)}`}</a
        >`,
    },
    ...(agents
      ? []
      : [
          {
            head: "Places",
            rank: "p1",
            cell: (/** @type {Worker} */ each) =>
              html`<${Pips} used=${each.running} of=${each.info.concurrency} bad=${each.silent_s !== null} />`,
          },
        ]),
    {
      head: "Queues",
      rank: "p2",
      cell: (/** @type {Worker} */ each) =>
        html`<span class="mid said">${each.queues === null ? "any" : cut(each.queues.join(", "), 80)}</span>`,
    },
    ...(agents
      ? [
          {
            head: "Can",
            rank: "p2",
            cell: (/** @type {Worker} */ each) =>
              html`<span class="mid said">${cut(each.capabilities.join(", "), 80) || "–"}</span>`,
          },
        ]
      : [
          {
            head: "Version",
            rank: "p2",
            cell: (/** @type {Worker} */ each) =>
              html`<span class="mono small mid said">${cut(each.code_version, 12) || "–"}</span>`,
          },
        ]),
    {
      head: "Since",
      kind: "num",
      rank: "p1",
      cell: (/** @type {Worker} */ each) => html`<${Ago} iso=${each.started_at} />`,
    },
    {
      head: "Beat",
      kind: "num",
      cell: (/** @type {Worker} */ each) =>
        html`<span class=${each.silent_s === null ? "" : "warn-t"}><${Ago} iso=${each.beat_at} /></span>`,
    },
    {
      head: agents ? "Lease ends" : "Alive until",
      kind: "num",
      rank: "p1",
      cell: (/** @type {Worker} */ each) => html`<${Ago} iso=${each.deadline_at} />`,
    },
  ];
  return html`<div class="pagebar">
      <p class="grow">
        <b>${count(all.length)} live</b>, ${count(running)} running${silent ? `, ${silent} silent` : ""}.
      </p>
    </div>
    ${shown(entry, () =>
      all.length
        ? html`<${Panel} title=${title} n=${all.length} end="silent ones first"
            ><${RecordTable}
              label=${title}
              rows=${all}
              columns=${columns}
              keyOf=${(/** @type {Worker} */ each) => each.session}
              detail=${(/** @type {Worker} */ each) => html`<${Detail} worker=${each} />`}
          /><//>`
        : html`<section class="panel">
            <${Nothing} state="plain" title=${agents ? "No agent is alive" : "No worker is alive"}
              >${agents ? html`An agent takes jobs with <code>limpet agent claim</code>, or over HTTP.` : html`Start one: <code>limpet worker shop:app</code>`}<//
            >
          </section>`,
    )}`;
}

export const Agents = () => html`<${Workers} agents />`;

const LONGEST = 8;

/** @param {{worker: Worker}} props */
function Detail({ worker }) {
  const jobs = useData("/jobs", { q: "state:running", limit: 200 }, { everyMs: 3_000 }).value.value?.jobs ?? [];
  const long = [...jobs].sort((a, b) => (a.started_at < b.started_at ? -1 : 1)).slice(0, LONGEST);
  return html`<div class="cols c2">
    <div class="mini">
      <h3>Running longest, on all workers</h3>
      <ul class="nextfive">
        ${long.length === 0 && html`<li class="dim">No job runs.</li>`}${long.map(
          (each) =>
            html`<li>
              <a class="link mono small said" href=${at("jobs", each.id)}>${cut(each.task, 60)} ${tail(each.id)}</a
              ><span class="dim"><${Ago} iso=${each.started_at} /></span>
            </li>`,
        )}
      </ul>
    </div>
    <div class="mini">
      <h3>What it says of itself</h3>
      ${worker.loop && html`<p class="warn-t said">${worker.loop}</p>`}
      ${worker.silent_s !== null && html`<p class="warn-t">Its loop had not turned for ${duration(worker.silent_s * 1_000)} when it last beat. Its jobs come back when its time is over.</p>`}
      <pre class="codebox said" tabindex="0">${json(worker.info)}</pre>
    </div>
  </div>`;
}
