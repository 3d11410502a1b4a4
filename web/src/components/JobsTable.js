// A table of jobs: rows change in place and never move, keys walk them, and some can be selected.
import { useEffect, useRef } from "preact/hooks";
import { html } from "../lib/html.js";
import { now } from "../lib/clock.js";
import { own } from "../lib/keys.js";
import { at, go } from "../lib/place.js";
import { cut, duration, tail } from "../lib/words.js";
import { times, whyOf } from "../lib/why.js";
import { Ago, At } from "./Time.js";
import { StateBadge } from "./StateBadge.js";

/** @typedef {import("../api.d.ts").JobRecord} Job */

/**
 * @param {{jobs: Job[], gone: Set<string>, chosen?: Set<string>, choose?: (chosen: Set<string>) => void, onNew?: () => void, onAct?: (key: string, id: string | null) => void}} props
 */
export function JobsTable({ jobs, gone, chosen, choose, onNew, onAct }) {
  const cursor = useRef(-1);
  const body = useRef(/** @type {HTMLElement | null} */ (null));
  const toggle = (/** @type {string} */ id, /** @type {boolean} */ span) => {
    if (!chosen || !choose) return;
    const next = new Set(chosen);
    const [from, to] = [jobs.findIndex((each) => each.id === lastChosen), jobs.findIndex((each) => each.id === id)];
    if (span && from >= 0) for (const each of jobs.slice(Math.min(from, to), Math.max(from, to) + 1)) next.add(each.id);
    else if (next.has(id)) next.delete(id);
    else next.add(id);
    lastChosen = id;
    choose(next);
  };
  const move = (/** @type {number} */ step) => {
    const rows = /** @type {NodeListOf<HTMLElement>} */ (body.current?.querySelectorAll("tr"));
    rows[cursor.current]?.classList.remove("at");
    cursor.current = Math.max(0, Math.min(rows.length - 1, cursor.current + step));
    const row = rows[cursor.current];
    row?.classList.add("at");
    row?.scrollIntoView({ block: "nearest" });
    /** @type {HTMLElement | null} */ (row?.querySelector("th a"))?.focus({ preventScroll: true });
  };
  const current = () => jobs[cursor.current]?.id ?? null;
  useEffect(() => {
    Object.assign(own.current, {
      j: () => move(1),
      k: () => move(-1),
      x: () => current() && toggle(/** @type {string} */ (current()), false),
      Enter: (/** @type {KeyboardEvent} */ event) =>
        event.target === document.body && current() && go(at("jobs", current())),
      n: onNew,
      R: () => onAct?.("retry", current()),
      E: () => onAct?.("edit", current()),
      C: () => onAct?.("cancel", current()),
      Escape: () => choose?.(new Set()),
    });
  });
  const all = chosen && jobs.length > 0 && jobs.every((each) => chosen.has(each.id));
  return html`<div class="wrap-t stick">
    <table class="tight iconly">
      <thead>
        <tr>
          ${
            chosen &&
            html`<th class="sel" scope="col">
              <input
                class="check"
                type="checkbox"
                aria-label="Select the rows that are shown"
                checked=${all}
                ref=${(/** @type {any} */ el) => el && (el.indeterminate = !all && chosen.size > 0)}
                onChange=${() => choose?.(all ? new Set() : new Set(jobs.map((each) => each.id)))}
              />
            </th>`
          }
          <th class="sth" scope="col">State</th>
          <th scope="col">Task</th>
          <th class="p1" scope="col">Id</th>
          <th class="p2" scope="col">Queue</th>
          <th class="p3" scope="col">Tenant</th>
          <th class="num p1" scope="col">Attempt</th>
          <th class="num p3" scope="col">Waited</th>
          <th class="num p2" scope="col">Ran</th>
          <th class="w p1" scope="col">Error, or why it waits</th>
          <th class="num" scope="col">Enqueued</th>
        </tr>
      </thead>
      <tbody ref=${body}>
        ${jobs.map((job) => html`<${Row} key=${job.id} job=${job} gone=${gone.has(job.id)} on=${chosen?.has(job.id)} toggle=${chosen && toggle} />`)}
      </tbody>
    </table>
  </div>`;
}

/** @type {string} */
let lastChosen = "";

/** @param {{job: Job, gone: boolean, on?: boolean, toggle?: (id: string, span: boolean) => void}} props */
function Row({ job, gone, on, toggle }) {
  return html`<tr class="${on ? "on" : ""} ${gone ? "gone" : ""}" title=${gone ? "It is no longer stored" : undefined}>
    ${
      toggle &&
      html`<td class="sel">
        <input
          class="check"
          type="checkbox"
          aria-label="Select ${tail(job.id)}"
          checked=${on}
          onClick=${(/** @type {MouseEvent} */ e) => toggle(job.id, e.shiftKey)}
        />
      </td>`
    }
    <td><${StateBadge} state=${job.state} /></td>
    <th scope="row">
      <a class="mono said" href=${at("jobs", job.id)}>${cut(job.task, 80)}</a>
      <span class="sub only-s said"
        ><span class=${job.state === "dead" ? "dead-t" : ""}>${job.state}</span> ·
        ${job.attempt}/${job.attempts}${job.tenant ? ` · ${cut(job.tenant, 40)}` : ""}</span
      >
    </th>
    <td class="p1 id">${tail(job.id)}</td>
    <td class="p2 said">${cut(job.queue, 40)}</td>
    <td class="p3 said">${job.tenant ? cut(job.tenant, 40) : html`<span class="dim">–</span>`}</td>
    <td class="num p1">${job.attempt}/${job.attempts}</td>
    <${Times} job=${job} />
    <td class="cut w p1 small mid"><${Why} job=${job} /></td>
    <td class="num"><${At} iso=${job.enqueued_at} /></td>
  </tr>`;
}

/** @param {{job: Job}} props */
function Times({ job }) {
  const moves = job.state === "ready" || job.state === "running";
  const { waited, ran } = times(job, moves ? now.value : 0);
  const written = (/** @type {number | null} */ value) =>
    value === null ? html`<span class="dim">–</span>` : duration(value);
  return html`<td class="num p3">${written(waited)}</td>
    <td class="num p2">${written(ran)}</td>`;
}

/** @param {{job: Job}} props */
export function Why({ job }) {
  const { error, text, due } = whyOf(job);
  if (due) return html`due <${Ago} iso=${due} />${text && html` · <span class="said">${cut(text)}</span>`}`;
  if (!error && !text) return html`<span class="dim">–</span>`;
  return html`${error && html`<span class="dead-t med said">${error}</span> `}<span class="said" title=${cut(text, 500)}
      >${cut(text)}</span
    >`;
}
