// A table of any records: columns with ranks, a row header that leads somewhere, rows that open.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { Icon } from "./Icon.js";

/**
 * @typedef {object} Column
 * @property {any} head
 * @property {(row: any) => any} cell
 * @property {string} [rank] p1, p2 or p3: from which width on it is shown
 * @property {string} [kind] num, cut, go
 * @property {boolean} [name] it names the row
 */

/**
 * @param {{rows: any[], columns: Column[], keyOf: (row: any) => string, label: string, detail?: (row: any) => any, opened?: string | null, tone?: (row: any) => string}} props
 * `opened`: the key of the row that is open at first
 */
export function RecordTable({ rows, columns, keyOf, label, detail, opened = null, tone }) {
  const [open, setOpen] = useState(new Set(opened === null ? [] : [opened]));
  const turn = (/** @type {string} */ key) => {
    const next = new Set(open);
    if (!next.delete(key)) next.add(key);
    setOpen(next);
  };
  return html`<div class="wrap-t">
    <table class="tight" aria-label=${label}>
      <thead>
        <tr>
          ${columns.map((each) => html`<th scope="col" class="${each.kind === "num" ? "num" : ""} ${each.rank ?? ""}">${each.head || html`<span class="sr">Actions</span>`}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${rows.map((row) => {
          const key = keyOf(row);
          const isOpen = open.has(key);
          const fold =
            detail &&
            html`<button
              class="fold"
              type="button"
              aria-expanded=${isOpen}
              aria-label="Details of ${key}"
              onClick=${() => turn(key)}
            >
              <${Icon} name="right" />
            </button>`;
          return html`<tr key=${key} class="${isOpen ? "open" : ""} ${tone?.(row) ?? ""}">
              ${columns.map((each) =>
                each.name
                  ? html`<th scope="row" class="any ${each.rank ?? ""}">${fold}${each.cell(row)}</th>`
                  : html`<td class="${each.kind ?? ""} ${each.rank ?? ""}">${each.cell(row)}</td>`,
              )}
            </tr>
            ${
              isOpen &&
              detail &&
              html`<tr class="detail" key=${`${key} open`}>
                <td colspan=${columns.length}>${detail(row)}</td>
              </tr>`
            }`;
        })}
      </tbody>
    </table>
  </div>`;
}
