// Seven states in one strip: where all jobs are, how that has changed, and the way there.
import { html } from "../lib/html.js";
import { jobsAt } from "../lib/place.js";
import { count, STATES } from "../lib/words.js";
import { Spark } from "./Bars.js";
import { StateBadge } from "./StateBadge.js";

/** @param {{stats: any, series: any, range: string}} props */
export function Ledger({ stats, series, range }) {
  const depths = series?.total.depth;
  return html`<nav class="ledger ${depths ? "" : "plain"}" aria-label="Jobs by state">
    ${STATES.map((state) => {
      const line = depths?.[state] ?? (state === "succeeded" ? series?.total.ended.succeeded : undefined);
      const exact = stats[state] >= 10_000_000 ? stats[state].toLocaleString("en-US") : undefined;
      return html`<a class="${state} ${stats[state] ? "" : "none"}" href=${jobsAt(`state:${state}`)} title=${exact}>
        <${StateBadge} state=${state} />
        <strong>${count(stats[state])}</strong>
        <small>${changed(state, line, stats, range)}</small>
        ${depths && html`<${Spark} values=${(line ?? []).map((/** @type {number | null} */ each) => each ?? 0)} kind=${state} />`}
      </a>`;
    })}
  </nav>`;
}

/** @param {string} state @param {(number | null)[] | undefined} line @param {any} stats @param {string} range */
function changed(state, line, stats, range) {
  if (state === "succeeded")
    return line
      ? `+${count(line.reduce((/** @type {number} */ sum, each) => sum + (each ?? 0), 0))} in ${range}`
      : `${count(Math.round(stats.last_minute.finished))} a minute`;
  const first = line?.find((each) => each !== null);
  if (first === undefined || first === null) return "";
  const change = stats[state] - first;
  return change === 0 ? `the same in ${range}` : `${change > 0 ? "+" : "−"}${count(Math.abs(change))} in ${range}`;
}
