// Who holds a lease, and what did it say last? Beside: jobs that no agent can take, and questions for a person.
import { html } from "../lib/html.js";
import { useData } from "../lib/answers.js";
import { at, jobsAt } from "../lib/place.js";
import { count, cut, some, tail, term } from "../lib/words.js";
import { part } from "../lib/api.js";
import { Action, Locked } from "../components/Action.js";
import { Nothing, shown } from "../components/Odd.js";
import { Panel } from "../components/Panel.js";
import { useHeading } from "../components/Shell.js";
import { StateBadge } from "../components/StateBadge.js";
import { Age, Ago } from "../components/Time.js";
import { useOrder } from "../components/useOrder.js";
import { useRows } from "../components/useRows.js";
import { askReason } from "../dialogs/AskReason.js";
import { AgentRow } from "./AgentRow.js";
import { useRunning } from "./LongestRunning.js";
import { isAgent, Who } from "./Workers.js";

/** @typedef {import("../api.d.ts").WorkerRecord} Worker */

export function Agents() {
  const entry = useData("/workers", {}, { everyMs: 2_000 });
  const running = useRunning();
  const all = /** @type {Worker[]} */ (entry.value.value?.workers ?? []);
  const agents = useOrder(sorted(all.filter(isAgent)), (each) => each.session);
  const body = useRows();
  const leases = agents.reduce((sum, each) => sum + each.running, 0);
  useHeading("Agents", { title: leases ? `${some(leases, "lease")} · Agents` : "Agents" });
  return html`<div class="pagebar">
      <${Who} chosen="agents" all=${all} />
      <p class="grow">${agents.length > 0 && html`<b>${some(leases, "lease")} held.</b>`}</p>
      <${Locked} role="worker" what="Taking a lease back" />
    </div>
    ${shown(entry, () =>
      agents.length
        ? html`<section class="panel" aria-label="Agents">
            <h2 class="sr">Agents</h2>
            <div class="wrap-t stick">
              <table class="tight iconly">
                <thead>
                  <tr>
                    <th class="sth" scope="col">State</th>
                    <th scope="col">Agent</th>
                    <th scope="col">Job</th>
                    <th class="p1" scope="col">Last word</th>
                    <th class="p1" scope="col">Lease</th>
                    <th class="num p2" scope="col">Spent</th>
                    <th class="p1" scope="col"><span class="sr">Actions</span></th>
                  </tr>
                </thead>
                <tbody ref=${body}>
                  ${agents.map((each) => html`<${AgentRow} key=${each.session} agent=${each} jobs=${running.jobs.filter((job) => job.session === each.session)} />`)}
                </tbody>
              </table>
            </div>
            ${!running.whole && html`<div class="more"><span>Jobs of agents are looked for among the 500 running ones that were enqueued last.</span></div>`}
          </section>`
        : html`<section class="panel">
            <${Nothing} state="plain" title="No agent holds a lease"
              >An agent is listed while it waits for a job or works on one. To connect one:
              <code>limpet agent setup</code><//
            >
          </section>`,
    )}
    <div class="cols c2"><${NotTaken} all=${all} /><${Questions} /></div>`;
}

/** The one whose lease ends first. @param {Worker[]} agents */
const sorted = (agents) => [...agents].sort((a, b) => (a.deadline_at < b.deadline_at ? -1 : 1));

/** Types with ready jobs whose capabilities nobody alive has. @param {{all: Worker[]}} props */
function NotTaken({ all }) {
  const types = useData("/types", {}, { everyMs: 10_000 });
  const tasks = useData("/tasks", {}, { everyMs: 5_000 }).value.value?.tasks ?? [];
  const ready = new Map(tasks.map((/** @type {any} */ each) => [each.task, each.states.ready ?? 0]));
  const left = (types.value.value?.types ?? [])
    .map((/** @type {any} */ each) => ({
      ...each,
      n: ready.get(each.type) ?? 0,
      lacks: lacking(each.capabilities, all),
    }))
    .filter((/** @type {any} */ each) => each.n > 0 && each.lacks.length > 0);
  return html`<${Panel} title="No agent can take these" n=${left.length || ""}>
    ${shown(types, () =>
      left.length
        ? html`<ul class="needs">
            ${left.map(
              (/** @type {any} */ each) =>
                html`<li key=${each.type}>
                  <${StateBadge} state="warn" word="" />
                  <p>
                    No live agent has <b class="said">${cut(each.lacks.join(" and "), 100)}</b
                    ><span class="sub mono said">${cut(each.type, 80)}</span>
                  </p>
                  <span class="when">${some(each.n, "ready job")}</span>
                  <a class="b tiny" href=${jobsAt(`state:ready ${term("task", each.type)}`)}>Show ${count(each.n)}</a>
                </li>`,
            )}
          </ul>`
        : html`<p class="pad dim">
            Every ready job of a type has an agent that could take it, or asks no capability.
          </p>`,
    )}
  <//>`;
}

/** Capabilities that no one session has together. @param {string[]} needed @param {Worker[]} all */
function lacking(needed, all) {
  if (!needed.length || all.some((each) => needed.every((one) => each.capabilities.includes(one)))) return [];
  const none = needed.filter((one) => !all.some((each) => each.capabilities.includes(one)));
  return none.length ? none : needed;
}

function Questions() {
  const entry = useData("/approvals", { limit: 100 }, { everyMs: 2_000 });
  const asked = (entry.value.value?.approvals ?? []).filter((/** @type {any} */ each) => each.kind === "question");
  return html`<${Panel} title="Asked by agents" n=${asked.length || ""}>
    ${shown(entry, () =>
      asked.length
        ? html`<ul class="needs">
            ${asked.map(
              (/** @type {any} */ each) =>
                html`<li key=${each.id}>
                  <${StateBadge} state="asks" word="" />
                  <p>
                    “<span class="said">${cut(each.question, 500)}</span>”<span class="sub mono said"
                      ><a href=${at("jobs", each.id)}>${cut(each.task, 80)} ${tail(each.id)}</a></span
                    >
                  </p>
                  <span class="when"
                    >${each.until ? html`ends <${Ago} iso=${each.until} />` : html`job is <${Age} iso=${each.enqueued_at} /> old`}</span
                  >
                  <${Action} tiny label="Answer…" name="Answer… ${cut(each.question, 60)}" run=${() => answer(each)} />
                </li>`,
            )}
          </ul>`
        : html`<p class="pad dim">No agent asks anything.</p>`,
    )}
  <//>`;
}

/** @param {import("../api.d.ts").ApprovalRecord} asked */
const answer = (asked) =>
  askReason({
    title: `Answer what job ${tail(asked.id)} asks`,
    about: html`<span class="said">${cut(asked.question, 500)}</span>`,
    button: "Answer 1 question",
    safe: "Answer later",
    noReason: true,
    method: "POST",
    path: `/jobs/${part(asked.id)}/answer`,
    fields: [{ name: "text", label: "Answer", note: "its next agent reads it", required: true }],
    told: (told) => told.text,
  });
