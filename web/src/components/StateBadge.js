// Says a state by its shape and its word, never by colour alone.
import { html } from "../lib/html.js";

const line = { fill: "none", stroke: "currentColor", "stroke-linecap": "round", "stroke-linejoin": "round" };

/** @type {Record<string, any>} */
const SHAPES = {
  blocked: html`<path d="M8 1.700 14.300 8 8 14.300 1.700 8Z" stroke-width="1.8" ...${line} />`,
  scheduled: html`<circle cx="8" cy="8" r="6.1" stroke-width="1.7" ...${line} /><path
      d="M8 4.600V8.200l2.400 1.500"
      stroke-width="1.6"
      ...${line}
    />`,
  ready: html`<circle cx="8" cy="8" r="5.4" stroke-width="2.6" ...${line} />`,
  running: html`<path
    d="M4.200 2.700v10.600L13.200 8Z"
    fill="currentColor"
    stroke="currentColor"
    stroke-width="1.8"
    stroke-linejoin="round"
  />`,
  succeeded: html`<path
    fill="currentColor"
    fill-rule="evenodd"
    d="M8 1a7 7 0 1 1 0 14A7 7 0 0 1 8 1Zm3.500 4.200a.9.9 0 0 0-1.300.1L7.100 9.100 5.700 7.700a.9.9 0 1 0-1.200 1.300l2.100 2a.9.9 0 0 0 1.300-.1l3.700-4.500a.9.9 0 0 0-.1-1.200Z"
  />`,
  dead: html`<path
    fill="currentColor"
    fill-rule="evenodd"
    d="M5.100 1h5.800L15 5.100v5.800L10.900 15H5.100L1 10.900V5.100Zm.4 3.800a.9.9 0 0 0-.1 1.300L7 8 5.300 9.700a.9.9 0 1 0 1.300 1.300L8 9.300l1.600 1.700a.9.9 0 1 0 1.300-1.300L9.300 8l1.600-1.700a.9.9 0 1 0-1.300-1.300L8 6.700 6.600 5a.9.9 0 0 0-1.100-.2Z"
  />`,
  cancelled: html`<circle cx="8" cy="8" r="6.1" stroke-width="1.7" ...${line} /><path
      d="m3.800 12.200 8.400-8.400"
      stroke-width="1.7"
      ...${line}
    />`,
  warn: html`<path
    fill="currentColor"
    fill-rule="evenodd"
    d="M7 1.900a1.200 1.200 0 0 1 2 0l6.200 11a1.200 1.200 0 0 1-1 1.800H1.800a1.200 1.200 0 0 1-1-1.800ZM8 5.200a.9.9 0 0 0-.9.9l.2 3.100a.7.7 0 0 0 1.400 0l.2-3.100A.9.9 0 0 0 8 5.200Zm0 6a.95.95 0 1 0 0 1.900.95.95 0 0 0 0-1.900Z"
  />`,
  paused: html`<rect x="1.5" y="1.5" width="13" height="13" rx="3" stroke-width="1.7" ...${line} /><path
      d="M6 5.200v5.600M10 5.200v5.600"
      stroke-width="1.8"
      ...${line}
    />`,
  open: html`<path d="M2.500 8h3M10.500 8h3M5.500 8 10 3.800" stroke-width="2" ...${line} /><circle
      cx="5.3"
      cy="8"
      r="1.3"
      fill="currentColor"
    /><circle cx="10.7" cy="8" r="1.3" fill="currentColor" />`,
  "half-open": html`<path d="M2.500 8h3M10.500 8h3" stroke-width="2" ...${line} /><path
      d="M5.500 8 10.300 6.400"
      stroke-width="2"
      stroke-dasharray="1.500 2.600"
      ...${line}
    /><circle cx="5.3" cy="8" r="1.3" fill="currentColor" /><circle cx="10.7" cy="8" r="1.3" fill="currentColor" />`,
  closed: html`<path d="M2.500 8h11" stroke-width="2" ...${line} /><circle
      cx="5.3"
      cy="8"
      r="1.3"
      fill="currentColor"
    /><circle cx="10.7" cy="8" r="1.3" fill="currentColor" />`,
  live: html`<path d="M1.500 8.500h3l2-5 3 9 2-4h3" stroke-width="1.8" ...${line} />`,
  new: html`<circle cx="8" cy="8" r="4.5" fill="currentColor" />`,
  asks: html`<circle cx="8" cy="8" r="5.6" stroke-width="1.8" ...${line} /><circle
      cx="8"
      cy="8"
      r="2.2"
      fill="currentColor"
    />`,
  regressed: html`<path d="M12.800 8A4.800 4.800 0 1 1 11 4.300" stroke-width="2" ...${line} /><path
      d="M13.400 1.600v4h-4Z"
      fill="currentColor"
    />`,
  snoozed: html`<path d="M13.600 9.800A6 6 0 0 1 6.200 2.400a6 6 0 1 0 7.400 7.400Z" stroke-width="1.7" ...${line} />`,
};

/** Shapes of what is not a state of a job: which tone each has. @type {Record<string, [tone: string, shape: string]>} */
const OTHERS = {
  paused: ["warn", "paused"],
  draining: ["warn", "paused"],
  held: ["warn", "warn"],
  late: ["warn", "warn"],
  silent: ["warn", "warn"],
  stuck: ["warn", "warn"],
  "loop blocked": ["warn", "warn"],
  live: ["succeeded", "live"],
  active: ["succeeded", "succeeded"],
  expired: ["plain", "cancelled"],
  revoked: ["plain", "cancelled"],
  open: ["dead", "open"],
  "half-open": ["warn", "half-open"],
  closed: ["plain", "closed"],
  regressed: ["dead", "regressed"],
  acknowledged: ["warn", "asks"],
  snoozed: ["plain", "snoozed"],
  resolved: ["succeeded", "succeeded"],
  asks: ["scheduled", "asks"],
  failed: ["dead", "dead"],
  finished: ["succeeded", "succeeded"],
  waiting: ["scheduled", "scheduled"],
  on: ["succeeded", "succeeded"],
  ended: ["plain", "cancelled"],
  absent: ["warn", "warn"],
  unreadable: ["dead", "dead"],
  retried: ["dead", "dead"],
  lost: ["dead", "dead"],
  released: ["plain", "cancelled"],
  held_back: ["warn", "paused"],
  error: ["dead", "dead"],
  warning: ["warn", "warn"],
  ok: ["succeeded", "succeeded"],
};

/**
 * @param {{state: string, word?: string, pill?: boolean, quiet?: boolean}} props `quiet`: the word is for those who
 * cannot see the shape
 */
export function StateBadge({ state, word = state, pill = false, quiet = false }) {
  const [tone, shape] = OTHERS[state] ?? [state in SHAPES ? state : "plain", state in SHAPES ? state : "closed"];
  return html`<span class="st ${tone} ${pill ? "pill" : ""}">
    <svg viewBox="0 0 16 16" aria-hidden="true">${SHAPES[shape]}</svg
    >${word && html`<span class=${quiet ? "sr" : "w"}>${word}</span>`}
  </span>`;
}

/** The shape alone, for drawings. @param {string} state */
export const shapeOf = (state) => SHAPES[(OTHERS[state] ?? ["", state])[1]] ?? SHAPES.closed;
