// Did it run, when next? In words, with the next runs and what became of the last ones.
import { html } from "../lib/html.js";
import { part } from "../lib/api.js";
import { useData } from "../lib/answers.js";
import { at, go } from "../lib/place.js";
import { cut, duration, earlier, json, some, tail } from "../lib/words.js";
import { Action, Locked } from "../components/Action.js";
import { Nothing, shown } from "../components/Odd.js";
import { Panel } from "../components/Panel.js";
import { RecordTable } from "../components/RecordTable.js";
import { useHeading } from "../components/Shell.js";
import { StateBadge } from "../components/StateBadge.js";
import { Ago, At } from "../components/Time.js";
import { askReason } from "../dialogs/AskReason.js";

/** @typedef {import("../api.d.ts").ScheduleRecord} Schedule */

/** @param {{name?: string | null}} props */
export function Schedules({ name = null }) {
  const entry = useData("/schedules", {}, { everyMs: 2_000 });
  const all = sorted(entry.value.value?.schedules ?? []);
  useHeading("Schedules", { title: name ? `${name} · Schedules` : "Schedules" });
  const columns = [
    {
      head: "Schedule",
      name: true,
      cell: (/** @type {Schedule} */ each) =>
        html`<a class="said" href=${at("schedules", each.name)}>${cut(each.name, 80)}</a
          >${each.state !== "on" && html` <${StateBadge} state=${each.state} pill />`}`,
    },
    {
      head: "Next",
      kind: "num",
      cell: (/** @type {Schedule} */ each) => html`<${Ago} iso=${each.next_at[0] ?? null} />`,
    },
    { head: "When", rank: "p1", cell: (/** @type {Schedule} */ each) => html`<span class="mid">${each.when}</span>` },
    {
      head: "Task",
      rank: "p2",
      cell: (/** @type {Schedule} */ each) =>
        html`<a class="mono said" href=${at("tasks", each.task)}>${cut(each.task, 60)}</a>`,
    },
    {
      head: "Last",
      kind: "num",
      rank: "p1",
      cell: (/** @type {Schedule} */ each) => html`<${Ago} iso=${each.last_at ?? null} />`,
    },
    {
      head: "",
      kind: "go",
      cell: (/** @type {Schedule} */ each) =>
        html`<span class="row"
          ><${Act} schedule=${each} verb="run" /><${Act}
            schedule=${each}
            verb=${each.state === "paused" ? "resume" : "pause"}
        /></span>`,
    },
  ];
  return html`<${Locked} what="Running and pausing" /> ${shown(entry, () =>
      all.length
        ? html`<${Panel} title="Schedules" n=${all.length} end="the next one first · times in UTC"
            ><${RecordTable}
              key=${name ?? ""}
              label="Schedules"
              rows=${all}
              columns=${columns}
              keyOf=${(/** @type {Schedule} */ each) => each.name}
              opened=${name}
              detail=${(/** @type {Schedule} */ each) => html`<${Detail} schedule=${each} />`}
          /><//>`
        : html`<section class="panel">
            <${Nothing} title="Nothing is scheduled to repeat"
              >Schedules stand above tasks in code, or are added with <code>limpet schedules add</code>.<//
            >
          </section>`,
    )}`;
}

/** @param {Schedule[]} all */
const sorted = (all) => [...all].sort((a, b) => earlier(a.next_at[0], b.next_at[0]));

const VERBS =
  /** @type {Record<string, {label: string, title: string, about: string, button: string, safe: string}>} */ ({
    run: {
      label: "Run now…",
      title: "Run schedule",
      about: "One run is asked for now. The next tick stays where it is.",
      button: "Run it",
      safe: "Wait for its time",
    },
    pause: {
      label: "Pause…",
      title: "Pause schedule",
      about: "No tick fires. Runs that are under way continue.",
      button: "Pause it",
      safe: "Let it tick",
    },
    resume: {
      label: "Resume…",
      title: "Resume schedule",
      about: "Ticks fire from now on; those of the pause are not made up.",
      button: "Resume it",
      safe: "Leave it paused",
    },
  });

/** @param {{schedule: Schedule, verb: string}} props */
function Act({ schedule, verb }) {
  const { label, title, about, button, safe } = VERBS[verb];
  const told = (/** @type {any} */ answer) =>
    verb === "run"
      ? answer.existing
        ? "An earlier run has not finished, and only one may be there."
        : `A run of ${schedule.name} is asked for.`
      : `Schedule ${schedule.name} is ${verb}d.`;
  const after = verb === "run" ? (/** @type {any} */ answer) => go(at("jobs", answer.id)) : undefined;
  return html`<${Action}
    tiny
    label=${label}
    name=${`${label} ${schedule.name}`}
    run=${() => askReason({ title: `${title} ${cut(schedule.name, 60)}`, about, button, safe, method: "POST", path: `/schedules/${part(schedule.name)}/${verb}`, told, after })}
  />`;
}

/** @param {{schedule: Schedule}} props */
function Detail({ schedule }) {
  const whole = useData(`/schedules/${part(schedule.name)}`, {}, { everyMs: 3_000 });
  const backfill = () =>
    askReason({
      title: `Backfill ${cut(schedule.name, 60)}`,
      about: "A run of every tick of a range in the past, without those whose job is stored.",
      button: "Backfill it",
      safe: "Leave it",
      method: "POST",
      path: `/schedules/${part(schedule.name)}/backfill`,
      fields: [
        { name: "start", label: "From", note: "2026-11-19T08:00Z", required: true },
        { name: "end", label: "To", note: "empty: now" },
      ],
      told: (answer) => `${some(answer.enqueued, "run")} asked for, ${answer.existing} were there.`,
    });
  return shown(
    whole,
    ({ ticks }) =>
      html`<div class="cols c3">
        <div class="mini">
          <h3>Next runs</h3>
          <ul class="nextfive">
            ${schedule.next_at.slice(0, 5).map(
              (each) =>
                html`<li>
                  <${At} iso=${each} /><span class="dim"><${Ago} iso=${each} /></span>
                </li>`,
            )}
          </ul>
        </div>
        <div class="mini">
          <h3>Last ticks</h3>
          <ul class="nextfive">
            ${ticks.length === 0 && html`<li class="dim">None has fired yet.</li>`}${ticks
              .toSorted((/** @type {any} */ a, /** @type {any} */ b) => earlier(b.at, a.at))
              .slice(0, 8)
              .map(
                (/** @type {any} */ each) =>
                  html`<li>
                    <span class="row"
                      ><${StateBadge}
                        state=${each.fired ? (each.state ?? "plain") : "cancelled"}
                        word=${each.fired ? (each.state ?? "no longer stored") : `dropped: ${each.why}`} /></span
                    ><span
                      >${each.job ? html`<a class="link id" href=${at("jobs", each.job)}>${tail(each.job)}</a> ` : ""}<span
                        class="dim"
                        ><${Ago} iso=${each.at} /></span
                    ></span>
                  </li>`,
              )}
          </ul>
        </div>
        <div class="mini">
          <h3>What a tick does</h3>
          <p>
            Asks for
            <span class="mono small said">${schedule.task}</span
            >${Object.keys(schedule.args).length > 0 && html` with <code class="any said">${cut(json(schedule.args, 0), 300)}</code>`}.
          </p>
          <p class="mid">
            Overlap: ${schedule.overlap}. Missed:
            ${schedule.catch_up}.${schedule.jitter_s ? ` Up to ${duration(schedule.jitter_s * 1_000)} late.` : ""} By
            ${schedule.source}.
          </p>
          ${schedule.note && html`<p class="warn-t said">${schedule.note} ${schedule.fix}</p>`}
          ${schedule.paused_by && html`<p>Paused by <b class="said">${schedule.paused_by}</b>${schedule.paused_reason && html`: <span class="said">${schedule.paused_reason}</span>`}.</p>`}
          <${Action} tiny label="Backfill…" run=${backfill} />
        </div>
      </div>`,
    3,
  );
}
