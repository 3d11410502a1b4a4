// A button that does something to jobs or to the server: locked, in its place, for those whose role does not allow it.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { may } from "../lib/session.js";
import { sayError } from "../lib/toasts.js";
import { Icon } from "./Icon.js";

/**
 * @param {{label: any, run: () => any, role?: string, icon?: string, kind?: string, tiny?: boolean, name?: string}} props
 * `name`: what a screen reader says where the label alone would not tell what of
 */
export function Action({ label, run, role = "operator", icon, kind = "", tiny = false, name }) {
  const [busy, setBusy] = useState(false);
  const locked = !may.value.has(/** @type {any} */ (role));
  const act = async () => {
    if (locked || busy) return;
    setBusy(true);
    try {
      await run();
    } catch (error) {
      sayError(error);
    } finally {
      setBusy(false);
    }
  };
  return html`<button
    class="b ${kind} ${tiny ? "tiny" : ""}"
    type="button"
    aria-disabled=${locked ? "true" : undefined}
    aria-label=${name}
    title=${locked ? `This needs the role ${role}` : undefined}
    onClick=${act}
  >
    ${(icon || locked) && html`<${Icon} name=${locked ? "lock" : icon} />`}${label}
  </button>`;
}

/** One line that names the role which locked actions need. @param {{role?: string, what: string}} props */
export function Locked({ role = "operator", what }) {
  if (may.value.has(/** @type {any} */ (role))) return null;
  return html`<p class="locked"><${Icon} name="lock" />${what} needs the role ${role}.</p>`;
}
