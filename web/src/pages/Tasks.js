// What runs, how often does it fail, how long does it take? Every task that code has published or that has jobs.
import { html } from "../lib/html.js";
import { part } from "../lib/api.js";
import { useData } from "../lib/answers.js";
import { at, jobsAt } from "../lib/place.js";
import { count, cut, duration, figure, json, percent, some, term } from "../lib/words.js";
import { Action, Locked } from "../components/Action.js";
import { Num } from "../components/Num.js";
import { Nothing, shown } from "../components/Odd.js";
import { Panel } from "../components/Panel.js";
import { RecordTable } from "../components/RecordTable.js";
import { useHeading } from "../components/Shell.js";
import { askReason } from "../dialogs/AskReason.js";
import { FactList } from "./JobFacts.js";

/** @typedef {import("../api.d.ts").TaskRecord} Task */

/** @param {{name?: string | null}} props */
export function Tasks({ name = null }) {
  const entry = useData("/tasks");
  const series = useData("/stats/series", { last: "1h", by: "task" }, { everyMs: 5_000 }).value.value;
  const lines = new Map((series?.lines ?? []).map((/** @type {any} */ each) => [each.task, each.whole]));
  const all = /** @type {Task[]} */ (entry.value.value?.tasks ?? []);
  useHeading("Tasks", { title: name ? `${name} · Tasks` : "Tasks" });
  const time = (/** @type {number | null | undefined} */ s) =>
    s === null || s === undefined ? html`<span class="dim">–</span>` : duration(s * 1_000);
  const columns = [
    {
      head: "Task",
      name: true,
      cell: (/** @type {Task} */ each) =>
        html`<a class="mono said" href=${at("tasks", each.task)}>${cut(each.task, 80)}</a
          >${!each.declared && html` <span class="tag">not declared</span>`}`,
    },
    {
      head: "Queue",
      rank: "p2",
      cell: (/** @type {Task} */ each) =>
        each.queue ? html`<a class="said" href=${at("queues", each.queue)}>${cut(each.queue, 60)}</a>` : "–",
    },
    {
      head: "Ended a minute",
      kind: "num",
      rank: "p1",
      cell: (/** @type {Task} */ each) => figure(lines.get(each.task)?.finished ?? 0),
    },
    {
      head: "Failed",
      kind: "num",
      cell: (/** @type {Task} */ each) => share(lines.get(each.task)?.failed_share ?? null),
    },
    {
      head: "Run p50",
      kind: "num",
      rank: "p2",
      cell: (/** @type {Task} */ each) => time(lines.get(each.task)?.run_p50_s),
    },
    {
      head: "Run p95",
      kind: "num",
      rank: "p1",
      cell: (/** @type {Task} */ each) => time(lines.get(each.task)?.run_p95_s),
    },
    {
      head: "Wait p95",
      kind: "num",
      rank: "p3",
      cell: (/** @type {Task} */ each) => time(lines.get(each.task)?.wait_p95_s),
    },
    ...["ready", "running", "dead"].map((word) => ({
      head: word[0].toUpperCase() + word.slice(1),
      kind: "num",
      rank: word === "dead" ? "" : "p1",
      cell: (/** @type {any} */ each) =>
        html`<${Num}
          n=${each.states[word] ?? 0}
          href=${jobsAt(`state:${word} ${term("task", each.task)}`)}
          class=${word === "dead" && each.states.dead ? "dead-t" : ""}
        />`,
    })),
    {
      head: "Workers",
      kind: "num",
      rank: "p2",
      cell: (/** @type {Task} */ each) => (each.workers ? count(each.workers) : html`<span class="warn-t">0</span>`),
    },
  ];
  return html`<div class="pagebar"><p class="grow">Rates and times of the last hour, by what workers counted.</p></div>
    ${shown(entry, () =>
      all.length
        ? html`<${Panel} title="Tasks" n=${all.length}
            ><${RecordTable}
              key=${name ?? ""}
              label="Tasks"
              rows=${all}
              columns=${columns}
              keyOf=${(/** @type {Task} */ each) => each.task}
              opened=${name}
              detail=${(/** @type {Task} */ each) => html`<${Detail} task=${each} />`}
          /><//>`
        : html`<section class="panel">
            <${Nothing} state="plain" title="No task yet">A worker publishes the tasks of its app when it starts.<//>
          </section>`,
    )}`;
}

/** @param {number | null} part */
const share = (part) =>
  part === null
    ? html`<span class="dim">–</span>`
    : html`<span class=${part > 0.1 ? "dead-t" : part ? "" : "dim"}>${percent(part)}</span>`;

/** @param {{task: Task}} props */
function Detail({ task }) {
  const whole = useData(`/tasks/${part(task.task)}`, {}, { everyMs: 10_000 });
  const jobs = Object.values(task.states).reduce((sum, each) => sum + Number(each), 0);
  return shown(
    whole,
    (found) =>
      html`<div class="cols c2">
        <div class="mini">
          <h3>Declared</h3>
          <${FactList}
            facts=${[
              ["Jobs", html`<a class="link" href=${jobsAt(term("task", task.task))}>${some(jobs, "job")}</a>`],
              ["Attempts", task.attempts],
              ["Timeout", task.timeout_s === null ? null : duration(task.timeout_s * 1_000)],
              ["Runs in", task.executor],
              ["Limits", task.limits.join(", ")],
              [
                "Breaker",
                task.breaker &&
                  html`<a class="link mono small said" href=${at("limits", task.breaker)}>${task.breaker}</a>`,
              ],
              ["Former names", task.aliases.join(", ")],
              ["Hooks", found.hooks.join(", ")],
            ]}
          />
          <div class="row wrap"><${PauseTask} name=${task.task} /><${Locked} what="Pausing a task" /></div>
        </div>
        <div class="mini">
          <h3>Arguments, as JSON Schema</h3>
          <pre class="codebox" tabindex="0">${json(found.arguments)}</pre>
        </div>
      </div>`,
    3,
  );
}

/** @param {{name: string}} props */
function PauseTask({ name }) {
  const body = { key: `task:${name}` };
  return html`<${Action}
      tiny
      label="Pause…"
      run=${() => askReason({ title: `Pause task ${cut(name, 60)}`, about: "No more of its jobs start. Running ones continue.", button: "Pause it", safe: "Let it run", method: "POST", path: "/pause", body, told: () => `Task ${name} is paused.` })}
    />
    <${Action}
      tiny
      label="Resume…"
      run=${() => askReason({ title: `Resume task ${cut(name, 60)}`, button: "Resume it", safe: "Leave it", method: "POST", path: "/resume", body, told: () => `Task ${name} is resumed.` })}
    />`;
}
