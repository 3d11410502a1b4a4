// Shows what actions did; one polite live region says it too.
import { html } from "../lib/html.js";
import { drop, toasts } from "../lib/toasts.js";
import { liveness } from "../lib/live.js";
import { Icon } from "./Icon.js";
import { StateBadge } from "./StateBadge.js";

const SAID = /** @type {Record<string, string>} */ ({
  live: "",
  paused: "Live updates are paused.",
  lost: "The server does not answer.",
});

export function Toasts() {
  const last = toasts.value.at(-1);
  return html`<div class="toasts">
      ${toasts.value.map(
        (each) =>
          html`<div class="toast" key=${each.id}>
            <${StateBadge} state=${each.kind} word="" />
            <p>${each.text}</p>
            ${each.action && html`<button class="b tiny" type="button" onClick=${() => (drop(each.id), each.action?.run())}>${each.action.label}</button>`}
            <button class="b quiet tiny icon" type="button" aria-label="Close" onClick=${() => drop(each.id)}>
              <${Icon} name="close" />
            </button>
          </div>`,
      )}
    </div>
    <div class="sr" role="status">${SAID[liveness.value]} ${last?.text}</div>`;
}
