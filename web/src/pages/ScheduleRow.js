// One schedule; opened: its next five ticks, what became of the last ones, its rules, and what a person may do.
import { html } from "../lib/html.js";
import { part } from "../lib/api.js";
import { useData } from "../lib/answers.js";
import { now } from "../lib/clock.js";
import { openDialog } from "../lib/overlays.js";
import { at } from "../lib/place.js";
import { cut, duration, instant, json } from "../lib/words.js";
import { Action } from "../components/Action.js";
import { Fold } from "../components/Fold.js";
import { StateBadge } from "../components/StateBadge.js";
import { Ago, At } from "../components/Time.js";
import { askSchedule } from "../dialogs/askSchedule.js";
import { Backfill } from "../dialogs/Backfill.js";
import { FactList } from "./JobFacts.js";

/** @typedef {import("../api.d.ts").ScheduleRecord} Schedule */
/** @typedef {import("../api.d.ts").ScheduleDetail} ScheduleDetail */
/** @typedef {import("../api.d.ts").TickRecord} Tick */

const COLUMNS = 8;
const STRIP = 8;
const NEXT = 5;

const OVERLAP = /** @type {Record<string, string>} */ ({
  skip: "no run while the last one is not finished",
  queue_one: "one run may wait behind the one that runs",
  allow: "runs go side by side",
  cancel_running: "the older run is cancelled",
});
const CATCH_UP = /** @type {Record<string, string>} */ ({
  skip: "missed ticks do not fire",
  last: "of missed ticks the newest fires",
  all: "every missed tick fires late",
});
const DROPPED = /** @type {Record<string, string>} */ ({
  overlap: "dropped: the last run was not finished",
  unique: "dropped: a job held its unique key",
  missed: "missed",
  expired: "came too late",
});

/** @param {{schedule: Schedule, open: boolean, to: string, asks: boolean}} props `asks`: for its last runs */
export function ScheduleRow({ schedule, open, to, asks }) {
  const path = asks && schedule.state !== "unreadable" ? `/schedules/${part(schedule.name)}` : null;
  const detail = /** @type {ScheduleDetail | undefined} */ (useData(path, {}, { everyMs: 5_000 }).value.value);
  const odd = schedule.state !== "on";
  return html`<tr class=${open ? "open" : ""}>
      <th scope="row">
        <span class="row wrap"
          ><${Fold} open=${open} of=${cut(schedule.name, 80)} to=${to} /><a class="mono said any" href=${to}
            >${cut(schedule.name, 80)}</a
          >${odd && html`<${StateBadge} state=${schedule.state} pill />`}</span
        >
        <span class="sub only-s said">${cut(schedule.when, 120)}</span>
      </th>
      <td class="p1 said">${cut(schedule.when, 120)}</td>
      <td class="num">
        ${schedule.next_at.length ? html`<${Ago} iso=${schedule.next_at[0]} />` : html`<span class="dim">${schedule.state === "paused" ? "when resumed" : "–"}</span>`}
      </td>
      <td class="num p3 dim"><${At} iso=${schedule.next_at[0] ?? null} /></td>
      <td class="p1"><${Strip} ticks=${detail?.ticks} /></td>
      <td class="p2 small">
        <a class="mono mid said" href=${at("tasks", schedule.task)}>${cut(schedule.task, 60)}</a>
      </td>
      <td class="p3 small dim said">${by(schedule)}</td>
      <td class="go p1"><${RunNow} schedule=${schedule} quiet /></td>
    </tr>
    ${
      open &&
      html`<tr class="detail">
        <td colspan=${COLUMNS}><${Opened} schedule=${schedule} ticks=${detail?.ticks ?? []} /></td>
      </tr>`
    }`;
}

/** @param {Schedule} schedule */
const by = (schedule) =>
  schedule.changed_by ? `${cut(schedule.changed_by, 40)}, over code` : cut(schedule.source, 40);

/** @param {{schedule: Schedule, quiet?: boolean}} props */
const RunNow = ({ schedule, quiet = false }) =>
  html`<${Action}
    tiny
    kind=${quiet ? "quiet" : ""}
    icon="bolt"
    label="Run now…"
    name="Run now… ${cut(schedule.name, 80)}"
    run=${() => askSchedule("run", schedule)}
  />`;

/** The last runs, the newest at the right. @param {{ticks: readonly Tick[] | undefined}} props */
function Strip({ ticks }) {
  if (!ticks) return null;
  if (!ticks.length) return html`<span class="small dim">no run yet</span>`;
  const last = ticks.slice(0, STRIP).reverse();
  return html`<span class="strip" role="img" aria-label="Last runs, the newest last: ${last.map(wordOf).join(", ")}"
    >${last.map((each) => html`<${StateBadge} state=${shapeOf(each)} word="" />`)}</span
  >`;
}

