// Copies a text, and says so.
import { html } from "../lib/html.js";
import { say } from "../lib/toasts.js";
import { Icon } from "./Icon.js";

/** @param {string} text @param {string} what */
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    say("succeeded", `${what} is copied.`);
  } catch {
    say("dead", `${what} could not be copied: the browser allows that on https and on this machine only.`);
  }
}

/** @param {{text: string, what: string, label?: string}} props */
export function Copy({ text, what, label }) {
  return html`<button
    class="b quiet tiny ${label ? "" : "icon"}"
    type="button"
    aria-label=${label ? undefined : `Copy ${what}`}
    onClick=${() => copy(text, what)}
  >
    <${Icon} name="copy" />${label}
  </button>`;
}
