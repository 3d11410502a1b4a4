// Opens and closes the details of a row; which one is open stands in the URL.
import { html } from "../lib/html.js";
import { go } from "../lib/place.js";
import { Icon } from "./Icon.js";

/** @param {{open: boolean, of: string, to: string}} props `to`: the address with the row the other way */
export function Fold({ open, of, to }) {
  return html`<button
    class="fold"
    type="button"
    aria-expanded=${open ? "true" : "false"}
    aria-label="Details of ${of}"
    onClick=${() => go(to, { replace: true })}
  >
    <${Icon} name="right" />
  </button>`;
}
