// Says something of a cause, over the version that was seen: another person's word in between is a refusal, not a loss.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { ask, part } from "../lib/api.js";
import { refreshAll } from "../lib/answers.js";
import { session } from "../lib/session.js";
import { say } from "../lib/toasts.js";
import { shortError } from "../lib/words.js";
import { Dialog } from "../components/Dialog.js";

/** @type {Record<string, {title: string, about: string, past: string, button: string, field?: {name: string, label: string, given?: string, note?: string}}>} */
const VERBS = {
  acknowledge: {
    title: "Take this cause",
    about: "It stays under To do, and others see that someone takes care.",
    past: "is acknowledged",
    button: "Take it",
  },
  snooze: {
    title: "Snooze this cause",
    about: "It is left alone for a time, then it is open again.",
    past: "is snoozed",
    button: "Snooze it",
    field: { name: "duration", label: "For", given: "4h", note: "5m, 4h, 2d" },
  },
  resolve: {
    title: "Resolve this cause",
    about: "A job that dies of it after this makes it regressed.",
    past: "is resolved",
    button: "Resolve it",
  },
  reopen: {
    title: "Reopen this cause",
    about: "It waits for a person again.",
    past: "is open again",
    button: "Reopen it",
  },
  assign: {
    title: "Assign this cause",
    about: "A person or a team; empty: no person's.",
    past: "is assigned",
    button: "Assign it",
    field: { name: "assignee", label: "To" },
  },
  note: {
    title: "Note on this cause",
    about: "It takes the place of the note before; an empty one removes it.",
    past: "has a new note",
    button: "Keep the note",
    field: { name: "text", label: "Note" },
  },
};

/** @param {{verb: string, cause: import("../api.d.ts").CauseRecord, close: () => void}} props */
export function SayOfCause({ verb, cause, close }) {
  const { title, about, past, button, field } = VERBS[verb];
  const given =
    verb === "assign"
      ? (cause.assignee ?? session.value?.name ?? "")
      : verb === "note"
        ? (cause.note ?? "")
        : (field?.given ?? "");
  const [value, setValue] = useState(given);
  const [reason, setReason] = useState("");
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const submit = async () => {
    const told = field ? { [field.name]: verb === "assign" ? value.trim() || null : value } : {};
    try {
      await ask("POST", `/dead/causes/${part(cause.cause)}/${verb}`, {
        query: { queue: cause.queue, task: cause.task },
        body: { ...told, reason, version: cause.version },
      });
      say("succeeded", `${shortError(cause.error)} ${past}.`);
      await refreshAll();
      close();
    } catch (refusal) {
      setProblem(refusal);
      await refreshAll();
    }
  };
  const footer = html`<span class="note">as <b>${session.value?.name}</b></span
    ><button class="b" type="button" onClick=${close}>Leave it</button
    ><button class="b primary" type="submit">${button}</button>`;
  return html`<${Dialog} small title=${title} lead=${about} close=${close} onSubmit=${submit} footer=${footer}>
    ${problem && html`<p class="refusal" role="alert">${problem.message} ${problem.fix}</p>`}
    ${field && html`<div class="field"><label for="said">${field.label}${field.note && html`<span class="dim">${field.note}</span>`}</label><input class="input" id="said" value=${value} onInput=${(/** @type {any} */ e) => setValue(e.target.value)} data-first /></div>`}
    <div class="field">
      <label for="reason">Reason<span class="dim">kept in the audit log</span></label
      ><input
        class="input"
        id="reason"
        maxlength="500"
        value=${reason}
        onInput=${(/** @type {any} */ e) => setReason(e.target.value)}
      />
    </div>
  <//>`;
}
