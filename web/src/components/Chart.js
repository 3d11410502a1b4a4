// The frame of a chart: a title, a legend with the newest values as links, and a plot that is dragged to choose a time.
import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import { html } from "../lib/html.js";
import { theme } from "../lib/theme.js";
import { Panel } from "./Panel.js";

/**
 * @typedef {object} Line
 * @property {string} name
 * @property {string} kind names its colour and its dashes: succeeded, failed, retried, p50, p95, p99
 * @property {(number | null)[]} values
 * @property {string} [href]
 */

const HEIGHT = 156;
const DASH = /** @type {Record<string, number[]>} */ ({ retried: [5, 3], p95: [6, 3], p99: [2, 2.5] });
const INK = /** @type {Record<string, string>} */ ({
  succeeded: "--succeeded-fill",
  failed: "--dead-fill",
  retried: "--warn-fill",
  p50: "--q50",
  p95: "--q95",
  p99: "--q99",
});

/**
 * @param {{title: string, unit: string, at: string[], lines: Line[], write: (value: number) => string, filled?: boolean, finding: string}} props
 * `finding`: the sentence that says what the plot shows, for those who do not see it
 */
export function Chart({ title, unit, at, lines, write, filled = false, finding }) {
  const seen = lines.some((each) => each.values.some((value) => value !== null));
  return html`<${Panel} title=${title} end=${unit}>
    <div class="legend">
      ${lines.map((each) => {
        const last = each.values.findLast((value) => value !== null);
        const words = html`<svg viewBox="0 0 16 8" aria-hidden="true"><path class="c-${each.kind}" d="M0 4h16" /></svg
          >${each.name} <b>${last === undefined || last === null ? "–" : write(last)}</b>`;
        return each.href ? html`<a href=${each.href}>${words}</a>` : html`<span>${words}</span>`;
      })}
    </div>
    ${seen ? html`<${Plot} at=${at} lines=${lines} write=${write} filled=${filled} finding=${finding} />` : html`<p class="chart-none">Nothing has ended in this time.</p>`}
  <//>`;
}

/** @param {{at: string[], lines: Line[], write: (value: number) => string, filled: boolean, finding: string}} props */
function Plot({ at, lines, write, filled, finding }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const data = useMemo(
    () => [at.map((each) => Date.parse(each) / 1_000), ...lines.map((each) => each.values)],
    [at, lines],
  );
  const kinds = lines.map((each) => each.kind).join();
  useEffect(() => {
    const place = /** @type {HTMLElement} */ (box.current);
    plot.current = new uPlot(options(place, lines, write, filled), /** @type {any} */ (data), place);
    const watch = new ResizeObserver(() => plot.current.setSize({ width: widthOf(place), height: HEIGHT }));
    watch.observe(place);
    return () => {
      watch.disconnect();
      plot.current.destroy();
    };
  }, [kinds, theme.value]);
  useEffect(() => plot.current?.setData(data), [data]);
  return html`<div class="chart" ref=${box} role="img" aria-label=${finding}></div>`;
}

/** @param {HTMLElement} place */
const widthOf = (place) => Math.max(120, place.clientWidth - 12);

/** @param {HTMLElement} place @param {Line[]} lines @param {(value: number) => string} write @param {boolean} filled @returns {any} */
function options(place, lines, write, filled) {
  const style = getComputedStyle(place);
  const ink = (/** @type {string} */ name) => probe(place, name);
  const font = `11px ${style.fontFamily}`;
  const axis = { stroke: ink("--ink-3"), font, ticks: { show: false }, grid: { stroke: ink("--line"), width: 1 } };
  return {
    width: widthOf(place),
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, points: { size: 5 } },
    tzDate: (/** @type {number} */ s) => uPlot.tzDate(new Date(s * 1_000), "UTC"),
    scales: {
      y: {
        range: (/** @type {any} */ _, /** @type {number} */ __, /** @type {number} */ most) => [
          0,
          Math.max(most * 1.1, 1e-3),
        ],
      },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        space: 70,
        size: 24,
        values: (/** @type {any} */ _, /** @type {number[]} */ all) =>
          all.map((s) => new Date(s * 1_000).toISOString().slice(11, 16)),
      },
      { ...axis, size: 44, space: 36, values: (/** @type {any} */ _, /** @type {number[]} */ all) => all.map(write) },
    ],
    series: [
      {},
      ...lines.map((each) => ({
        stroke: ink(INK[each.kind]),
        width: 1.5,
        dash: DASH[each.kind],
        fill:
          filled && each.kind !== "retried"
            ? `color-mix(in srgb, ${ink(INK[each.kind])} ${each.kind === "failed" ? 22 : 10}%, transparent)`
            : undefined,
        points: { show: false },
        spanGaps: false,
      })),
    ],
  };
}

/** A token as the canvas takes it: what light-dark() means here. @param {HTMLElement} place @param {string} name */
function probe(place, name) {
  const before = place.style.color;
  place.style.color = `var(${name})`;
  const found = getComputedStyle(place).color;
  place.style.color = before;
  return found;
}
