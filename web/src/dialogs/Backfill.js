// Asks for the runs of a range in the past, after a look at how many ticks it has and which are stored already.
import { useEffect, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { ask, part } from "../lib/api.js";
import { now } from "../lib/clock.js";
import { refreshAll } from "../lib/answers.js";
import { at, go } from "../lib/place.js";
import { session } from "../lib/session.js";
import { say } from "../lib/toasts.js";
import { count, cut, instant, some } from "../lib/words.js";
import { Dialog } from "../components/Dialog.js";
import { Reason } from "./Reason.js";

const DAY_MS = 86_400_000;
const WAIT_MS = 200;

/** @param {number} ms as the field of an instant takes it, in UTC */
const written = (ms) => new Date(ms).toISOString().slice(0, 16);

/** @param {{schedule: import("../api.d.ts").ScheduleRecord, close: () => void}} props */
export function Backfill({ schedule, close }) {
  const path = `/schedules/${part(schedule.name)}/backfill`;
  const [range, setRange] = useState(() => ({
    start: written(now.value - DAY_MS),
    end: written(now.value),
    again: false,
  }));
  const [reason, setReason] = useState("");
  const [found, setFound] = useState(/** @type {{report: any, problem: any}} */ ({ report: null, problem: null }));
  const body = { start: `${range.start}:00Z`, end: `${range.end}:00Z`, again: range.again };
  useEffect(() => {
    if (!range.start || !range.end) return setFound({ report: null, problem: null });
    const stop = new AbortController();
    const timer = setTimeout(() => {
      ask("POST", path, { body: { ...body, dry_run: true }, signal: stop.signal }).then(
        (report) => setFound({ report, problem: null }),
        (problem) => stop.signal.aborted || setFound({ report: null, problem }),
      );
    }, WAIT_MS);
    return () => (clearTimeout(timer), stop.abort());
  }, [range]);
  const { report, problem } = found;
  const n = report ? report.ticks - (range.again ? 0 : report.existing) : 0;
  const submit = async () => {
    if (!n) return;
    try {
      const done = await ask("POST", path, { body: { ...body, reason } });
      say(
        "succeeded",
        `${some(done.enqueued, "run")} of ${cut(schedule.name, 80)} ${done.enqueued === 1 ? "was" : "were"} asked for.`,
        {
          label: "Show them",
          run: () => go(at("jobs", null, { q: `task:${schedule.task}` })),
        },
      );
      close();
    } catch (refusal) {
      setFound({ report, problem: refusal });
    }
    await refreshAll();
  };
  const field = (/** @type {"start" | "end"} */ name, /** @type {string} */ label) =>
    html`<div class="field">
      <label for=${name}>${label}<span class="dim">UTC</span></label>
      <input
        class="input"
        type="datetime-local"
        id=${name}
        value=${range[name]}
        onInput=${(/** @type {any} */ e) => setRange({ ...range, [name]: e.target.value })}
      />
    </div>`;
  return html`<${Dialog}
    small
    title="Backfill ${cut(schedule.name, 80)}"
    lead="Each tick of the range gets the run that it would have had."
    close=${close}
    onSubmit=${submit}
    footer=${html`<span class="note">as <b>${session.value?.name}</b></span
      ><button class="b" type="button" onClick=${close}>Ask for none</button
      ><button class="b primary" type="submit" disabled=${!n}>Ask for ${some(n, "run")}</button>`}
  >
    <div class="cols c2">${field("start", "First tick")}${field("end", "Last tick")}</div>
    <label class="row"
      ><input
        class="check"
        type="checkbox"
        checked=${range.again}
        onChange=${(/** @type {any} */ e) => setRange({ ...range, again: e.target.checked })}
      />Also ticks whose run is stored</label
    >
    ${problem && html`<p class="refusal" role="alert">${problem.message} ${problem.fix}</p>`}
    ${report && html`<${Verdict} report=${report} n=${n} />`}
    <${Reason} reason=${reason} setReason=${setReason} />
  <//>`;
}

/** @param {{report: import("../api.d.ts").BackfillReport, n: number}} props */
function Verdict({ report, n }) {
  if (!report.ticks)
    return html`<p class="note-box"><span></span>It has no tick in this range, so nothing would run.</p>`;
  const said = (/** @type {string | null} */ iso) => (iso ? instant(iso, now.value) : "–");
  return html`<ul class="verdict" aria-label="Dry run: nothing has changed yet">
    <li>
      <span></span><b>${count(n)}</b
      ><span>${n === 1 ? "run" : "runs"} would be asked for, ${said(report.first_at)} to ${said(report.last_at)}</span>
    </li>
    ${report.existing > 0 && html`<li><span></span><b>${count(report.existing)}</b><span>of the ticks have a run that is stored</span></li>`}
  </ul>`;
}
