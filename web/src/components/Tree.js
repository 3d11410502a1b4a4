// A payload as a tree of text nodes: numbers exact as sent, what is hidden in italics, what is large folded.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { cut, json } from "../lib/words.js";
import { copy } from "./Copy.js";

const KEYS = 20;
const LEVELS = 3;
const TEXT = 2_000;
const MASK = "•••redacted•••";

/** @param {{value: any, path?: string}} props */
export function Tree({ value, path = "args" }) {
  if (value === undefined || value === null) return html`<p class="dim pad">none</p>`;
  if (typeof value !== "object") return html`<div class="tree"><${Leaf} value=${value} /></div>`;
  return html`<div class="tree"><${Branch} value=${value} path=${path} level=${0} /></div>`;
}

/** @param {{value: any, path: string, level: number}} props */
function Branch({ value, path, level }) {
  const [all, setAll] = useState(false);
  const entries = Object.entries(value);
  const shown = all ? entries : entries.slice(0, KEYS);
  const rest = entries.length - shown.length;
  return html`<ul>
    ${shown.map(([key, each]) => html`<${Twig} key=${key} name=${key} value=${each} path=${Array.isArray(value) ? `${path}[${key}]` : `${path}.${key}`} level=${level} />`)}
    ${rest > 0 && html`<li><button class="link" type="button" onClick=${() => setAll(true)}>${rest} more</button></li>`}
    ${entries.length === 0 && html`<li class="hid">${Array.isArray(value) ? "empty list" : "none"}</li>`}
  </ul>`;
}

/** @param {{name: string, value: any, path: string, level: number}} props */
function Twig({ name, value, path, level }) {
  const deep = value !== null && typeof value === "object";
  const size = deep ? Object.keys(value).length : 0;
  const [open, setOpen] = useState(deep && level < LEVELS - 1 && size <= KEYS);
  const button = html`<button
    class="copy"
    type="button"
    aria-label="Copy ${path}"
    onClick=${(/** @type {Event} */ e) => (e.preventDefault(), copy(typeof value === "string" ? value : json(value), path))}
  >
    copy
  </button>`;
  if (!deep) return html`<li><span class="k said">${name}</span>: <${Leaf} value=${value} />${button}</li>`;
  return html`<li class="deep">
    <details open=${open} onToggle=${(/** @type {any} */ e) => setOpen(e.currentTarget.open)}>
      <summary>
        <span class="k said">${name}</span><i class="hid">${Array.isArray(value) ? `[${size}]` : `{${size}}`}</i>
      </summary>
      ${open && html`<${Branch} value=${value} path=${path} level=${level + 1} />`}
    </details>
    ${button}
  </li>`;
}

/** @param {{value: any}} props */
function Leaf({ value }) {
  const [all, setAll] = useState(false);
  if (typeof value === "string" && value === MASK) return html`<span class="hid">redacted</span>`;
  if (typeof value !== "string")
    return html`<span class=${typeof value === "number" || typeof value === "bigint" ? "num" : "b0"}
      >${String(value)}</span
    >`;
  const text = all ? value : cut(value, TEXT);
  return html`<bdi class="s">${JSON.stringify(text)}</bdi
    >${text !== value && html` <button class="link" type="button" onClick=${() => setAll(true)}>all ${value.length.toLocaleString("en-US")} characters</button>`}`;
}
