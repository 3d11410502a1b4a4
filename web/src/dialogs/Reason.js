// The field for why something is done.
import { html } from "../lib/html.js";

/** @param {{reason: string, setReason: (reason: string) => void}} props */
export function Reason({ reason, setReason }) {
  return html`<div class="field">
    <label for="reason">Reason<span class="dim">kept in the audit log</span></label>
    <input
      class="input"
      id="reason"
      maxlength="500"
      value=${reason}
      onInput=${(/** @type {any} */ e) => setReason(e.target.value)}
    />
  </div>`;
}
