// The odd states of a panel: nothing yet, nothing at all, not answered.
import { useEffect, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { refreshAll } from "../lib/answers.js";
import { Icon } from "./Icon.js";
import { StateBadge } from "./StateBadge.js";

const PATIENCE_MS = 200;

/** Bones, once the wait can be noticed. @param {{rows?: number}} props */
export function Bones({ rows = 4 }) {
  const [seen, setSeen] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setSeen(true), PATIENCE_MS);
    return () => clearTimeout(timer);
  }, []);
  return html`<div class="bones" aria-busy="true">
    <span class="sr">Loading</span>${seen && Array.from({ length: rows }, () => html`<span class="bone" />`)}
  </div>`;
}

/** @param {{error: import("../lib/api.js").Problem}} props */
export function Failed({ error }) {
  return html`<div class="nothing" role="alert">
    <${Icon} name="plug" />
    <h2>${error.status === 404 ? "It is not there" : "This could not be read"}</h2>
    <p>
      ${error.message} ${error.fix} ${error.status === 0 || error.status >= 500 ? "Jobs are safe where they are." : ""}
    </p>
    <button class="b" type="button" onClick=${refreshAll}><${Icon} name="retry" />Try now</button>
  </div>`;
}

/** @param {{title: string, children?: any, state?: string}} props */
export function Nothing({ title, children, state = "succeeded" }) {
  return html`<div class="nothing">
    <${StateBadge} state=${state} word="" />
    <h2>${title}</h2>
    <p>${children}</p>
  </div>`;
}

/**
 * The content once it is there; what was read before stays while it is read again.
 * @param {import("../lib/answers.js").Entry} entry
 * @param {(value: any) => any} render
 * @param {number} [rows]
 */
export function shown(entry, render, rows) {
  const [value, error] = [entry.value.value, entry.error.value];
  if (value !== undefined && error?.status !== 404) return render(value);
  return error ? html`<${Failed} error=${error} />` : html`<${Bones} rows=${rows} />`;
}
