// What is new, is it one thing, may I replay it? Causes at the left, the opened one at the right.
import { useEffect } from "preact/hooks";
import { html } from "../lib/html.js";
import { useData } from "../lib/answers.js";
import { own } from "../lib/keys.js";
import { at, go, place } from "../lib/place.js";
import { session } from "../lib/session.js";
import { count, cut, shortError, some } from "../lib/words.js";
import { Bars } from "../components/Bars.js";
import { Nothing, shown } from "../components/Odd.js";
import { Panel } from "../components/Panel.js";
import { Seg } from "../components/Seg.js";
import { useHeading } from "../components/Shell.js";
import { StateBadge } from "../components/StateBadge.js";
import { Ago } from "../components/Time.js";
import { Cause } from "./Cause.js";

/** @typedef {import("../api.d.ts").CauseRecord} CauseRecord */

/** Which causes each shelf has. @type {Record<string, {label: string, has: (cause: CauseRecord) => boolean}>} */
const SHELVES = {
  todo: {
    label: "To do",
    has: (each) => each.status === "open" || each.status === "regressed" || each.status === "acknowledged",
  },
  mine: { label: "Mine", has: (each) => each.assignee !== null && each.assignee === session.value?.name },
  snoozed: { label: "Snoozed", has: (each) => each.status === "snoozed" },
  resolved: { label: "Resolved", has: (each) => each.status === "resolved" },
};
const RANK = /** @type {Record<string, number>} */ ({
  regressed: 0,
  open: 1,
  acknowledged: 2,
  snoozed: 3,
  resolved: 4,
});

/** What tells causes apart that share a fingerprint. @param {CauseRecord} cause */
export const keyOf = (cause) => `${cause.cause} ${cause.queue} ${cause.task}`;

/** @param {{name?: string | null}} props the fingerprint of the opened cause */
export function Dead({ name = null }) {
  const { query } = place.value;
  const shelf = query.get("shelf") ?? "todo";
  const entry = useData("/dead/causes", { hours: true, limit: 500, queue: query.get("in") }, { everyMs: 3_000 });
  const all = sorted(/** @type {CauseRecord[]} */ (entry.value.value?.causes ?? []));
  const here = all.filter(SHELVES[shelf]?.has ?? SHELVES.todo.has);
  const opened = (name && all.find((each) => matches(each, name, query))) || null;
  const seen = opened ?? (name === null ? (here[0] ?? null) : null);
  const fresh = all.filter((each) => each.status === "open" || each.status === "regressed").length;
  useHeading("Dead letters", { title: fresh ? `${some(fresh, "open cause")} · Dead letters` : "Dead letters" });
  useEffect(() => {
    const step = (/** @type {number} */ by) => () => {
      const next =
        here[
          Math.max(0, Math.min(here.length - 1, here.findIndex((each) => seen && keyOf(each) === keyOf(seen)) + by))
        ];
      if (next) go(hrefOf(next, shelf), { replace: true });
    };
    Object.assign(own.current, { j: step(1), k: step(-1) });
  });
  const dead = all.reduce((sum, each) => sum + each.count, 0);
  return html`<div class="pagebar">
      <${Seg}
        label="Shelves"
        chosen=${shelf}
        choices=${Object.entries(SHELVES).map(([key, { label, has }]) => ({ key, label, n: all.filter(has).length || "", href: at("dead", null, { shelf: key === "todo" ? null : key }) }))}
      />
      <p class="grow p1">
        ${entry.value.value && `${some(dead, "dead job")} from ${some(all.filter((each) => each.count).length, "cause")}. Nothing retries or removes them by itself.`}
      </p>
      <a class="b" href=${at("jobs", null, { q: "state:dead" })}>All dead jobs</a>
    </div>
    ${shown(entry, () =>
      all.length === 0
        ? html`<section class="panel">
            <${Nothing} title="No dead letters"
              >Jobs that fail for good will wait here, with every attempt, until a person decides.<//
            >
          </section>`
        : html`<div class="inbox ${name ? "opened" : ""}">
            <div class="causes">
              <${Panel} title="Causes" n=${here.length} end="regressed and open first · 24h">
                ${
                  here.length
                    ? html`<ul>
                        ${here.map((each) => html`<li key=${keyOf(each)}><${Row} cause=${each} shelf=${shelf} current=${seen !== null && keyOf(seen) === keyOf(each)} /></li>`)}
                      </ul>`
                    : html`<p class="pad dim">Nothing is on this shelf.</p>`
                }
              <//>
            </div>
            <div class="opened-cause">
              ${seen ? html`<${Cause} key=${keyOf(seen)} cause=${seen} back=${at("dead", null, { shelf: shelf === "todo" ? null : shelf })} />` : html`<section class="panel"><${Nothing} state="plain" title=${name ? "This cause is not there" : "Choose a cause"}>${name ? "None of its jobs is dead, and nothing was said of it." : ""}<//></section>`}
            </div>
          </div>`,
    )}`;
}

/** @param {CauseRecord[]} causes */
const sorted = (causes) =>
  [...causes].sort((a, b) => RANK[a.status] - RANK[b.status] || (a.last_at < b.last_at ? 1 : -1));

/** @param {CauseRecord} cause @param {string} name @param {URLSearchParams} query */
const matches = (cause, name, query) =>
  cause.cause.startsWith(name) &&
  (!query.get("queue") || query.get("queue") === cause.queue) &&
  (!query.get("task") || query.get("task") === cause.task);

/** @param {CauseRecord} cause @param {string} shelf */
const hrefOf = (cause, shelf) =>
  at("dead", cause.cause, { queue: cause.queue, task: cause.task, shelf: shelf === "todo" ? null : shelf });

/** @param {{cause: CauseRecord, shelf: string, current: boolean}} props */
function Row({ cause, shelf, current }) {
  return html`<a
    class="cause ${cause.status === "resolved" ? "done" : ""}"
    href=${hrefOf(cause, shelf)}
    aria-current=${current ? "true" : undefined}
  >
    <${StateBadge} state=${cause.status === "open" ? "dead" : cause.status} word=${cause.status} quiet />
    <span class="ttl cut said"
      >${shortError(cause.error)} ${cause.status === "regressed" && html`<span class="tag">regressed</span>`}</span
    >
    <span class="cnt">${count(cause.count)}</span>
    <span class="msg cut said">${cut(cause.message) || "no message"}</span>
    ${cause.hours && html`<${Bars} values=${cause.hours} kind=${cause.status === "open" || cause.status === "regressed" ? "dead" : ""} />`}
    <span class="meta cut"
      ><span class="mono said">${cut(cause.task, 60)}</span> · last <${Ago} iso=${cause.last_at}
    /></span>
    <span class="who"
      >${cause.status === "snoozed" ? html`until <${Ago} iso=${cause.until} />` : cause.assignee && html`<span class="avatar" aria-hidden="true">${cause.assignee.replace(/^.*:/, "")[0]?.toUpperCase()}</span> <span class="said">${cut(cause.assignee, 20)}</span>`}</span
    >
  </a>`;
}
