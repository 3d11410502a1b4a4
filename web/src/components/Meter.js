// A bar of parts: their widths are attributes, since a style would break the page's own rules.
import { html } from "../lib/html.js";

/** @param {{parts: [kind: string, share: number][], marks?: number[], tall?: boolean}} props shares of 1 */
export function Meter({ parts, marks = [], tall = false }) {
  let from = 0;
  return html`<svg
    class="meter ${tall ? "tall" : ""}"
    viewBox="0 0 100 6"
    preserveAspectRatio="none"
    aria-hidden="true"
  >
    <rect class="track" width="100" height="6" />
    ${parts.map(([kind, share]) => {
      const width = Math.max(0, Math.min(100 - from, share * 100));
      const bar = html`<rect class="v ${kind}" x=${from} width=${width} height="6" />`;
      from += width;
      return bar;
    })}
    ${marks.map((share) => html`<rect class="mark" x=${share * 100 - 0.2} width="0.4" height="6" />`)}
  </svg>`;
}

/** Places of a worker, taken ones first. @param {{used: number, of: number, bad?: boolean}} props */
export function Pips({ used, of, bad = false }) {
  const shown = Math.min(of, 40);
  const taken = Math.ceil((Math.min(used, of) / Math.max(1, of)) * shown); // one that runs is never none
  const across = Math.min(20, shown);
  const rows = Math.ceil(shown / 20);
  return html`<svg
    class="pips"
    width=${across * 8}
    height=${rows * 8}
    viewBox="0 0 ${across * 8} ${rows * 8}"
    aria-hidden="true"
  >
    ${Array.from({ length: shown }, (_, i) => html`<rect class=${i < taken ? (bad ? "bad" : "on") : ""} x=${(i % 20) * 8} y=${Math.floor(i / 20) * 8} width="6" height="6" rx="1.5" />`)}
  </svg>`;
}
