// How it went: throughput, wait and run over time, by what workers have counted.
import { useMemo } from "preact/hooks";
import { html } from "../lib/html.js";
import { jobsAt } from "../lib/place.js";
import { duration, figure } from "../lib/words.js";
import { Chart } from "../components/Chart.js";
import { Panel } from "../components/Panel.js";

/** @param {{series: any}} props */
export function Charts({ series }) {
  const found = useMemo(() => series && linesOf(series), [series]);
  if (!found)
    return html`<div class="cols c3 charts">
      ${["Throughput", "Wait", "Run"].map((title) => html`<${Panel} title=${title}><p class="chart-none" aria-busy="true"></p><//>`)}
    </div>`;
  const seconds = (/** @type {number} */ s) => duration(s * 1_000);
  return html`<div class="cols c3 charts">
    <${Chart}
      title="Throughput"
      unit="attempts a second"
      at=${series.at}
      lines=${found.rates}
      write=${figure}
      filled
      finding=${`Throughput: ${series.total.whole.finished} jobs a minute finished, ${series.total.whole.failed} attempts a minute failed.`}
    />
    <${Chart}
      title="Wait"
      unit="due until claimed"
      at=${series.at}
      lines=${found.waits}
      write=${seconds}
      finding=${quantiles("Wait", series.total.whole, "wait")}
    />
    <${Chart}
      title="Run"
      unit="claimed until ended"
      at=${series.at}
      lines=${found.runs}
      write=${seconds}
      finding=${quantiles("Run", series.total.whole, "run")}
    />
  </div>`;
}

/** @param {any} series */
function linesOf(series) {
  const { total, step_s } = series;
  const rate = (/** @type {string[]} */ outcomes) =>
    series.at.map(
      (/** @type {string} */ _, /** @type {number} */ i) =>
        outcomes.reduce((sum, each) => sum + (total.ended[each]?.[i] ?? 0), 0) / step_s,
    );
  const times = (/** @type {string} */ what) =>
    ["p50", "p95", "p99"].map((name) => ({ name, kind: name, values: total[`${what}_${name}_s`] }));
  return {
    rates: [
      {
        name: "succeeded",
        kind: "succeeded",
        values: rate(["succeeded"]),
        href: jobsAt("state:succeeded finished<1h"),
      },
      {
        name: "failed",
        kind: "failed",
        values: rate(["dead", "retried", "lost"]),
        href: jobsAt("state:dead,scheduled attempt>=1"),
      },
      { name: "retried", kind: "retried", values: rate(["retried"]), href: jobsAt("state:scheduled attempt>=1") },
    ],
    waits: times("wait"),
    runs: times("run"),
  };
}

/** @param {string} title @param {any} whole @param {string} what */
function quantiles(title, whole, what) {
  const of = (/** @type {string} */ name) =>
    whole[`${what}_${name}_s`] === null ? "unknown" : duration(whole[`${what}_${name}_s`] * 1_000);
  return `${title}: half of the attempts within ${of("p50")}, 95 % within ${of("p95")}, 99 % within ${of("p99")}.`;
}