/** @param {Tick} tick */
const shapeOf = (tick) => (tick.fired ? (tick.state ?? "plain") : "cancelled");

/** @param {Tick} tick */
const wordOf = (tick) => (tick.fired ? (tick.state ?? "no longer stored") : (DROPPED[tick.why ?? ""] ?? "dropped"));

/** @param {{schedule: Schedule, ticks: readonly Tick[]}} props */
function Opened({ schedule, ticks }) {
  return html`${
      schedule.note &&
      html`<p class="note-box">
        <${StateBadge} state="warn" word="" /><span class="said"
          >${cut(schedule.note, 500)}${schedule.fix ? `: ${schedule.fix}` : ""}</span
        >
      </p>`
    }
    <div class="cols c3">
      <div class="mini">
        <h3>Next five, UTC</h3>
        ${
          schedule.next_at.length
            ? html`<ul class="nextfive">
                ${schedule.next_at.slice(0, NEXT).map(
                  (each) =>
                    html`<li key=${each}>
                      <span><${At} iso=${each} /></span><span class="dim"><${Ago} iso=${each} /></span>
                    </li>`,
                )}
              </ul>`
            : html`<p class="small dim">
                None${schedule.state === "paused" ? html`: paused by <span class="said">${schedule.paused_by}</span>${schedule.paused_reason && html`, <span class="said">${cut(schedule.paused_reason)}</span>`}` : "."}
              </p>`
        }
      </div>
      <div class="mini">
        <h3>Last runs</h3>
        ${
          ticks.length
            ? html`<ul class="nextfive">
                ${ticks.slice(0, STRIP).map((each) => html`<${LastRun} key=${each.at} tick=${each} />`)}
              </ul>`
            : html`<p class="small dim">No tick yet.</p>`
        }
      </div>
      <div class="mini">
        <h3>What becomes of a tick</h3>
        <${FactList}
          facts=${[
            ["Overlap", `${schedule.overlap}: ${OVERLAP[schedule.overlap] ?? ""}`],
            ["Catch up", `${schedule.catch_up}: ${CATCH_UP[schedule.catch_up] ?? "so many missed ticks fire late"}`],
            ["Jitter", schedule.jitter_s ? `up to ${duration(schedule.jitter_s * 1_000)}` : null],
            [
              "Expires",
              schedule.expires_in_s === null
                ? null
                : `a run is cancelled after ${duration(schedule.expires_in_s * 1_000)} of waiting`,
            ],
            [
              "Cron",
              schedule.rule.expr && html`<code class="any">${schedule.rule.expr}</code> ${schedule.rule.tz ?? ""}`,
            ],
            [
              "Arguments",
              Object.keys(schedule.args).length
                ? html`<code class="any">${cut(json(schedule.args, 0), 500)}</code>`
                : null,
            ],
          ]}
        />
        <${Acts} schedule=${schedule} />
      </div>
    </div>`;
}

/** @param {{tick: Tick}} props */
function LastRun({ tick }) {
  const word = html`<${StateBadge} state=${shapeOf(tick)} word=${instant(tick.at, now.value)} />`;
  return html`<li>
    <span>${tick.job ? html`<a href=${at("jobs", tick.job)}>${word}</a>` : word}</span>
    <span class="dim"
      >${wordOf(tick)}${tick.count > 1 ? `, ${tick.count} times` : ""}${tick.fired && tick.late_s >= 1 ? `, ${duration(tick.late_s * 1_000)} late` : ""}</span
    >
  </li>`;
}

/** @param {{schedule: Schedule}} props */
function Acts({ schedule }) {
  const act = (/** @type {string} */ verb) => () => askSchedule(verb, schedule);
  if (schedule.state === "unreadable") return null;
  return html`<div class="row wrap acts">
    <${RunNow} schedule=${schedule} />
    <${Action} tiny label="Backfill…" run=${() => openDialog(Backfill, { schedule })} />
    ${schedule.state === "paused" ? html`<${Action} tiny icon="play" label="Resume…" run=${act("resume")} />` : html`<${Action} tiny icon="pause" label="Pause…" run=${act("pause")} />`}
    ${schedule.changed_by && html`<${Action} tiny icon="retry" label="Reset to code…" run=${act("reset")} />`}
    ${schedule.source !== "code" || schedule.state === "absent" ? html`<${Action} tiny kind="danger" icon="trash" label="Remove…" run=${act("remove")} />` : null}
  </div>`;
}
