// A panel: its title, how many, what stands at the end of its head, and its content.
import { useId } from "preact/hooks";
import { html } from "../lib/html.js";

/** @param {{title: any, n?: any, end?: any, children?: any, class?: string}} props */
export function Panel({ title, n, end, children, class: more = "" }) {
  const id = useId();
  return html`<section class="panel ${more}" aria-labelledby=${id}>
    <header>
      <h2 id=${id}>${title}</h2>
      ${n !== undefined && html`<span class="n">${n}</span>`}${end && html`<span class="end">${end}</span>`}
    </header>
    ${children}
  </section>`;
}
