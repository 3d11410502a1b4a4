// Who did what, to what, and why? The newest first; "Older" goes back.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { useData } from "../lib/answers.js";
import { at } from "../lib/place.js";
import { cut, json, tail } from "../lib/words.js";
import { Nothing, shown } from "../components/Odd.js";
import { Panel } from "../components/Panel.js";
import { RecordTable } from "../components/RecordTable.js";
import { useHeading } from "../components/Shell.js";
import { At } from "../components/Time.js";

/** @typedef {import("../api.d.ts").AuditRecord} Line */

const STEP = 100;
const MOST = 10_000;

export function Audit() {
  useHeading("Audit");
  const [limit, setLimit] = useState(STEP);
  const [text, setText] = useState("");
  const entry = useData("/audit", { limit }, { everyMs: 3_000 });
  const low = text.toLowerCase();
  const columns = [
    {
      head: "At",
      rank: "",
      cell: (/** @type {Line} */ each) => html`<span class="nowrap"><${At} iso=${each.at} /></span>`,
    },
    {
      head: "Who",
      name: true,
      cell: (/** @type {Line} */ each) => html`<span class="said">${cut(each.actor, 80)}</span>`,
    },
    { head: "What", cell: (/** @type {Line} */ each) => html`<span class="mono small">${each.kind}</span>` },
    {
      head: "To",
      rank: "p1",
      cell: (/** @type {Line} */ each) =>
        each.job
          ? html`<a class="link id" href=${at("jobs", each.job)}>${tail(each.job)}</a>`
          : html`<span class="mono small said any">${cut(target(each), 80)}</span>`,
    },
    {
      head: "Why",
      rank: "p2",
      cell: (/** @type {Line} */ each) =>
        each.reason ? html`<span class="said any">${cut(each.reason, 300)}</span>` : html`<span class="dim">–</span>`,
    },
  ];
  return shown(entry, ({ audit }) => {
    const lines = [...audit]
      .reverse()
      .filter(
        (/** @type {Line} */ each) =>
          !low || `${each.actor} ${each.kind} ${each.job} ${each.reason} ${target(each)}`.toLowerCase().includes(low),
      );
    return html`<div class="pagebar">
        <input
          class="input"
          type="search"
          data-query
          aria-label="Search these lines"
          placeholder="Search who, what and why in the lines that are shown"
          value=${text}
          onInput=${(/** @type {any} */ e) => setText(e.target.value)}
        />
      </div>
      <${Panel} title="Audit" n=${lines.length} end="newest first · times in UTC">
        ${lines.length ? html`<${RecordTable} label="Audit" rows=${lines} columns=${columns} keyOf=${(/** @type {Line} */ each) => String(each.seq)} detail=${(/** @type {Line} */ each) => html`<pre class="codebox wide said" tabindex="0">${json(each.data)}</pre>`} />` : html`<${Nothing} state="plain" title="No line">Every correction by a person or an agent leaves one here.<//>`}
        <div class="more">
          <span>${audit.length} lines looked at</span
          ><button
            class="b tiny"
            type="button"
            disabled=${audit.length < limit || limit >= MOST}
            onClick=${() => setLimit(Math.min(MOST, limit * 4))}
          >
            Older
          </button>
        </div>
      <//>`;
  });
}

/** @param {Line} line */
const target = ({ data }) =>
  String(data?.key ?? data?.name ?? data?.queue ?? data?.cause ?? data?.query ?? data?.asked ?? "");
