// Asks once more before something is done to one thing: what will happen, and why it is done.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { refreshAll } from "../lib/data.js";
import { session } from "../lib/session.js";
import { Dialog } from "../components/Dialog.js";

/**
 * @param {{title: string, lead: any, button: string, safe: string, fatal?: boolean, children?: any, act: (reason: string) => Promise<void>, close: () => void}} props
 * `act` does it and says what the server did; a refusal stays in the dialog
 */
export function Sure({ title, lead, button, safe, fatal = false, children, act, close }) {
  const [reason, setReason] = useState("");
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const submit = async () => {
    if (busy) return;
    setBusy(true);
    try {
      await act(reason);
      close();
    } catch (refusal) {
      setProblem(refusal);
      setBusy(false);
    }
    await refreshAll();
  };
  const footer = html`<span class="note">as <b>${session.value?.name}</b></span
    ><button class="b" type="button" onClick=${close}>${safe}</button
    ><button class="b ${fatal ? "fatal" : "primary"}" type="submit" disabled=${busy}>${button}</button>`;
  return html`<${Dialog} small title=${title} lead=${lead} close=${close} onSubmit=${submit} footer=${footer}>
    ${problem && html`<p class="refusal" role="alert">${problem.message} ${problem.fix}</p>`} ${children}
    <${Reason} reason=${reason} setReason=${setReason} />
  <//>`;
}

/** @param {{reason: string, setReason: (reason: string) => void, first?: boolean}} props */
export function Reason({ reason, setReason, first = false }) {
  return html`<div class="field">
    <label for="reason">Reason<span class="dim">kept in the audit log</span></label>
    <input
      class="input"
      id="reason"
      maxlength="500"
      value=${reason}
      onInput=${(/** @type {any} */ e) => setReason(e.target.value)}
      data-first=${first || undefined}
    />
  </div>`;
}
