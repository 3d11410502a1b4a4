// Who is silent, full, or on an old version? The troubled first, then what has run longest.
import { html } from "../lib/html.js";
import { useData } from "../lib/answers.js";
import { at, go, jobsAt } from "../lib/place.js";
import { count, duration, some } from "../lib/words.js";
import { Nothing, shown } from "../components/Odd.js";
import { Seg } from "../components/Seg.js";
import { useHeading } from "../components/Shell.js";
import { useOrder } from "../components/useOrder.js";
import { useRows } from "../components/useRows.js";
import { LongestRunning } from "./LongestRunning.js";
import { WorkerRow } from "./WorkerRow.js";

/** @typedef {import("../api.d.ts").WorkerRecord} Worker */

/** An agent's session is one claim of it. @param {Worker} worker */
export const isAgent = (worker) => worker.session.startsWith("agent:");

/** What of it needs an eye, in a word. @param {Worker} worker */
export const stateOf = (worker) =>
  worker.silent_s !== null
    ? "silent"
    : worker.stuck > 0
      ? "stuck"
      : worker.loop?.startsWith("blocked")
        ? "loop blocked"
        : "live";

const RANK = ["silent", "loop blocked", "stuck", "live"];

/** @param {{name?: string | null}} props the session whose row is open */
export function Workers({ name = null }) {
  const entry = useData("/workers", {}, { everyMs: 2_000 });
  const all = /** @type {Worker[]} */ (entry.value.value?.workers ?? []);
  const workers = useOrder(sorted(all.filter((each) => !isAgent(each))), (each) => each.session);
  const troubled = workers.filter((each) => stateOf(each) !== "live");
  const rows = useRows((i) => go(at("workers", workers[i]?.session === name ? null : workers[i]?.session)));
  useHeading("Workers", {
    title: troubled.length ? `${troubled.length} of ${workers.length} need an eye · Workers` : "Workers",
  });
  return html`<div class="pagebar">
      <${Who} chosen="workers" all=${all} />
      ${workers.length > 0 && html`<p class="grow"><b>${placesOf(workers)}</b> ${trouble(troubled)}</p>`}
      ${workers.length > 0 && html`<p class="dim p1">${versionsOf(workers)}</p>`}
    </div>
    ${shown(entry, () =>
      workers.length
        ? html`<section class="panel" aria-label="Workers">
            <h2 class="sr">Workers</h2>
            <div class="wrap-t stick">
              <table class="tight iconly">
                <thead>
                  <tr>
                    <th class="sth" scope="col">State</th>
                    <th scope="col">Worker</th>
                    <th class="num" scope="col">Beat</th>
                    <th class="p1" scope="col">Places</th>
                    <th class="num" scope="col">Running</th>
                    <th class="num p2" scope="col">Jobs/s</th>
                    <th class="num p2" scope="col">Memory</th>
                    <th class="p3" scope="col">Queues</th>
                    <th class="p3" scope="col">Version</th>
                  </tr>
                </thead>
                <tbody ref=${rows}>
                  ${workers.map((each) => html`<${WorkerRow} key=${each.session} worker=${each} state=${stateOf(each)} open=${each.session === name} odd=${isOdd(each, workers)} />`)}
                </tbody>
              </table>
            </div>
          </section>`
        : html`<section class="panel">
            <${Nothing} state="warn" title="No worker is alive"
              >Jobs wait until one starts: <code>limpet worker APP</code>. Workers that were stopped are not listed.<//
            >
          </section>`,
    )}
    <${LongestRunning} />`;
}

/** Workers, or the agents beside them. @param {{chosen: string, all: Worker[]}} props */
export function Who({ chosen, all }) {
  const agents = all.filter(isAgent).length;
  return html`<${Seg}
    label="Who works"
    chosen=${chosen}
    choices=${[
      { key: "workers", label: "Workers", n: all.length - agents, href: at("workers") },
      { key: "agents", label: "Agents", n: agents, href: at("agents") },
    ]}
  />`;
}

/** @param {Worker[]} workers */
const sorted = (workers) =>
  [...workers].sort((a, b) => RANK.indexOf(stateOf(a)) - RANK.indexOf(stateOf(b)) || (a.session < b.session ? -1 : 1));

/** @param {Worker[]} workers */
function placesOf(workers) {
  const running = workers.reduce((sum, each) => sum + each.running, 0);
  const places = workers.reduce((sum, each) => sum + (each.info?.concurrency ?? 0), 0);
  return html`<a href=${jobsAt("state:running")}>${count(running)} of ${some(places, "place")}</a> run.`;
}

/** The first that needs an eye, in words. @param {Worker[]} troubled */
function trouble(troubled) {
  if (!troubled.length) return null;
  const [first] = troubled;
  const words = {
    silent: `is silent for ${duration((first.silent_s ?? 0) * 1_000)}; ${some(first.running, "job")} ${first.running === 1 ? "comes" : "come"} back when its lease ends`,
    stuck: `has ${some(first.stuck, "place")} that do not come back`,
    "loop blocked": `is ${first.loop}`,
  }[/** @type {"silent"} */ (stateOf(first))];
  return html`<span class="warn-t"
    ><span class="mono said">${first.session}</span>
    ${words}.${troubled.length > 1 ? ` ${troubled.length - 1} more need an eye.` : ""}</span
  >`;
}

/** @param {Worker[]} workers */
function versionsOf(workers) {
  const found = counted(workers);
  if (found.length === 1) return html`all on <span class="mono said">${short(found[0][0])}</span>`;
  return html`${found.length} versions:
  ${found.map(([version, n], i) => html`${i ? ", " : ""}<span class="mono said">${short(version)}</span> on ${n}`)}`;
}

/** Versions, the one of most workers first. @param {Worker[]} workers @returns {[string, number][]} */
function counted(workers) {
  /** @type {Map<string, number>} */
  const found = new Map();
  for (const each of workers) found.set(each.code_version, (found.get(each.code_version) ?? 0) + 1);
  return [...found].sort((a, b) => b[1] - a[1]);
}

/** Whether it runs other code than most. @param {Worker} worker @param {Worker[]} workers */
const isOdd = (worker, workers) => worker.code_version !== counted(workers)[0][0];

/** @param {string} version */
export const short = (version) => version.slice(0, 12) || "unknown";
