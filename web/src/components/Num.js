// A number that leads to the rows it counts; zero is grey, unknown is a dash.
import { html } from "../lib/html.js";
import { count } from "../lib/words.js";

/** @param {{n: number | null | undefined, href?: string, class?: string}} props */
export function Num({ n, href, class: more = "" }) {
  if (n === null || n === undefined) return "–";
  const text = n >= 10_000_000 ? html`<span title=${n.toLocaleString("en-US")}>${count(n)}</span>` : count(n);
  return href
    ? html`<a class="${n ? "" : "dim"} ${more}" href=${href}>${text}</a>`
    : html`<span class="${n ? "" : "dim"} ${more}">${text}</span>`;
}
