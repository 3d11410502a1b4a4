// Is anything wrong, and where? First what needs a person, then where jobs are, then how it went.
import { html } from "../lib/html.js";
import { useData } from "../lib/answers.js";
import { at, jobsAt, place } from "../lib/place.js";
import { bareKey, count, duration, percent, term } from "../lib/words.js";
import { Ledger } from "../components/Ledger.js";
import { Meter } from "../components/Meter.js";
import { Needs } from "../components/Needs.js";
import { Num } from "../components/Num.js";
import { shown } from "../components/Odd.js";
import { Panel } from "../components/Panel.js";
import { Seg } from "../components/Seg.js";
import { useHeading } from "../components/Shell.js";
import { Age, Ago } from "../components/Time.js";
import { Charts } from "./OverviewCharts.js";
import { FirstSteps } from "./FirstSteps.js";
import { useNeeds } from "./useNeeds.js";

const RANGES = ["15m", "1h", "6h", "24h"];

export function Overview() {
  const range = place.value.query.get("range") ?? "1h";
  const stats = useData("/stats");
  const needs = useNeeds();
  const series = useData("/stats/series", { last: range }, { everyMs: 5_000 });
  const many = needs.length;
  useHeading("Overview", { title: many ? `${many} ${many === 1 ? "needs" : "need"} a person · Overview` : "Overview" });
  if (stats.value.value && isNew(stats.value.value)) return html`<${FirstSteps} />`;
  return html`<div class="pagebar">
      <p class="grow">Last ${range}, by what workers counted.</p>
      <${Seg}
        label="Range"
        chosen=${range}
        choices=${RANGES.map((each) => ({ key: each, label: each, href: at("overview", null, { range: each === "1h" ? null : each }) }))}
      />
    </div>
    <${Needs} found=${needs} />
    ${shown(stats, (value) => html`<${Ledger} stats=${value} series=${series.value.value} range=${range} />`)}
    <${Charts} series=${series.value.value} />
    <div class="cols c3"><${FailingTasks} /><${SlowTasks} /><${OldestWaiting} /></div>
    <div class="cols c3"><${FullLimits} /><${NextSchedules} /><${WhoWorks} /></div>`;
}

/** @param {import("../api.d.ts").StatsRecord} stats */
const isNew = (stats) => stats.ever?.enqueued === 0;

const MOST = 5;

function FailingTasks() {
  const tasks = useData("/tasks");
  return html`<${Panel} title="Failing tasks" end="attempts a minute">
    ${shown(tasks, ({ tasks }) => {
      const failing = tasks
        .filter((/** @type {any} */ each) => each.last_minute.failed > 0 || each.states.dead)
        .sort(
          (/** @type {any} */ a, /** @type {any} */ b) =>
            b.last_minute.failed - a.last_minute.failed || (b.states.dead ?? 0) - (a.states.dead ?? 0),
        );
      if (!failing.length) return html`<p class="pad dim">No task fails now, and none has dead jobs.</p>`;
      return html`<div class="wrap-t">
        <table class="dense tight">
          <thead>
            <tr>
              <th scope="col">Task</th>
              <th class="num" scope="col">Failed</th>
              <th class="num" scope="col">Share</th>
              <th class="num" scope="col">Dead</th>
            </tr>
          </thead>
          <tbody>
            ${failing.slice(0, MOST).map(
              (/** @type {any} */ each) =>
                html`<tr key=${each.task}>
                  <th scope="row" class="any">
                    <a class="mono said" href=${jobsAt(`${term("task", each.task)} state:scheduled,dead attempt>=1`)}
                      >${each.task}</a
                    >
                  </th>
                  <td class="num">
                    ${each.last_minute.failed ? count(each.last_minute.failed) : html`<span class="dim">0</span>`}
                  </td>
                  <td class="num ${(each.last_minute.failed_share ?? 0) > 0.1 ? "dead-t" : "mid"}">
                    ${each.last_minute.failed_share === null ? "–" : percent(each.last_minute.failed_share)}
                  </td>
                  <td class="num">
                    <${Num} n=${each.states.dead ?? 0} href=${jobsAt(`state:dead ${term("task", each.task)}`)} />
                  </td>
                </tr>`,
            )}
          </tbody>
        </table>
      </div>`;
    })}
  <//>`;
}

