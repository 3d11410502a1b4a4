// The attempts of a job in words: how each ended, where it ran and for how long.
import { html } from "../lib/html.js";
import { now } from "../lib/clock.js";
import { cut, duration, ms, shortError } from "../lib/words.js";
import { StateBadge } from "../components/StateBadge.js";
import { At } from "../components/Time.js";

/** @param {{job: import("../api.d.ts").JobDetail, chosen?: number, choose: (number: number) => void}} props */
export function Attempts({ job, chosen, choose }) {
  const last = job.history.at(-1)?.number ?? 0;
  const current = job.state === "running" && job.attempt > last;
  return html`<div class="wrap-t">
    <table class="tight">
      <thead>
        <tr>
          <th scope="col">Attempt</th>
          <th scope="col">Outcome</th>
          <th class="num" scope="col">Ran</th>
          <th class="p2" scope="col">Worker</th>
          <th class="w p1" scope="col">Error</th>
          <th class="num" scope="col">Started</th>
        </tr>
      </thead>
      <tbody>
        ${
          current &&
          html`<tr>
            <th scope="row">Attempt ${job.attempt}</th>
            <td><${StateBadge} state="running" /></td>
            <td class="num"><${Since} iso=${job.started_at} /></td>
            <td class="p2 id said">${job.session}</td>
            <td class="w p1"></td>
            <td class="num"><${At} iso=${job.started_at} /></td>
          </tr>`
        }
        ${[...job.history].reverse().map(
          (each) =>
            html`<tr class=${each.number === chosen ? "at" : ""} key=${each.number}>
              <th scope="row">
                ${each.error ? html`<button class="link" type="button" aria-pressed=${each.number === chosen} onClick=${() => choose(each.number)}>Attempt ${each.number}</button>` : `Attempt ${each.number}`}
              </th>
              <td><${StateBadge} state=${each.outcome} word=${WORDS[each.outcome] ?? each.outcome} /></td>
              <td class="num">${duration(ms(each.finished_at) - ms(each.started_at))}</td>
              <td class="p2 id said any">${each.session}</td>
              <td class="cut w p1 small mid said">
                ${shortError(each.error)}${each.message ? `: ${cut(each.message)}` : ""}
              </td>
              <td class="num"><${At} iso=${each.started_at} /></td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

const WORDS = /** @type {Record<string, string>} */ ({ retried: "failed, retried", held: "held back" });

/** @param {{iso: string | null}} props */
function Since({ iso }) {
  return iso ? duration(Math.max(0, Math.round((now.value - ms(iso)) / 1_000) * 1_000)) : "–";
}
