// Says instants and how far they are, and keeps that true while the page is open.
import { html } from "../lib/html.js";
import { now } from "../lib/clock.js";
import { duration, instant, ms } from "../lib/words.js";

/** 14:36:20 today, "Fri 27 Nov 06:00" else. @param {{iso: string | null}} props */
export function At({ iso }) {
  return iso ? html`<time datetime=${iso} title=${iso}>${instant(iso, now.value)}</time>` : "–";
}

/** How long ago, or from now. @param {{iso: string | null}} props */
export function Ago({ iso }) {
  if (!iso) return "–";
  const past = now.value - ms(iso);
  const text = past < 0 ? `in ${soft(-past)}` : past < 1_000 ? "now" : `${soft(past)} ago`;
  return html`<time datetime=${iso} title=${iso}>${text}</time>`;
}

/** How long it lasts by now. @param {{iso: string | null}} props */
export function Age({ iso }) {
  return iso ? html`<time datetime=${iso} title=${iso}>${soft(Math.max(0, now.value - ms(iso)))}</time>` : "–";
}

/** A duration by the second, since it is said anew each second. @param {number} passed */
const soft = (passed) => duration(passed < 59_500 ? Math.round(passed / 1_000) * 1_000 : passed).replace(/^0ms$/, "0s");
