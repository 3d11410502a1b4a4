// The ways through the page: a side on a wide screen, a rail, or a bar at the bottom of a phone.
import { html } from "../lib/html.js";
import { useData } from "../lib/answers.js";
import { opened } from "../lib/overlays.js";
import { at, place } from "../lib/place.js";
import { session } from "../lib/session.js";
import { count } from "../lib/words.js";
import { Icon, Mark } from "./Icon.js";

export const PLACES = [
  { group: "", pages: [{ page: "overview", label: "Overview" }] },
  {
    group: "Work",
    pages: [
      { page: "queues", label: "Queues" },
      { page: "jobs", label: "Jobs" },
      { page: "tasks", label: "Tasks" },
      { page: "flows", label: "Flows" },
      { page: "schedules", label: "Schedules" },
    ],
  },
  {
    group: "For a person",
    pages: [
      { page: "dead", label: "Dead letters" },
      { page: "approvals", label: "Approvals" },
      { page: "limits", label: "Limits & breakers" },
    ],
  },
  {
    group: "Who works",
    pages: [
      { page: "workers", label: "Workers" },
      { page: "agents", label: "Agents" },
    ],
  },
  {
    group: "Record",
    pages: [
      { page: "audit", label: "Audit" },
      { page: "settings", label: "Settings" },
    ],
  },
];

/** What needs a person, by page: how many, and how loud. @returns {Record<string, {n: number, tone: string, says: string}>} */
export function useCalls() {
  const stats = useData("/stats").value.value;
  const breakers = useData("/breakers", { limit: 100 }, { everyMs: 5_000 }).value.value;
  const approvals = useData("/approvals", { limit: 100 }, { everyMs: 5_000 }).value.value;
  const stopped = breakers?.breakers.filter((/** @type {any} */ each) => each.state !== "closed").length ?? 0;
  return {
    dead: { n: stats?.dead ?? 0, tone: "alarm", says: "wait for a person" },
    approvals: { n: approvals?.approvals.length ?? 0, tone: "", says: "ask" },
    limits: { n: stopped, tone: "eye", says: "stop jobs" },
  };
}

export function Side() {
  const calls = useCalls();
  const found = useData(session.value ? "/doctor" : null, {}, { everyMs: 60_000 }).value.value;
  const findings = found?.findings.filter((/** @type {any} */ each) => each.level !== "ok").length ?? 0;
  return html`<nav class="side" aria-label="Pages">
    <a class="brand" href=${at("overview")} aria-label="Limpet, overview"><${Mark} /><span>Limpet</span></a>
    <div class="ns"><b>${session.value?.namespace}</b><small>${session.value?.engine}</small></div>
    ${PLACES.map(
      ({ group, pages }) =>
        html`<div class="nav" key=${group}>
          ${group && html`<h2>${group}</h2>`}
          ${pages.map(({ page, label }) => {
            const call = calls[page];
            return html`<a href=${at(page)} title=${label} aria-current=${isAt(page) ? "page" : undefined}>
              <${Icon} name=${page} /><span>${label}</span>
              ${call?.n ? html`<span class="n ${call.tone}">${count(call.n)}<span class="sr"> ${call.says}</span></span>` : null}
            </a>`;
          })}
        </div>`,
    )}
    <div class="foot">
      <span>Signed in as <b>${session.value?.name}</b>, ${session.value?.role}</span>
      <span>Limpet ${session.value?.version}</span>
      <span
        ><a class="link" href=${at("settings")}>doctor</a>:
        ${findings ? html`<span class="warn-t">${findings} ${findings === 1 ? "finding" : "findings"}</span>` : "nothing found"}</span
      >
    </div>
  </nav>`;
}

const BOTTOM = [
  { page: "overview", label: "Overview" },
  { page: "queues", label: "Queues" },
  { page: "jobs", label: "Jobs" },
  { page: "dead", label: "Dead" },
];

export function Bottom() {
  const calls = useCalls();
  const listed = BOTTOM.some(({ page }) => isAt(page));
  return html`<nav class="bottom" aria-label="Main pages">
    ${BOTTOM.map(
      ({ page, label }) =>
        html`<a href=${at(page)} aria-current=${isAt(page) ? "page" : undefined}>
          <${Icon} name=${page} />${label}
          ${calls[page]?.n ? html`<span class="n">${short(calls[page].n)}</span>` : null}
        </a>`,
    )}
    <button type="button" aria-current=${listed ? undefined : "true"} onClick=${() => (opened.value = "palette")}>
      <${Icon} name="more" />More
    </button>
  </nav>`;
}

/** @param {string} page */
const isAt = (page) => place.value.page === page;

/** @param {number} n */
const short = (n) =>
  n < 1_000
    ? String(n)
    : n < 1_000_000
      ? `${(n / 1_000).toFixed(n < 10_000 ? 1 : 0)}k`
      : `${(n / 1_000_000).toFixed(1)}M`;
