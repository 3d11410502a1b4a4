// One line of the audit log; opened, everything that it says.
import { html } from "../lib/html.js";
import { at } from "../lib/place.js";
import { cut, json, tail } from "../lib/words.js";
import { Icon } from "../components/Icon.js";
import { At } from "../components/Time.js";
import { Tree } from "../components/Tree.js";

const COLUMNS = 6;
const THINGS = [
  "queue",
  "schedule",
  "limit",
  "breaker",
  "key",
  "cause",
  "operation",
  "flow",
  "rule",
  "type",
  "name",
  "task",
];

/** @param {{line: import("../api.d.ts").AuditRecord, open: boolean, turn: () => void}} props */
export function AuditRow({ line, open, turn }) {
  const facts = line.data && typeof line.data === "object" ? line.data : {};
  return html`<tr class=${open ? "open" : ""}>
      <th scope="row">
        <span class="row"
          ><button
            class="fold"
            type="button"
            aria-expanded=${open ? "true" : "false"}
            aria-label="Details of line ${line.seq}, ${line.kind}"
            onClick=${turn}
          >
            <${Icon} name="right" /></button
          ><a class="mono said any" href=${at("audit", null, { kind: line.kind })}>${cut(line.kind, 80)}</a></span
        >
        <span class="sub only-s said">${cut(line.actor, 60)} · <${On} line=${line} facts=${facts} /></span>
      </th>
      <td class="num"><${At} iso=${line.at} /></td>
      <td class="p1">
        <a class="said any" href=${at("audit", null, { actor: line.actor })}>${cut(line.actor, 60)}</a>
      </td>
      <td class="p1"><${On} line=${line} facts=${facts} /></td>
      <td class="p2 cut w mono small mid said">${cut(howOf(facts), 300)}</td>
      <td class="p1 said any">${line.reason ? cut(line.reason, 200) : html`<span class="dim">–</span>`}</td>
    </tr>
    ${
      open &&
      html`<tr class="detail">
        <td colspan=${COLUMNS}>
          ${line.reason && html`<p class="said any"><span class="dim">Why: </span>${line.reason}</p>`}
          <${Tree} value=${line.data} path="data" />
          <p class="small dim">line ${line.seq}, <time datetime=${line.at}>${line.at}</time></p>
        </td>
      </tr>`
    }`;
}

/** What was changed: a job, or the first thing that the line names. @param {{line: import("../api.d.ts").AuditRecord, facts: any}} props */
function On({ line, facts }) {
  if (line.job) return html`<a class="id link" href=${at("jobs", line.job)}>${tail(line.job)}</a>`;
  const own = line.kind.split(".")[0]; // a queue is what a line about a queue is about; others only name one
  const name = [own, ...THINGS].find((each) => typeof facts[each] === "string" && facts[each]);
  if (!name) return html`<span class="dim">–</span>`;
  const text = cut(facts[name], 60);
  const page = { queue: "queues", schedule: "schedules" }[name];
  return page
    ? html`<a class="link said any" href=${at(page, facts[name])}>${text}</a>`
    : html`<span class="said any">${text}</span>`;
}

/** What it says, in one line: what was and what is, or the facts beside what it is about. @param {any} facts */
function howOf(facts) {
  const said = (/** @type {any} */ value) => (typeof value === "string" ? value : json(value, 0));
  const { before, after, ...rest } = facts;
  if (before && after && typeof after === "object")
    return Object.keys(after)
      .map((each) => `${each} ${said(before[each] ?? null)} → ${said(after[each])}`)
      .join(", ");
  return Object.entries(rest)
    .filter(([name, value]) => name !== "token" && value !== null && value !== "")
    .map(([name, value]) => `${name} ${said(value)}`)
    .join(", ");
}
