// Which jobs, and what do they share? A query, its states, and rows that change in place.
import { useEffect, useMemo, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { useData } from "../lib/answers.js";
import { openDialog } from "../lib/overlays.js";
import { at, place, turn } from "../lib/place.js";
import { terms, valueOf, without } from "../lib/query.js";
import { count, some, STATES } from "../lib/words.js";
import { BulkBar } from "../components/BulkBar.js";
import { Icon } from "../components/Icon.js";
import { JobsTable } from "../components/JobsTable.js";
import { Bones, Failed, Nothing } from "../components/Odd.js";
import { QueryBar } from "../components/QueryBar.js";
import { useHeading } from "../components/Shell.js";
import { StateBadge } from "../components/StateBadge.js";
import { Views } from "../components/Views.js";
import { ActOnJobs } from "../dialogs/ActOnJobs.js";
import { EditAndReplay } from "../dialogs/EditAndReplay.js";

/** @typedef {import("../api.d.ts").JobRecord} Job */

const ROWS = 50;
const NONE = new Set();

export function Jobs() {
  const q = place.value.query.get("q") ?? "";
  const cursor = place.value.query.get("cursor");
  const page = useData("/jobs", { q, cursor, limit: ROWS });
  const refusedQuery = page.error.value?.code === "invalid_query";
  useHeading("Jobs", { title: q ? `${q} · Jobs` : "Jobs" });
  return html`<${Views} q=${q} />
    <${QueryBar}
      q=${q}
      problem=${refusedQuery ? page.error.value : null}
      change=${(/** @type {string} */ next) => turn({ q: next, cursor: null }, { push: true })}
    />
    <${Facets} q=${q} />
    <${List} key=${`${q} ${cursor}`} q=${q} cursor=${cursor} page=${page} refusedQuery=${refusedQuery} />`;
}

/** @param {{q: string, cursor: string | null, page: import("../lib/answers.js").Entry, refusedQuery: boolean}} props */
function List({ q, cursor, page, refusedQuery }) {
  const [held, setHeld] = useState(
    /** @type {{jobs: Job[], cursor: string | null, complete: boolean} | null} */ (null),
  );
  const [chosen, setChosen] = useState(/** @type {Set<string>} */ (NONE));
  const latest = page.value.value;
  useEffect(() => {
    if (latest && !held) setHeld(latest);
  }, [latest]);
  const rows = useRows(held);
  const fresh = held && latest && !cursor ? newOnes(latest.jobs, held.jobs) : 0;
  const show = () => (scrollTo(0, 0), setHeld(latest));
  const problem = page.error.value;
  const act = (/** @type {string} */ verb, /** @type {string | null} */ id) => {
    const ids = chosen.size ? [...chosen] : id ? [id] : [];
    if (ids.length) openDialog(verb === "edit" ? EditAndReplay : ActOnJobs, { verb, ids, done: () => setChosen(NONE) });
  };
  return html`${
    held === null
      ? html`<section class="panel" aria-label="Jobs">
          ${problem ? !refusedQuery && html`<${Failed} error=${problem} />` : html`<${Bones} rows=${9} />`}
        </section>`
      : html`<section class="panel jobs-found" aria-label="Jobs">
          ${fresh > 0 && html`<button class="newrows" type="button" onClick=${show}>${fresh >= ROWS ? `${ROWS} or more` : fresh} new, press <kbd>n</kbd> to show them</button>`}
          ${
            held.jobs.length
              ? html`<${JobsTable}
                  jobs=${rows.jobs}
                  gone=${rows.gone}
                  chosen=${chosen}
                  choose=${setChosen}
                  onNew=${() => fresh && show()}
                  onAct=${act}
                />`
              : html`<${NoMatch} q=${q} held=${held} />`
          }
          <${More} held=${held} cursor=${cursor} />
        </section>`
  }
  ${chosen.size > 0 && html`<${BulkBar} chosen=${chosen} q=${q} jobs=${rows.jobs} clear=${() => setChosen(NONE)} />`}`;
}

/**
 * The rows that are shown, as they are now; they keep their places.
 * @param {{jobs: Job[]} | null} held
 */
function useRows(held) {
  const ids = useMemo(() => held?.jobs.map((each) => each.id) ?? [], [held]);
  const now = useData(ids.length ? "/jobs" : null, { ids }).value.value;
  return useMemo(() => {
    if (!held || !now) return { jobs: held?.jobs ?? [], gone: NONE };
    const found = new Map(now.jobs.map((/** @type {Job} */ each) => [each.id, each]));
    return {
      jobs: held.jobs.map((each) => found.get(each.id) ?? each),
      gone: new Set(ids.filter((id) => !found.has(id))),
    };
  }, [held, now]);
}

/** How many jobs came before those that are shown. @param {Job[]} latest @param {Job[]} held */
function newOnes(latest, held) {
  const known = new Set(held.map((each) => each.id));
  const place = latest.findIndex((each) => known.has(each.id));
  return place < 0 ? latest.length : place;
}

/** The states of what matches, where counters know it. @param {{q: string}} props */
function Facets({ q }) {
  const rest = without(q, "state");
  const counts = useCounts(rest);
  const chosen = valueOf(q, "state");
  const total = counts && STATES.reduce((sum, state) => sum + (counts[state] ?? 0), 0);
  const to = (/** @type {string} */ term) => at("jobs", null, { q: `${term} ${rest}`.trim() });
  return html`<nav class="facets" aria-label="States">
    <a href=${to("")} aria-current=${chosen ? undefined : "true"}
      ><span class="w">${counts ? some(/** @type {number} */ (total), "job") : "All states"}</span></a
    >
    ${STATES.map(
      (state) =>
        html`<a
          class=${counts && !counts[state] ? "none" : ""}
          href=${to(`state:${state}`)}
          aria-current=${chosen === state ? "true" : undefined}
        >
          <${StateBadge} state=${state} />${counts && html`<b>${count(counts[state] ?? 0)}</b>`}
        </a>`,
    )}
  </nav>`;
}

/** Counters hold the whole, a queue, and a task; of other queries nothing is known without a search. @param {string} rest */
function useCounts(rest) {
  const all = terms(rest);
  const [queue, task] = [valueOf(rest, "queue"), valueOf(rest, "task")];
  const plain = (/** @type {string | null} */ name) => all.length === 1 && name !== null && !name.includes("*");
  const stats = useData(all.length ? null : "/stats").value.value;
  const queues = useData(plain(queue) ? "/queues" : null).value.value;
  const tasks = useData(plain(task) ? "/tasks" : null).value.value;
  if (!all.length) return stats;
  if (plain(queue)) return queues?.queues.find((/** @type {any} */ each) => each.queue === bare(queue));
  if (plain(task)) return tasks?.tasks.find((/** @type {any} */ each) => each.task === bare(task))?.states;
  return undefined;
}

/** @param {string | null} value */
const bare = (value) => value?.replace(/^"(.*)"$/s, "$1");

/** @param {{held: {jobs: Job[], cursor: string | null, complete: boolean}, cursor: string | null}} props */
function More({ held, cursor }) {
  const older = () => turn({ cursor: held.cursor }, { push: true });
  return html`<div class="more">
    <span
      >${held.jobs.length ? `${held.jobs.length} shown · newest first · times in UTC` : ""}${held.complete ? "" : " · only a part was searched: go on with Older"}</span
    >
    <span class="row">
      ${cursor && html`<a class="b tiny" href=${at("jobs", null, { q: place.value.query.get("q") })}>Newest</a>`}
      <button class="b tiny" type="button" disabled=${!held.cursor} onClick=${older}>
        Older<${Icon} name="right" />
      </button>
    </span>
  </div>`;
}

/** @param {{q: string, held: {complete: boolean}}} props */
function NoMatch({ q, held }) {
  return html`<${Nothing} state="plain" title=${held.complete ? "No job matches" : "No job of the newest ones matches"}>
    ${q ? html`<code class="any">${q}</code>. ` : ""}${held.complete ? "All jobs that are stored were searched." : "Older ones have not been searched."}
    ${q && html`<a class="link" href=${at("jobs")}>Show all jobs</a>`}
  <//>`;
}
