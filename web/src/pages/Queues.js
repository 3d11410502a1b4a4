// Which queue falls behind, and when is it over? The worst oldest job first.
import { html } from "../lib/html.js";
import { part } from "../lib/api.js";
import { useData } from "../lib/answers.js";
import { at, jobsAt } from "../lib/place.js";
import { count, cut, duration, figure, some, STATES, term, earlier } from "../lib/words.js";
import { Action, Locked } from "../components/Action.js";
import { Spark } from "../components/Bars.js";
import { Meter } from "../components/Meter.js";
import { Num } from "../components/Num.js";
import { Nothing, shown } from "../components/Odd.js";
import { Panel } from "../components/Panel.js";
import { RecordTable } from "../components/RecordTable.js";
import { useHeading } from "../components/Shell.js";
import { StateBadge } from "../components/StateBadge.js";
import { Age, Ago } from "../components/Time.js";
import { askReason } from "../dialogs/AskReason.js";

/** @typedef {import("../api.d.ts").QueueRecord} Queue */

/** @param {{name?: string | null}} props the queue that is open */
export function Queues({ name = null }) {
  const entry = useData("/queues");
  const series = useData("/stats/series", { last: "1h", by: "queue" }, { everyMs: 5_000 }).value.value;
  const lines = new Map((series?.lines ?? []).map((/** @type {any} */ each) => [each.queue, each]));
  const all = sorted(entry.value.value?.queues ?? []);
  const late = all.filter((each) => each.paused || each.draining).length;
  useHeading("Queues", { title: name ?? (late ? `${late} paused · Queues` : "Queues") });
  const columns = [
    {
      head: "Queue",
      name: true,
      cell: (/** @type {Queue} */ each) =>
        html`<a class="said" href=${at("queues", each.queue)}>${cut(each.queue, 80)}</a> ${state(each)}`,
    },
    { head: "Oldest", kind: "num", cell: (/** @type {Queue} */ each) => html`<${Age} iso=${each.oldest_ready_at} />` },
    ...["ready", "scheduled", "blocked", "running", "dead"].map((word) => ({
      head: word[0].toUpperCase() + word.slice(1),
      kind: "num",
      rank: word === "blocked" || word === "scheduled" ? "p2" : word === "running" ? "p1" : "",
      cell: (/** @type {any} */ each) =>
        html`<${Num}
          n=${each[word]}
          href=${jobsAt(`state:${word} ${term("queue", each.queue)}`)}
          class=${word === "dead" && each.dead ? "dead-t" : ""}
        />`,
    })),
    {
      head: "Ended a minute",
      kind: "num",
      rank: "p2",
      cell: (/** @type {Queue} */ each) => rate(lines.get(each.queue)),
    },
    {
      head: "Ready, 1h",
      rank: "p3",
      cell: (/** @type {Queue} */ each) =>
        html`<${Spark}
          class="in-cell"
          kind="ready"
          values=${(lines.get(each.queue)?.depth?.ready ?? []).map((/** @type {number | null} */ n) => n ?? 0)}
        />`,
    },
    {
      head: "Over in",
      kind: "num",
      rank: "p1",
      cell: (/** @type {Queue} */ each) => html`<span class="mid">${drainTime(each, lines.get(each.queue))}</span>`,
    },
    { head: "", kind: "go", rank: "p1", cell: (/** @type {Queue} */ each) => html`<${PauseAction} queue=${each} />` },
  ];
  return html`<${Locked} what="Pausing a queue" /> ${shown(entry, () =>
      all.length
        ? html`<${Panel} title="Queues" n=${all.length} end="the oldest waiting job first"
            ><${RecordTable}
              key=${name ?? ""}
              label="Queues"
              rows=${all}
              columns=${columns}
              keyOf=${(/** @type {Queue} */ each) => each.queue}
              opened=${name}
              detail=${(/** @type {Queue} */ each) => html`<${Detail} queue=${each} line=${lines.get(each.queue)} />`}
          /><//>`
        : html`<section class="panel">
            <${Nothing} title="No queue yet">A queue is there with its first job, or with a worker that serves it.<//>
          </section>`,
    )}`;
}

/** @param {Queue[]} queues */
const sorted = (queues) =>
  [...queues].sort((a, b) => earlier(a.oldest_ready_at, b.oldest_ready_at) || a.queue.localeCompare(b.queue));

/** @param {Queue} queue */
const state = (queue) =>
  queue.paused
    ? html`<${StateBadge} state="paused" pill />`
    : queue.draining
      ? html`<${StateBadge} state="draining" pill />`
      : "";

/** @param {any} line */
const rate = (line) => (line ? figure(line.whole.finished) : html`<span class="dim">–</span>`);

/** How long the ready jobs take at the pace of the last hour, in words. @param {Queue} queue @param {any} line */
function drainTime(queue, line) {
  if (queue.paused) return "paused";
  if (!queue.ready) return "nothing waits";
  const points = line?.whole.finished ?? 0;
  return points ? duration((queue.ready / points) * 60_000) : "never at this rate";
}

/** @param {{queue: Queue}} props */
function PauseAction({ queue }) {
  const path = `/queues/${part(queue.queue)}`;
  if (queue.paused || queue.draining)
    return html`<${Action}
      tiny
      label="Resume…"
      name=${`Resume ${queue.queue}`}
      run=${() => askReason({ title: `Resume queue ${cut(queue.queue, 60)}`, about: `${some(queue.ready, "ready job")} may start at once.`, button: "Resume it", safe: "Leave it paused", method: "POST", path: `${path}/resume`, told: () => `Queue ${queue.queue} is resumed.` })}
    />`;
  return html`<${Action}
    tiny
    label="Pause…"
    name=${`Pause ${queue.queue}`}
    run=${() => askReason({ title: `Pause queue ${cut(queue.queue, 60)}`, about: `No more of its jobs start. ${some(queue.running, "running job")} continue.`, button: "Pause it", safe: "Let it run", method: "POST", path: `${path}/pause`, told: () => `Queue ${queue.queue} is paused. ${some(queue.running, "running job")} continue.` })}
  />`;
}

/** @param {{queue: Queue, line: any}} props */
function Detail({ queue, line }) {
  const workers = useData("/workers", {}, { everyMs: 5_000 }).value.value?.workers ?? [];
  const serving = workers.filter(
    (/** @type {any} */ each) => each.queues === null || each.queues.includes(queue.queue),
  );
  const oldest = useData(
    queue.ready ? "/jobs" : null,
    { q: `state:ready ${term("queue", queue.queue)}`, limit: 1 },
    { everyMs: 5_000 },
  ).value.value?.jobs[0];
  const why = useData(oldest ? `/jobs/${part(oldest.id)}/explain` : null, {}, { everyMs: 5_000 }).value.value;
  const whole = STATES.reduce((sum, each) => sum + queue[each], 0) || 1;
  const path = `/queues/${part(queue.queue)}`;
  return html`<div class="stack close">
    <${Meter} tall parts=${STATES.map((each) => [each, queue[each] / whole])} />
    <div class="cols c3">
      <div class="mini">
        <h3>Why jobs wait</h3>
        ${queue.paused && html`<p>Paused by <b class="said">${queue.paused.by}</b> <${Ago} iso=${queue.paused.at} />${queue.paused.reason && html`: <span class="said">${queue.paused.reason}</span>`}.</p>`}
        ${why ? html`<p class="said">${why.text}</p>` : !queue.ready && html`<p class="mid">No job waits for a worker.</p>`}
      </div>
      <div class="mini">
        <h3>Who serves it</h3>
        ${serving.length ? serving.slice(0, 6).map((/** @type {any} */ each) => html`<p><a class="link mono small said" href=${at("workers")}>${each.session}</a> <span class="dim">${count(each.running)} running</span></p>`) : html`<p class="warn-t">No live worker serves this queue.</p>`}
      </div>
      <div class="mini">
        <h3>Its rules</h3>
        <p>
          ${queue.concurrency === null ? "No ceiling of its own" : `${count(queue.concurrency)} at once`}${queue.depth === null ? "" : `, ${count(queue.depth)} may wait`}${queue.tenant_depth === null ? "" : `, ${count(queue.tenant_depth)} of a tenant`}.
        </p>
        <p class="mid">
          ${line ? `In the last hour: wait p95 ${seconds(line.whole.wait_p95_s)}, run p95 ${seconds(line.whole.run_p95_s)}.` : ""}
        </p>
        ${!queue.draining && html`<${Action} tiny label="Drain…" run=${() => askReason({ title: `Drain queue ${cut(queue.queue, 60)}`, about: "New jobs are refused, and the rest is worked off. Then it is paused.", button: "Drain it", safe: "Let it run", method: "POST", path: `${path}/drain`, told: () => `Queue ${queue.queue} drains.` })} />`}
      </div>
    </div>
  </div>`;
}

/** @param {number | null} s */
const seconds = (s) => (s === null ? "unknown" : duration(s * 1_000));
