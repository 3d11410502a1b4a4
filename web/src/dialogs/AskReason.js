// Asks why before something is changed, and for what the change needs besides; then says what the server did.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { ask } from "../lib/api.js";
import { refreshAll } from "../lib/answers.js";
import { openDialog } from "../lib/overlays.js";
import { session } from "../lib/session.js";
import { say } from "../lib/toasts.js";
import { Dialog } from "../components/Dialog.js";
import { Reason } from "./Reason.js";

/** @typedef {{name: string, label: string, note?: string, given?: string, required?: boolean, choices?: string[], number?: boolean}} Field */

/**
 * @typedef {object} Asked
 * @property {string} title verb, number and noun
 * @property {any} [about]
 * @property {string} button
 * @property {string} safe
 * @property {boolean} [fatal]
 * @property {string} method
 * @property {string} path
 * @property {Record<string, any>} [body]
 * @property {Field[]} [fields]
 * @property {boolean} [noReason]
 * @property {(answer: any) => any} told what is said afterwards
 * @property {(answer: any) => import("../lib/toasts.js").Toast["action"]} [next] what the toast leads to
 * @property {(answer: any) => void} [after]
 */

/** @param {Asked} asked */
export const askReason = (asked) => openDialog(AskReason, { asked });

/** @param {{asked: Asked, close: () => void}} props */
function AskReason({ asked, close }) {
  const { title, about, button, safe, fatal = false, fields = [], noReason = false } = asked;
  const [values, setValues] = useState(
    /** @type {Record<string, string>} */ (
      Object.fromEntries(fields.map((each) => [each.name, each.given ?? each.choices?.[0] ?? ""]))
    ),
  );
  const [reason, setReason] = useState("");
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const missing = fields.some((each) => each.required && !values[each.name].trim());
  const submit = async () => {
    if (missing) return;
    try {
      const answer = await send(asked, values, reason);
      say("succeeded", asked.told(answer), asked.next?.(answer));
      close();
      asked.after?.(answer);
      await refreshAll();
    } catch (refusal) {
      setProblem(refusal);
    }
  };
  const footer = html`<span class="note">as <b>${session.value?.name}</b></span>
    <button class="b" type="button" onClick=${close}>${safe}</button>
    <button class="b ${fatal ? "fatal" : "primary"}" type="submit" disabled=${missing}>${button}</button>`;
  return html`<${Dialog} small title=${title} lead=${about} close=${close} onSubmit=${submit} footer=${footer}>
    ${problem && html`<p class="refusal" role="alert">${problem.message} ${problem.fix}</p>`}
    ${fields.map((each) => html`<${FieldOf} field=${each} value=${values[each.name]} set=${(/** @type {string} */ value) => setValues({ ...values, [each.name]: value })} />`)}
    ${!noReason && html`<${Reason} reason=${reason} setReason=${setReason} />`}
  <//>`;
}

/** @param {{field: Field, value: string, set: (value: string) => void}} props */
function FieldOf({ field, value, set }) {
  const id = `field-${field.name}`;
  const change = (/** @type {any} */ event) => set(event.target.value);
  return html`<div class="field">
    <label for=${id}>${field.label}${field.note && html`<span class="dim">${field.note}</span>`}</label>
    ${
      field.choices
        ? html`<select class="input" id=${id} value=${value} onChange=${change}>
            ${field.choices.map((each) => html`<option value=${each}>${each}</option>`)}
          </select>`
        : html`<input
            class="input"
            id=${id}
            value=${value}
            inputmode=${field.number ? "decimal" : undefined}
            onInput=${change}
          />`
    }
  </div>`;
}

/** @param {Asked} asked @param {Record<string, string>} values @param {string} reason */
function send(asked, values, reason) {
  /** @type {Record<string, any>} */
  const told = {};
  for (const { name, number } of asked.fields ?? [])
    if (values[name].trim()) told[name] = number ? Number(values[name]) : values[name].trim();
  if (asked.method === "DELETE") return ask("DELETE", asked.path, { query: reason ? { reason } : {} });
  return ask(asked.method, asked.path, { body: { ...asked.body, ...told, ...(asked.noReason ? {} : { reason }) } });
}
