// Which node stops the rest? The drawing, and its twin, a table with trouble first.
import { useEffect, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { part } from "../lib/api.js";
import { useData } from "../lib/answers.js";
import { at } from "../lib/place.js";
import { count, cut, duration, shortError, STATES, tail } from "../lib/words.js";
import { Action, Locked } from "../components/Action.js";
import { Meter } from "../components/Meter.js";
import { shown } from "../components/Odd.js";
import { Panel } from "../components/Panel.js";
import { RecordTable } from "../components/RecordTable.js";
import { useHeading } from "../components/Shell.js";
import { shapeOf, StateBadge } from "../components/StateBadge.js";
import { Ago } from "../components/Time.js";
import { askReason } from "../dialogs/AskReason.js";

/** @typedef {import("../api.d.ts").FlowDetail} FlowDetail */
/** @typedef {import("../api.d.ts").NodeRecord} Node */

const RANK = /** @type {Record<string, number>} */ ({
  dead: 0,
  running: 1,
  scheduled: 2,
  ready: 3,
  blocked: 4,
  cancelled: 5,
  succeeded: 6,
});
const DRAWN = 300; // more nodes are a table alone

/** @param {{name: string}} props */
export function Flow({ name }) {
  const entry = useData(`/flows/${part(name)}`, {}, { everyMs: 1_000 });
  const flow = /** @type {FlowDetail | undefined} */ (entry.value.value);
  const called = flow?.name ?? tail(name);
  useHeading(called, {
    title: flow ? `${flow.state}, ${flow.done} of ${flow.total} · ${called}` : called,
    crumb: { label: "Flows", href: at("flows") },
  });
  return shown(entry, (found) => html`<${Whole} flow=${found} />`, 9);
}

/** @param {{flow: FlowDetail}} props */
function Whole({ flow }) {
  const path = `/flows/${part(flow.id)}`;
  const counts = /** @type {Record<string, number>} */ (flow.counts);
  const [only, setOnly] = useState("");
  const nodes = [...flow.nodes]
    .filter((each) => !only || each.state === only)
    .sort((a, b) => RANK[a.state] - RANK[b.state]);
  const live = flow.nodes.some((each) => RANK[each.state] > 0 && RANK[each.state] < 5);
  return html`<section class="jobhead" aria-label="The flow">
      <div class="row wrap">
        <h2 class="said">${flow.name ?? "Flow"}</h2>
        <${StateBadge} state=${flow.state} pill /><span class="mid"
          >${count(flow.done)} of ${count(flow.total)} done, asked for <${Ago} iso=${flow.enqueued_at} /></span
        ><span class="grow"></span>
        ${counts.dead > 0 && html`<${Action} kind="primary" icon="retry" label="Retry the dead nodes…" run=${() => askReason({ title: `Retry ${count(counts.dead)} dead nodes`, about: "They run again, with what their death cancelled.", button: "Retry them", safe: "Leave them", method: "POST", path: `${path}/retry`, told: (answer) => `${count(answer.done)} nodes run again.` })} />`}
        ${live && html`<${Action} kind="danger" icon="cancel" label="Cancel the flow…" run=${() => askReason({ title: "Cancel 1 flow?", about: "Every node that has not finished is cancelled; running ones are asked to stop.", button: "Cancel it", safe: "Keep it", fatal: true, method: "POST", path: `${path}/cancel`, told: (answer) => `${count(answer.done)} nodes cancelled, or asked to stop.` })} />`}
      </div>
      <${Meter}
        tall
        parts=${STATES.toReversed().map((state) => [state, (counts[state] ?? 0) / Math.max(1, flow.total)])}
      />
      <div class="facets" role="group" aria-label="Only nodes in">
        ${STATES.filter((state) => counts[state]).map((state) => html`<button class="b quiet tiny" type="button" aria-pressed=${only === state} onClick=${() => setOnly(only === state ? "" : state)}><${StateBadge} state=${state} /> ${count(counts[state])}</button>`)}
      </div>
      <${Locked} what="Changing a flow" />
    </section>
    ${
      flow.nodes.length <= DRAWN &&
      html`<div class="p1">
        <${Panel} title="Drawing" end="each node leads to its job"><${Drawing} nodes=${flow.nodes} only=${only} /><//>
      </div>`
    }
    <${Panel} title="Nodes" n=${nodes.length} end="trouble first"
      ><${RecordTable} label="Nodes" rows=${nodes} columns=${COLUMNS} keyOf=${(/** @type {Node} */ each) => each.id}
    /><//>`;
}

const COLUMNS = [
  {
    head: "Node",
    name: true,
    cell: (/** @type {Node} */ each) =>
      html`<a class="said" href=${at("jobs", each.id)}>${cut(each.node, 80)}</a
        ><span class="sub mono said">${cut(each.task, 60)}</span>`,
  },
  { head: "State", cell: (/** @type {Node} */ each) => html`<${StateBadge} state=${each.state} />` },
  { head: "Attempt", kind: "num", rank: "p1", cell: (/** @type {Node} */ each) => count(each.attempt) },
  {
    head: "Waits for",
    rank: "p2",
    cell: (/** @type {Node} */ each) =>
      html`<span class="small mid said any">${cut(each.after.join(", "), 100) || "–"}</span>`,
  },
  {
    head: "Took",
    kind: "num",
    rank: "p1",
    cell: (/** @type {Node} */ each) =>
      each.took_s === null ? html`<span class="dim">–</span>` : duration(each.took_s * 1_000),
  },
  {
    head: "Error",
    rank: "p1",
    cell: (/** @type {Node} */ each) =>
      each.error || each.reason
        ? html`<span class="small said any"
            ><span class="dead-t">${shortError(each.error)}</span> ${cut(each.reason ?? "", 160)}</span
          >`
        : html`<span class="dim">–</span>`,
  },
];

const [WIDTH, HEIGHT] = [168, 38];

/** @param {{nodes: Node[], only: string}} props */
function Drawing({ nodes, only }) {
  const [dagre, setDagre] = useState(/** @type {any} */ (null));
  useEffect(() => {
    import("@dagrejs/dagre").then((found) => setDagre(() => found.default ?? found));
  }, []);
  if (!dagre) return html`<p class="pad dim" aria-busy="true">Drawing…</p>`;
  const graph = new dagre.graphlib.Graph()
    .setGraph({ rankdir: "LR", nodesep: 14, ranksep: 56, marginx: 16, marginy: 16 })
    .setDefaultEdgeLabel(() => ({}));
  const byName = new Map(nodes.map((each) => [each.node, each]));
  for (const each of nodes) graph.setNode(each.node, { width: WIDTH, height: HEIGHT });
  for (const each of nodes) for (const parent of each.after) if (byName.has(parent)) graph.setEdge(parent, each.node);
  dagre.layout(graph);
  const { width, height } = graph.graph();
  return html`<div
    class="dag"
    tabindex="0"
    role="group"
    aria-label="Drawing of the flow; the table below says the same"
  >
    <svg class="g" width=${width} height=${height} viewBox="0 0 ${width} ${height}">
      ${graph.edges().map((/** @type {any} */ edge) => {
        const [from, to] = [byName.get(edge.v), byName.get(edge.w)];
        const line = graph
          .edge(edge)
          .points.map(
            (/** @type {any} */ point, /** @type {number} */ i) =>
              `${i ? "L" : "M"}${point.x.toFixed(1)} ${point.y.toFixed(1)}`,
          )
          .join("");
        return html`<path
          class="e ${from?.state === "dead" ? "hot" : to?.state === "blocked" ? "todo" : ""}"
          d=${line}
        />`;
      })}
      ${nodes.map((each) => {
        const { x, y } = graph.node(each.node);
        return html`<a
          class="n ${each.state} ${only === each.state ? "sel" : ""}"
          key=${each.id}
          href=${at("jobs", each.id)}
          aria-description=${each.state}
        >
          <rect class="halo" x=${x - WIDTH / 2} y=${y - HEIGHT / 2} width=${WIDTH} height=${HEIGHT} rx="6" />
          <svg class="ic" x=${x - WIDTH / 2 + 8} y=${y - 7} width="14" height="14" viewBox="0 0 16 16">
            ${shapeOf(each.state)}
          </svg>
          <text x=${x - WIDTH / 2 + 28} y=${y - 3}>${cut(each.node, 20)}</text
          ><text class="d" x=${x - WIDTH / 2 + 28} y=${y + 11}>${second(each)}</text>
        </a>`;
      })}
    </svg>
  </div>`;
}

/** The second line of a node. @param {Node} node */
function second(node) {
  if (node.error) return cut(shortError(node.error), 20);
  return node.took_s === null ? node.state : duration(node.took_s * 1_000);
}