function SlowTasks() {
  const tasks = useData("/tasks");
  return html`<${Panel} title="Slow tasks" end="run time, last minute">
    ${shown(tasks, ({ tasks }) => {
      const slow = tasks
        .filter((/** @type {any} */ each) => each.last_minute.run_p95_s !== null)
        .sort((/** @type {any} */ a, /** @type {any} */ b) => b.last_minute.run_p95_s - a.last_minute.run_p95_s);
      if (!slow.length) return html`<p class="pad dim">No attempt has ended in the last minute.</p>`;
      return html`<div class="wrap-t">
        <table class="dense tight">
          <thead>
            <tr>
              <th scope="col">Task</th>
              <th class="num" scope="col">p50</th>
              <th class="num" scope="col">p95</th>
            </tr>
          </thead>
          <tbody>
            ${slow.slice(0, MOST).map(
              (/** @type {any} */ each) =>
                html`<tr key=${each.task}>
                  <th scope="row" class="any">
                    <a class="mono said" href=${jobsAt(term("task", each.task))}>${each.task}</a>
                  </th>
                  <td class="num">${duration(each.last_minute.run_p50_s * 1_000)}</td>
                  <td class="num">${duration(each.last_minute.run_p95_s * 1_000)}</td>
                </tr>`,
            )}
          </tbody>
        </table>
      </div>`;
    })}
  <//>`;
}

function OldestWaiting() {
  const queues = useData("/queues");
  return html`<${Panel} title="Oldest waiting" end="by queue">
    ${shown(queues, ({ queues }) => {
      const waiting = queues
        .filter((/** @type {any} */ each) => each.oldest_ready_at)
        .sort((/** @type {any} */ a, /** @type {any} */ b) => (a.oldest_ready_at < b.oldest_ready_at ? -1 : 1));
      if (!waiting.length) return html`<p class="pad dim">No job waits for a worker.</p>`;
      return html`<div class="wrap-t">
        <table class="dense tight">
          <thead>
            <tr>
              <th scope="col">Queue</th>
              <th class="num" scope="col">Oldest</th>
              <th class="num" scope="col">Ready</th>
              <th scope="col">Why</th>
            </tr>
          </thead>
          <tbody>
            ${waiting.slice(0, MOST).map(
              (/** @type {any} */ each) =>
                html`<tr key=${each.queue}>
                  <th scope="row" class="any"><a class="said" href=${at("queues", each.queue)}>${each.queue}</a></th>
                  <td class="num"><${Age} iso=${each.oldest_ready_at} /></td>
                  <td class="num">
                    <${Num} n=${each.ready} href=${jobsAt(`state:ready ${term("queue", each.queue)}`)} />
                  </td>
                  <td class="small ${each.paused ? "warn-t" : "dim"}">
                    ${each.paused ? "paused" : each.draining ? "drains" : each.running ? `${count(each.running)} running` : "none runs"}
                  </td>
                </tr>`,
            )}
          </tbody>
        </table>
      </div>`;
    })}
  <//>`;
}

function FullLimits() {
  const limits = useData("/limits", {}, { everyMs: 5_000 });
  const all = limits.value.value?.limits.length ?? 0;
  return html`<${Panel} title="Limits close to full" end=${html`<a class="link" href=${at("limits")}>all ${all}</a>`}>
    ${shown(limits, ({ limits }) => {
      const full = limits
        .filter((/** @type {any} */ each) => each.waiting || each.held_until || each.shut || level(each) >= 0.5)
        .sort((/** @type {any} */ a, /** @type {any} */ b) => b.waiting - a.waiting || level(b) - level(a));
      if (!full.length) return html`<p class="pad dim">No limit stops a job.</p>`;
      return html`<div class="wrap-t">
        <table class="dense tight">
          <thead>
            <tr>
              <th scope="col">Key</th>
              <th scope="col">Level</th>
              <th class="num" scope="col">Waiting</th>
            </tr>
          </thead>
          <tbody>
            ${full.slice(0, MOST).map(
              (/** @type {any} */ each) =>
                html`<tr key=${each.key}>
                  <th scope="row" class="any">
                    <a class="mono said" href=${at("limits", each.key)}>${bareKey(each.key)}</a>
                  </th>
                  <td>
                    ${each.held_until ? html`<span class="warn-t nowrap">held, <${Ago} iso=${each.held_until} /></span>` : html`<${Meter} parts=${[[level(each) >= 1 ? "warn" : "run", level(each)]]} />`}
                  </td>
                  <td class="num"><${Num} n=${each.waiting} href=${at("limits", each.key)} /></td>
                </tr>`,
            )}
          </tbody>
        </table>
      </div>`;
    })}
  <//>`;
}

