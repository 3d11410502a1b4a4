// How far are actions on many jobs? They run in the server, can be paused, and survive its end.
import { html } from "../lib/html.js";
import { part } from "../lib/api.js";
import { useData } from "../lib/answers.js";
import { at, jobsAt } from "../lib/place.js";
import { count, cut, some, tail } from "../lib/words.js";
import { Action, Locked } from "../components/Action.js";
import { Meter } from "../components/Meter.js";
import { Nothing, shown } from "../components/Odd.js";
import { Panel } from "../components/Panel.js";
import { RecordTable } from "../components/RecordTable.js";
import { useHeading } from "../components/Shell.js";
import { StateBadge } from "../components/StateBadge.js";
import { Ago } from "../components/Time.js";
import { askReason } from "../dialogs/AskReason.js";

/** @typedef {import("../api.d.ts").OperationRecord} Operation */

/** @param {{name?: string | null}} props */
export function Operations({ name = null }) {
  const entry = useData("/operations", {}, { everyMs: 1_000 });
  useHeading("Operations");
  const columns = [
    {
      head: "Operation",
      name: true,
      cell: (/** @type {Operation} */ each) =>
        html`<b>${each.verb}</b>
          <span class="mono small mid said any">${cut(each.query ?? "jobs that were named", 200)}</span>`,
    },
    { head: "State", cell: (/** @type {Operation} */ each) => html`<${StateBadge} state=${each.state} />` },
    {
      head: "Done",
      rank: "p1",
      cell: (/** @type {Operation} */ each) =>
        html`<${Meter} parts=${[["run", each.matched ? each.done / each.matched : 0]]} />`,
    },
    {
      head: "Jobs",
      kind: "num",
      cell: (/** @type {Operation} */ each) => `${count(each.done)} of ${count(each.matched)}`,
    },
    {
      head: "By",
      rank: "p2",
      cell: (/** @type {Operation} */ each) => html`<span class="said">${cut(each.actor, 60)}</span>`,
    },
    {
      head: "Began",
      kind: "num",
      rank: "p1",
      cell: (/** @type {Operation} */ each) => html`<${Ago} iso=${each.started_at} />`,
    },
    { head: "", kind: "go", cell: (/** @type {Operation} */ each) => html`<${Acts} operation=${each} />` },
  ];
  return html`<${Locked} what="Pausing an operation" /> ${shown(entry, ({ operations }) =>
      operations.length
        ? html`<${Panel} title="Operations" n=${operations.length} end="newest first, of seven days"
            ><${RecordTable}
              key=${name ?? ""}
              label="Operations"
              rows=${operations}
              columns=${columns}
              keyOf=${(/** @type {Operation} */ each) => each.id}
              opened=${name}
              detail=${(/** @type {Operation} */ each) => html`<${Detail} operation=${each} />`}
          /><//>`
        : html`<section class="panel">
            <${Nothing} state="plain" title="No operation">Replaying many dead jobs slowly makes one.<//>
          </section>`,
    )}`;
}

/** @param {{operation: Operation}} props */
function Acts({ operation }) {
  const { id, state, verb } = operation;
  const act = (/** @type {string} */ word, /** @type {string} */ label, /** @type {string} */ past, fatal = false) =>
    html`<${Action}
      tiny
      label=${label}
      name=${`${label} ${tail(id)}`}
      run=${() => askReason({ title: `${label.replace("…", "")} the operation: ${verb}`, about: "What it has done stays.", button: label.replace("…", " it"), safe: "Leave it", fatal, method: "POST", path: `/operations/${part(id)}/${word}`, told: () => `The operation is ${past}.` })}
    />`;
  if (state === "running" || state === "waiting")
    return html`<span class="row"
      >${act("pause", "Pause…", "paused")}${act("cancel", "Cancel…", "cancelled", true)}</span
    >`;
  if (state === "paused" || state === "failed")
    return html`<span class="row"
      >${act("resume", "Resume…", "under way again")}${act("cancel", "Cancel…", "cancelled", true)}</span
    >`;
  return "";
}

/** @param {{operation: Operation}} props */
function Detail({ operation }) {
  const answers = Object.entries(operation.answers)
    .map(([answer, n]) => `${count(Number(n))} ${answer.replaceAll("_", " ")}`)
    .join(", ");
  return html`<div class="stack close">
    <p>
      ${answers || "No job was touched yet."}${operation.died_again ? html` <span class="dead-t">${some(operation.died_again, "job")} died again.</span>` : ""}
      ${operation.why && html`<span class="warn-t said">${operation.why}</span>`}
    </p>
    <p class="mid">
      ${operation.per_second ? `At most ${operation.per_second} a second.` : "As fast as the store takes it."}
      ${operation.stop_after ? `It pauses when ${operation.stop_after} died again.` : ""}
      ${operation.reason && html`“<span class="said">${operation.reason}</span>”`}
    </p>
    ${operation.query && html`<p><a class="link" href=${jobsAt(operation.query)}>The jobs that match now</a></p>`}
    ${
      operation.problems.length > 0 &&
      html`<ul class="nextfive">
        ${operation.problems.map((each) => html`<li><a class="link id" href=${at("jobs", each.job)}>${tail(each.job)}</a><span>${each.answer.replaceAll("_", " ")}${each.holder && html`, <a class="link id" href=${at("jobs", each.holder)}>${tail(each.holder)}</a> holds its key`}</span></li>`)}
      </ul>`
    }
  </div>`;
}
