// A dialog over the page: focus goes in and comes back, Escape closes it, the rest is inert.
import { useEffect, useId, useRef } from "preact/hooks";
import { html } from "../lib/html.js";
import { closeDialog, dialog } from "../lib/overlays.js";
import { Icon } from "./Icon.js";

/** @param {{title: any, lead?: any, small?: boolean, onSubmit?: () => any, children: any, footer?: any, close: () => void}} props */
export function Dialog({ title, lead, small = false, onSubmit, children, footer, close }) {
  const [ref, id] = [useRef(/** @type {HTMLDialogElement | null} */ (null)), useId()];
  useEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    const box = ref.current;
    box?.showModal();
    const first = /** @type {HTMLElement | null} */ (
      box?.querySelector("[data-first]") ?? box?.querySelector(".body input, .body textarea, .body select") ?? null
    );
    first?.focus();
    return () => {
      box?.close();
      before?.focus({ preventScroll: true });
    };
  }, []);
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    onSubmit?.();
  };
  return html`<dialog
    ref=${ref}
    class="dialog ${small ? "small-d" : ""}"
    aria-labelledby=${id}
    onCancel=${close}
    onClick=${(/** @type {Event} */ e) => e.target === ref.current && close()}
  >
    <form onSubmit=${submit}>
      <header>
        <div>
          <h2 id=${id}>${title}</h2>
          ${lead && html`<p>${lead}</p>`}
        </div>
        <button class="b quiet icon" type="button" aria-label="Close" onClick=${close}><${Icon} name="close" /></button>
      </header>
      <div class="body">${children}</div>
      ${footer && html`<footer>${footer}</footer>`}
    </form>
  </dialog>`;
}

/** Where the dialog that is open stands. */
export function OpenedDialog() {
  const found = dialog.value;
  return found && html`<${found.view} ...${found.props} close=${closeDialog} />`;
}