/** How much of a limit is taken. @param {any} limit */
function level(limit) {
  if (limit.budget) return limit.budget.cap ? limit.budget.spent / limit.budget.cap : 0;
  if (limit.concurrency) return limit.used / limit.concurrency;
  if (limit.burst && limit.tokens !== null) return 1 - limit.tokens / limit.burst;
  return 0;
}

function NextSchedules() {
  const schedules = useData("/schedules", {}, { everyMs: 5_000 });
  const all = schedules.value.value?.schedules.length ?? 0;
  return html`<${Panel} title="Next schedules" end=${html`<a class="link" href=${at("schedules")}>all ${all}</a>`}>
    ${shown(schedules, ({ schedules }) => {
      const due = schedules.filter((/** @type {any} */ each) => each.state === "on" && each.next_at.length);
      due.sort((/** @type {any} */ a, /** @type {any} */ b) => (a.next_at[0] < b.next_at[0] ? -1 : 1));
      if (!due.length) return html`<p class="pad dim">Nothing is scheduled to repeat.</p>`;
      return html`<div class="wrap-t">
        <table class="dense tight">
          <thead>
            <tr>
              <th scope="col">Schedule</th>
              <th class="num" scope="col">Next</th>
              <th scope="col">When</th>
            </tr>
          </thead>
          <tbody>
            ${due.slice(0, MOST).map(
              (/** @type {any} */ each) =>
                html`<tr key=${each.name}>
                  <th scope="row" class="any"><a class="said" href=${at("schedules", each.name)}>${each.name}</a></th>
                  <td class="num"><${Ago} iso=${each.next_at[0]} /></td>
                  <td class="small mid">${each.when}</td>
                </tr>`,
            )}
          </tbody>
        </table>
      </div>`;
    })}
  <//>`;
}

function WhoWorks() {
  const workers = useData("/workers", {}, { everyMs: 5_000 });
  return html`<${Panel} title="Who works" end=${html`<a class="link" href=${at("workers")}>all</a>`}>
    ${shown(workers, ({ workers }) => {
      if (!workers.length)
        return html`<p class="pad">
          <b>No worker is alive.</b> <span class="mid">Start one: </span><code>limpet worker</code>
        </p>`;
      const running = workers.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + each.running, 0);
      const places = workers.reduce(
        (/** @type {number} */ sum, /** @type {any} */ each) => sum + (each.info?.concurrency ?? 0),
        0,
      );
      const silent = workers.filter((/** @type {any} */ each) => each.silent_s !== null);
      const versions = new Map();
      for (const each of workers)
        if (each.code_version) versions.set(each.code_version, (versions.get(each.code_version) ?? 0) + 1);
      return html`<ul class="pairs">
        <li>
          <span><a href=${at("workers")}>${count(workers.length)} live</a></span
          ><a href=${jobsAt("state:running")}>${count(running)}${places ? ` of ${count(places)} places` : " running"}</a
          >${places > 0 && html`<${Meter} tall parts=${[["run", running / places]]} />`}
        </li>
        ${silent.map((/** @type {any} */ each) => html`<li><a class="warn-t" href=${at("workers")}>${each.session} is silent for ${duration(each.silent_s * 1_000)}</a><span class="dim">${count(each.running)} running</span></li>`)}
        ${versions.size > 0 && html`<li><span>${versions.size === 1 ? "1 version runs" : `${versions.size} versions run`}</span><span class="dim mono small">${[...versions].map(([name, n]) => `${name.slice(0, 12)} on ${n}`).join(", ")}</span></li>`}
      </ul>`;
    })}
  <//>`;
}
