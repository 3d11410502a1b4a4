// Did it run, and when next? Every schedule in words, its last runs as shapes, and what a person may do.
import { html } from "../lib/html.js";
import { useData } from "../lib/answers.js";
import { at, go, place } from "../lib/place.js";
import { some } from "../lib/words.js";
import { Locked } from "../components/Action.js";
import { Nothing, shown } from "../components/Odd.js";
import { Seg } from "../components/Seg.js";
import { useHeading } from "../components/Shell.js";
import { useOrder } from "../components/useOrder.js";
import { useRows } from "../components/useRows.js";
import { ScheduleRow } from "./ScheduleRow.js";

/** @typedef {import("../api.d.ts").ScheduleRecord} Schedule */

const MOST_STRIPS = 40; // schedules whose last runs are asked for

/** @param {{name?: string | null}} props the schedule whose row is open */
export function Schedules({ name = null }) {
  const order = place.value.query.get("order") ?? "next";
  const entry = useData("/schedules", {}, { everyMs: 3_000 });
  const all = /** @type {Schedule[]} */ (entry.value.value?.schedules ?? []);
  const rows = useOrder(order === "name" ? all : [...all].sort(nextFirst), (each) => each.name, order);
  const to = (/** @type {string | null} */ open) => at("schedules", open, { order: order === "next" ? null : order });
  const body = useRows((i) => go(to(rows[i]?.name === name ? null : (rows[i]?.name ?? null))));
  const odd = wrong(all);
  useHeading("Schedules", { title: odd ? `${odd} · Schedules` : "Schedules" });
  return html`<div class="pagebar">
      <p class="grow">
        ${entry.value.value && html`<b>${some(all.length, "schedule")}</b> <span class="mid">${odd && ` · ${odd}`} · each tick fires once, whoever runs it</span>`}
      </p>
      <${Locked} what="Changing a schedule" />
      <${Seg}
        label="Order"
        chosen=${order}
        choices=${[
          { key: "next", label: "Next first", href: at("schedules", name) },
          { key: "name", label: "By name", href: at("schedules", name, { order: "name" }) },
        ]}
      />
    </div>
    ${shown(entry, () =>
      all.length
        ? html`<section class="panel" aria-label="Schedules">
            <h2 class="sr">Schedules</h2>
            <div class="wrap-t stick">
              <table class="tight">
                <thead>
                  <tr>
                    <th scope="col">Schedule</th>
                    <th class="p1" scope="col">When</th>
                    <th class="num" scope="col">Next</th>
                    <th class="num p3" scope="col">At</th>
                    <th class="p1" scope="col">Last runs</th>
                    <th class="p2" scope="col">Task</th>
                    <th class="p3" scope="col">By</th>
                    <th class="p1" scope="col"><span class="sr">Actions</span></th>
                  </tr>
                </thead>
                <tbody ref=${body}>
                  ${rows.map((each, i) => html`<${ScheduleRow} key=${each.name} schedule=${each} open=${each.name === name} to=${to(each.name === name ? null : each.name)} asks=${i < MOST_STRIPS || each.name === name} />`)}
                </tbody>
              </table>
            </div>
          </section>`
        : html`<section class="panel">
            <${Nothing} state="plain" title="Nothing is scheduled to repeat"
              >Write <code>@app.schedule(Cron("0 8 * * *"))</code> above a task, or:
              <code>limpet schedules add TASK --cron "0 8 * * *"</code><//
            >
          </section>`,
    )}`;
}

/** @param {Schedule} a @param {Schedule} b */
const nextFirst = (a, b) =>
  (a.next_at[0] ?? "~") < (b.next_at[0] ?? "~")
    ? -1
    : (a.next_at[0] ?? "~") > (b.next_at[0] ?? "~")
      ? 1
      : a.name < b.name
        ? -1
        : 1;

/** What does not tick, in words. @param {Schedule[]} all */
const wrong = (all) =>
  ["paused", "absent", "unreadable"]
    .map((state) => [all.filter((each) => each.state === state).length, state])
    .filter(([n]) => n)
    .map(([n, state]) => `${n} ${state}`)
    .join(", ");
