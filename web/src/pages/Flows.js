// Which flows are under way, and how far? The newest first.
import { html } from "../lib/html.js";
import { useData } from "../lib/answers.js";
import { at, place } from "../lib/place.js";
import { count, cut, STATES, tail } from "../lib/words.js";
import { Icon } from "../components/Icon.js";
import { Meter } from "../components/Meter.js";
import { Nothing, shown } from "../components/Odd.js";
import { Panel } from "../components/Panel.js";
import { RecordTable } from "../components/RecordTable.js";
import { useHeading } from "../components/Shell.js";
import { StateBadge } from "../components/StateBadge.js";
import { Ago } from "../components/Time.js";

/** @typedef {import("../api.d.ts").FlowRecord} Flow */

export function Flows() {
  useHeading("Flows");
  const cursor = place.value.query.get("cursor");
  const entry = useData("/flows", { cursor, limit: 50 }, { everyMs: 2_000 });
  const columns = [
    {
      head: "Flow",
      name: true,
      cell: (/** @type {Flow} */ each) =>
        html`<a class="said" href=${at("flows", each.id)}>${cut(each.name ?? "without a name", 80)}</a>
          <span class="id">${tail(each.id)}</span>`,
    },
    { head: "State", cell: (/** @type {Flow} */ each) => html`<${StateBadge} state=${each.state} />` },
    {
      head: "Nodes by state",
      rank: "p1",
      cell: (/** @type {any} */ each) =>
        html`<${Meter}
          tall
          parts=${STATES.toReversed().map((state) => [state, (each.counts[state] ?? 0) / Math.max(1, each.total)])}
        />`,
    },
    { head: "Done", kind: "num", cell: (/** @type {Flow} */ each) => `${count(each.done)} of ${count(each.total)}` },
    {
      head: "Dead",
      kind: "num",
      rank: "p1",
      cell: (/** @type {any} */ each) =>
        html`<span class=${each.counts.dead ? "dead-t" : "dim"}>${count(each.counts.dead ?? 0)}</span>`,
    },
    { head: "Asked for", kind: "num", cell: (/** @type {Flow} */ each) => html`<${Ago} iso=${each.enqueued_at} />` },
  ];
  return shown(entry, ({ flows, cursor: next }) =>
    flows.length
      ? html`<${Panel} title="Flows" n=${flows.length} end="newest first"
          ><${RecordTable}
            label="Flows"
            rows=${flows}
            columns=${columns}
            keyOf=${(/** @type {Flow} */ each) => each.id}
          />
          <div class="more">
            <span></span
            ><span class="row"
              >${cursor && html`<a class="b tiny" href=${at("flows")}>Newest</a>`}${next && html`<a class="b tiny" href=${at("flows", null, { cursor: next })}>Older<${Icon} name="right" /></a>`}</span
            >
          </div>
        <//>`
      : html`<section class="panel">
          <${Nothing} state="plain" title="No flow yet"
            >A flow is a set of jobs that wait for each other, stored in one step.<//
          >
        </section>`,
  );
}
