// The attempts of a job on one line: wait, run, backoff; long gaps are cut, and say how long they are.
import { useEffect, useRef } from "preact/hooks";
import { html } from "../lib/html.js";
import { now } from "../lib/clock.js";
import { duration, instant } from "../lib/words.js";
import { layout } from "../lib/timeline.js";

const Y = 46;

/** @param {{job: import("../api.d.ts").JobDetail}} props */
export function Timeline({ job }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const drawn = layout(job, now.value);
  useEffect(() => {
    if (box.current) box.current.scrollLeft = box.current.scrollWidth; // now is at the right
  }, [job.id]);
  if (!drawn) return null;
  const { parts, width, said } = drawn;
  return html`<div
    class="timeline"
    tabindex="0"
    ref=${box}
    role="group"
    aria-label="Timeline, which the table below says too"
  >
    <svg viewBox="0 0 ${width} 92" role="img" aria-label=${said}>
      <line class="base" x1="0" x2=${width} y1=${Y} y2=${Y} />
      ${parts.map((each) => DRAW[each.kind](each))}
    </svg>
  </div>`;
}

/** @type {Record<string, (part: import("../lib/timeline.js").Part) => any>} */
const DRAW = {
  wait: ({ x, w, ms }) =>
    html`<rect
        class="wait"
        x=${x}
        y=${Y - 6}
        width=${w}
        height="12"
        rx="2"
      />${w > 30 && html`<text x=${x} y=${Y + 26}>wait ${duration(ms)}</text>`}`,
  run: (part) => {
    const { x, w, ms, number, at, end } = part;
    return html`<text class="lab" x=${x} y="12">Attempt ${number}</text
      ><text x=${x} y="25">${at ? instant(at, now.value) : ""}</text>
      <rect class="run" x=${x} y=${Y - 10} width=${w} height="20" rx="3" />
      ${w > 46 && html`<text class="t-run" x=${x + 6} y=${Y + 4}>${duration(ms)}</text>`}${END[end ?? ""]?.(x + w)}`;
  },
  gap: ({ x, w, ms, cut, held }) =>
    html`<line class=${held ? "hold" : "back"} x1=${x + 8} x2=${x + w} y1=${Y} y2=${Y} />
      ${cut && html`<rect class="gap" x=${x + w / 2 - 5} y=${Y - 6} width="11" height="12" /><path class="cutmark" d="M${x + w / 2 - 4} ${Y + 5}l4 -10M${x + w / 2 + 1} ${Y + 5}l4 -10" />`}
      ${w > 24 && html`<text x=${x + w / 2} y=${Y + 26} text-anchor="middle">${held ? "held" : "backoff"} ${duration(ms)}</text>`}`,
  now: ({ x }) =>
    html`<line class="nowline" x1=${x} x2=${x} y1=${Y - 18} y2=${Y + 18} /><text
        class="lab"
        x=${x}
        y=${Y + 40}
        text-anchor="middle"
        >now</text
      >`,
  next: ({ x, w, number, ms }) =>
    html`<text class="lab" x=${x + w} y="12" text-anchor="end">Attempt ${number}</text
      ><text x=${x + w} y="25" text-anchor="end"
        >${ms > 0 ? `due in ${duration(Math.round(ms / 1_000) * 1_000)}` : "due"}</text
      ><rect class="next" x=${x} y=${Y - 10} width=${w} height="20" rx="3" />`,
};

/** @type {Record<string, (x: number) => any>} */
const END = {
  bad: (x) =>
    html`<circle class="endx" cx=${x} cy=${Y} r="7" /><path
        class="endx-x"
        d="M${x - 2.5} ${Y - 2.5}l5 5M${x + 2.5} ${Y - 2.5}l-5 5"
      />`,
  good: (x) =>
    html`<circle class="endok" cx=${x} cy=${Y} r="7" /><path
        class="endx-x"
        fill="none"
        d="M${x - 3} ${Y}l2 2.500l4 -5"
      />`,
};
