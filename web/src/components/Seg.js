// A row of choices, one of which holds: links, since the choice is in the URL.
import { html } from "../lib/html.js";

/** @param {{label: string, chosen: string, choices: {key: string, label: any, n?: any, href: string}[]}} props */
export function Seg({ label, chosen, choices }) {
  return html`<nav class="seg" aria-label=${label}>
    ${choices.map((each) => html`<a href=${each.href} aria-current=${each.key === chosen ? "true" : undefined}>${each.label}${each.n !== undefined && html`<span class="n">${each.n}</span>`}</a>`)}
  </nav>`;
}
