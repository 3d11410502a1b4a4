// Who did what, to what, and why: the newest first, by kind, by person, by job, and as far back as it is kept.
import { useEffect, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { useData } from "../lib/answers.js";
import { own } from "../lib/keys.js";
import { at, place, turn } from "../lib/place.js";
import { Icon } from "../components/Icon.js";
import { Bones, Failed, Nothing } from "../components/Odd.js";
import { Seg } from "../components/Seg.js";
import { useHeading } from "../components/Shell.js";
import { useRows } from "../components/useRows.js";
import { AuditRow } from "./AuditRow.js";

/** @typedef {import("../api.d.ts").AuditRecord} Line */

const ROWS = 50;
const SINCE = ["1h", "24h", "7d"];
const KINDS = [
  "access",
  "agent",
  "breaker",
  "budget",
  "cause",
  "flow",
  "job",
  "limit",
  "operation",
  "queue",
  "redaction",
  "retention",
  "schedule",
  "token",
  "type",
];

export function Audit() {
  const { query } = place.value;
  const asked = Object.fromEntries(["kind", "actor", "job", "since", "before"].map((name) => [name, query.get(name)]));
  const entry = useData("/audit", { ...asked, limit: ROWS + 1 }, { everyMs: 2_000 });
  useHeading("Audit");
  return html`<div class="pagebar filters" role="search" aria-label="Lines">
      <${Field}
        key=${`kind ${asked.kind}`}
        name="kind"
        label="What"
        value=${asked.kind}
        note="job, queue.pause"
        list=${KINDS}
      />
      <${Field} key=${`actor ${asked.actor}`} name="actor" label="Who" value=${asked.actor} note="a part of the name" />
      <${Field} key=${`job ${asked.job}`} name="job" label="Job" value=${asked.job} note="the end of its id" />
      <${Seg}
        label="Since"
        chosen=${asked.since ?? "ever"}
        choices=${[null, ...SINCE].map((each) => ({ key: each ?? "ever", label: each ?? "As kept", href: at("audit", null, { ...asked, since: each, before: null }) }))}
      />
    </div>
    <${Lines} key=${JSON.stringify(asked)} entry=${entry} asked=${asked} />`;
}

/** @param {{name: string, label: string, value: string | null, note: string, list?: string[]}} props */
function Field({ name, label, value, note, list }) {
  return html`<div class="field">
    <label for=${name}>${label}</label>
    <input
      class="input"
      id=${name}
      type="search"
      autocomplete="off"
      spellcheck=${false}
      placeholder=${note}
      list=${list && `${name}-known`}
      value=${value ?? ""}
      data-query=${name === "kind" ? true : undefined}
      onChange=${(/** @type {any} */ e) => turn({ [name]: e.target.value.trim() || null, before: null }, { push: true })}
    />
    ${list && html`<datalist id="${name}-known">${list.map((each) => html`<option value=${each} />`)}</datalist>`}
  </div>`;
}

/** @param {{entry: import("../lib/answers.js").Entry, asked: Record<string, string | null>}} props */
function Lines({ entry, asked }) {
  const [held, setHeld] = useState(/** @type {Line[] | null} */ (null));
  const [open, setOpen] = useState(/** @type {number | null} */ (null));
  const latest = /** @type {Line[] | undefined} */ (entry.value.value?.audit);
  useEffect(() => {
    if (latest && !held) setHeld(latest);
  }, [latest]);
  const lines = (held ?? []).slice(-ROWS).reverse();
  const body = useRows((i) => setOpen(lines[i].seq));
  const fresh =
    latest && held && !asked.before ? latest.filter((each) => each.seq > (held.at(-1)?.seq ?? 0)).length : 0;
  const show = () => (scrollTo(0, 0), setHeld(latest ?? null));
  useEffect(() => {
    own.current.n = () => fresh && show();
  });
  if (!held)
    return html`<section class="panel" aria-label="Audit">
      ${entry.error.value ? html`<${Failed} error=${entry.error.value} />` : html`<${Bones} rows=${9} />`}
    </section>`;
  return html`<section class="panel" aria-label="Audit">
    <h2 class="sr">Lines</h2>
    ${fresh > 0 && html`<button class="newrows" type="button" onClick=${show}>${fresh > ROWS ? `${ROWS} or more` : fresh} new, press <kbd>n</kbd> to show them</button>`}
    ${
      lines.length
        ? html`<div class="wrap-t stick">
            <table class="tight">
              <thead>
                <tr>
                  <th scope="col">What</th>
                  <th class="num" scope="col">When</th>
                  <th class="p1" scope="col">Who</th>
                  <th class="p1" scope="col">On</th>
                  <th class="w p2" scope="col">How</th>
                  <th class="p1" scope="col">Why</th>
                </tr>
              </thead>
              <tbody ref=${body}>
                ${lines.map((each) => html`<${AuditRow} key=${each.seq} line=${each} open=${each.seq === open} turn=${() => setOpen(each.seq === open ? null : each.seq)} />`)}
              </tbody>
            </table>
          </div>`
        : html`<${NoLine} asked=${asked} />`
    }
    <${More} lines=${lines} older=${held.length > ROWS} asked=${asked} />
  </section>`;
}

/** @param {{lines: Line[], older: boolean, asked: Record<string, string | null>}} props */
function More({ lines, older, asked }) {
  const next = lines.at(-1)?.seq;
  return html`<div class="more">
    <span>${lines.length ? `${lines.length} shown · newest first · times in UTC` : ""}</span>
    <span class="row">
      ${asked.before && html`<a class="b tiny" href=${at("audit", null, { ...asked, before: null })}>Newest</a>`}
      <button
        class="b tiny"
        type="button"
        disabled=${!older}
        onClick=${() => turn({ before: String(next) }, { push: true })}
      >
        Older<${Icon} name="right" />
      </button>
    </span>
  </div>`;
}

/** @param {{asked: Record<string, string | null>}} props */
function NoLine({ asked }) {
  const some = Object.values(asked).some((each) => each);
  return html`<${Nothing} state="plain" title=${some ? "No line matches" : "Nobody has changed anything yet"}>
    ${some ? html`<a class="link" href=${at("audit")}>Show all lines</a>` : "Each change by a person or an agent leaves a line here."}
  <//>`;
}
