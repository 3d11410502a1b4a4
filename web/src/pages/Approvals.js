// What do jobs ask of people? Those with the nearest end first; the answer goes to the job, the name to the audit log.
import { html } from "../lib/html.js";
import { part } from "../lib/api.js";
import { useData } from "../lib/answers.js";
import { at } from "../lib/place.js";
import { cut, json, some, tail } from "../lib/words.js";
import { Action, Locked } from "../components/Action.js";
import { Nothing, shown } from "../components/Odd.js";
import { Panel } from "../components/Panel.js";
import { RecordTable } from "../components/RecordTable.js";
import { useHeading } from "../components/Shell.js";
import { Tree } from "../components/Tree.js";
import { Ago } from "../components/Time.js";
import { askReason } from "../dialogs/AskReason.js";

/** @typedef {import("../api.d.ts").ApprovalRecord} Approval */

export function Approvals() {
  const entry = useData("/approvals", { limit: 100 }, { everyMs: 2_000 });
  const n = entry.value.value?.approvals.length ?? 0;
  useHeading("Approvals", { title: n ? `${some(n, "job")} ${n === 1 ? "asks" : "ask"} · Approvals` : "Approvals" });
  const columns = [
    {
      head: "Question",
      name: true,
      cell: (/** @type {Approval} */ each) =>
        html`<span class="said">${cut(each.question, 300)}</span
          ><span class="sub"
            ><a class="mono said" href=${at("jobs", each.id)}>${cut(each.task, 60)} ${tail(each.id)}</a></span
          >`,
    },
    {
      head: "Queue",
      rank: "p2",
      cell: (/** @type {Approval} */ each) => html`<span class="said">${cut(each.queue, 60)}</span>`,
    },
    {
      head: "Asks since",
      kind: "num",
      rank: "p1",
      cell: (/** @type {Approval} */ each) => html`<${Ago} iso=${each.enqueued_at} />`,
    },
    {
      head: "Ends",
      kind: "num",
      cell: (/** @type {Approval} */ each) =>
        each.until ? html`<${Ago} iso=${each.until} />` : html`<span class="dim">–</span>`,
    },
    {
      head: "",
      kind: "go",
      cell: (/** @type {Approval} */ each) =>
        html`<span class="row"
          ><${Answer} approval=${each} verb="approve" /><${Answer} approval=${each} verb="reject"
        /></span>`,
    },
  ];
  return html`<${Locked} what="Deciding" /> ${shown(entry, ({ approvals }) =>
      approvals.length
        ? html`<${Panel} title="Approvals" n=${approvals.length} end="the nearest end first"
            ><${RecordTable}
              label="Approvals"
              rows=${approvals}
              columns=${columns}
              keyOf=${(/** @type {Approval} */ each) => `${each.id} ${each.name}`}
              detail=${(/** @type {Approval} */ each) => html`<${Tree} value=${each.args} path="args" />`}
          /><//>`
        : html`<section class="panel">
            <${Nothing} title="No job asks anything"
              >A job asks with <code>job.approval("Refund 90 USD?")</code>, and waits here until a person decides.<//
            >
          </section>`,
    )}`;
}

/** @param {{approval: Approval, verb: "approve" | "reject"}} props */
function Answer({ approval, verb }) {
  const yes = verb === "approve";
  const run = () =>
    askReason({
      title: yes ? "Approve what 1 job asks" : "Reject what 1 job asks",
      about: html`<span class="said">${cut(approval.question, 500)}</span>
        <span class="dim mono small">${cut(json(approval.args, 0), 200)}</span>`,
      button: yes ? "Approve it" : "Reject it",
      safe: "Decide later",
      fatal: !yes,
      noReason: true,
      method: "POST",
      path: `/jobs/${part(approval.id)}/${verb}`,
      body: { name: approval.name },
      fields: [{ name: "comment", label: "Comment", note: "the job gets it" }],
      told: (answer) => answer.text,
    });
  return html`<${Action}
    tiny
    kind=${yes ? "" : "danger"}
    label=${yes ? "Approve…" : "Reject…"}
    name=${`${yes ? "Approve" : "Reject"}: ${cut(approval.question, 60)}`}
    run=${run}
  />`;
}
