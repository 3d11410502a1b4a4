// What is wrong with this store, who may come in, how long jobs stay, what is hidden, and how this browser shows it.
import { html } from "../lib/html.js";
import { useData } from "../lib/answers.js";
import { at, jobsAt } from "../lib/place.js";
import { count, cut, duration, some, term } from "../lib/words.js";
import { shown } from "../components/Odd.js";
import { Panel } from "../components/Panel.js";
import { useHeading } from "../components/Shell.js";
import { StateBadge } from "../components/StateBadge.js";
import { Ago } from "../components/Time.js";
import { Browser } from "./Browser.js";
import { Tokens } from "./Tokens.js";

/** @typedef {import("../api.d.ts").FindingRecord} Finding */
/** @typedef {import("../api.d.ts").RetentionRecord} Retention */

export function Settings() {
  const doctor = useData("/doctor", {}, { everyMs: 30_000 });
  const findings = /** @type {Finding[]} */ (doctor.value.value?.findings ?? []);
  const wrong = findings.filter((each) => each.level !== "ok");
  useHeading("Settings", { title: wrong.length ? `${some(wrong.length, "finding")} · Settings` : "Settings" });
  return html`<div class="cols side-r">
    <div class="stack">
      <${Doctor} entry=${doctor} wrong=${wrong} right=${findings.filter((each) => each.level === "ok")} /><${Tokens} />
    </div>
    <aside class="stack"><${Browser} /><${Keeps} /><${Hidden} /></aside>
  </div>`;
}

/** @param {{entry: import("../lib/answers.js").Entry, wrong: Finding[], right: Finding[]}} props */
function Doctor({ entry, wrong, right }) {
  return html`<${Panel} title="Doctor" n=${wrong.length || ""} end=${html`<code>limpet doctor</code>`}>
    ${shown(
      entry,
      () =>
        html`${
            wrong.length
              ? html`<ul class="needs found">
                  ${wrong.map((each) => html`<${Found} key=${each.code + each.text} finding=${each} />`)}
                </ul>`
              : html`<p class="pad row"><${StateBadge} state="ok" word="" />Nothing is wrong.</p>`
          }
          <details class="right">
            <summary>${some(right.length, "check")} in order</summary>
            <ul class="needs found">
              ${right.map((each) => html`<${Found} key=${each.code + each.text} finding=${each} />`)}
            </ul>
          </details>`,
    )}
  <//>`;
}

/** @param {{finding: Finding}} props */
function Found({ finding }) {
  return html`<li>
    <${StateBadge} state=${finding.level} quiet />
    <p class="said">
      ${cut(finding.text, 1_000)}${finding.fix && html`<span class="sub said">${cut(finding.fix, 500)}</span>`}
    </p>
    <span class="when mono p1">${finding.code}</span>
  </li>`;
}

/** How long finished jobs stay, where a queue differs. */
function Keeps() {
  const entry = useData("/retention", {}, { everyMs: 30_000 });
  return html`<${Panel} title="How long jobs stay" end="where a queue differs">
    ${shown(entry, ({ retention }) =>
      retention.length
        ? html`<div class="wrap-t">
            <table class="dense tight">
              <thead>
                <tr>
                  <th scope="col">Queue</th>
                  <th class="num" scope="col">Succeeded</th>
                  <th class="num" scope="col">Cancelled</th>
                  <th class="num" scope="col">Dead</th>
                </tr>
              </thead>
              <tbody>
                ${retention.map(
                  (/** @type {Retention} */ each) =>
                    html`<tr key=${each.queue}>
                      <th scope="row" class="any">
                        <a class="said" href=${jobsAt(term("queue", each.queue))}>${cut(each.queue, 60)}</a>
                      </th>
                      ${["succeeded", "cancelled", "dead"].map((state) => html`<td class="num"><${Stays} one=${each} state=${state} /></td>`)}
                    </tr>`,
                )}
              </tbody>
            </table>
          </div>`
        : html`<p class="pad dim">
            No queue differs from the settings of the store. To change one: <code>limpet retention set</code>
          </p>`,
    )}
  <//>`;
}

/** @param {{one: Retention, state: string}} props */
function Stays({ one, state }) {
  if (!(state in one.keep)) return html`<span class="dim" title="As for all queues">–</span>`;
  const s = one.keep[state];
  const text = s === null ? "for ever" : duration(s * 1_000);
  return one.set_by[state] === "operator" ? html`${text}<span class="sub">by hand</span>` : text;
}

/** What no face shows. */
function Hidden() {
  const entry = useData("/redaction", {}, { everyMs: 30_000 });
  return html`<${Panel} title="What is hidden" n=${count(entry.value.value?.rules.length ?? 0)} end="on every face">
    ${shown(entry, ({ rules }) =>
      rules.length
        ? html`<ul class="pairs">
            ${rules.map(
              (/** @type {import("../api.d.ts").RuleRecord} */ each) =>
                html`<li key=${`${each.rule} ${each.task}`}>
                  <span class="any"
                    ><span class="mono said">${cut(each.rule, 120)}</span
                    ><span class="sub said"
                      >${each.task ? html`of <a class="mono" href=${jobsAt(term("task", each.task))}>${cut(each.task, 80)}</a>` : "of every task"}</span
                    ></span
                  >
                  <span class="small dim said"
                    >${each.added_by ? html`${cut(each.added_by, 40)}, <${Ago} iso=${each.added_at} />` : "code"}</span
                  >
                </li>`,
            )}
          </ul>`
        : html`<p class="pad dim">
            No rule hides anything. To hide a key in stored and in new jobs: <code>limpet redact add</code>
          </p>`,
    )}
    <footer>
      Rules are changed on the command line; each change is in the
      <a class="link" href=${at("audit", null, { kind: "redaction" })}>audit log</a>.
    </footer>
  <//>`;
}
