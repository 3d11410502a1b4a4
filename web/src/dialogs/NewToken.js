// Makes a token: what it may do, where, until when; then shows its text, this once.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { ask } from "../lib/api.js";
import { refreshAll } from "../lib/answers.js";
import { session } from "../lib/session.js";
import { say } from "../lib/toasts.js";
import { Copy } from "../components/Copy.js";
import { Dialog } from "../components/Dialog.js";
import { Reason } from "./Reason.js";

const ROLES = [
  ["viewer", "looks: jobs, queues, events, the audit log"],
  ["producer", "enqueues jobs"],
  ["worker", "claims jobs and ends them"],
  ["operator", "corrects: cancel, retry, pause, limits, schedules"],
  ["admin", "everything, and tokens"],
];

/** @param {{close: () => void}} props */
export function NewToken({ close }) {
  const [made, setMade] = useState(/** @type {any} */ (null));
  return made ? html`<${Told} made=${made} close=${close} />` : html`<${Form} close=${close} done=${setMade} />`;
}

/** @param {{close: () => void, done: (made: any) => void}} props */
function Form({ close, done }) {
  const [asked, setAsked] = useState({ role: "viewer", name: "", queues: "", expires: "90d" });
  const [reason, setReason] = useState("");
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const set = (/** @type {string} */ name) => (/** @type {any} */ e) => setAsked({ ...asked, [name]: e.target.value });
  const submit = async () => {
    const queues = asked.queues
      .split(",")
      .map((each) => each.trim())
      .filter(Boolean);
    const body = {
      role: asked.role,
      reason,
      ...(asked.name.trim() && { name: asked.name.trim() }),
      ...(queues.length && { queues }),
      ...(asked.expires.trim() && { expires: asked.expires.trim() }),
    };
    try {
      const made = await ask("POST", "/tokens", { body });
      say("succeeded", `The token ${made.name} is made.`);
      done(made);
    } catch (refusal) {
      setProblem(refusal);
    }
    await refreshAll();
  };
  const field = (
    /** @type {"name" | "queues" | "expires"} */ name,
    /** @type {string} */ label,
    /** @type {string} */ note,
  ) =>
    html`<div class="field">
      <label for=${name}>${label}<span class="dim">${note}</span></label>
      <input class="input" id=${name} maxlength="1000" autocomplete="off" value=${asked[name]} onInput=${set(name)} />
    </div>`;
  return html`<${Dialog}
    small
    title="Create a token"
    lead="A program or a person comes in with it. What it does is in the audit log under its name."
    close=${close}
    onSubmit=${submit}
    footer=${html`<span class="note">as <b>${session.value?.name}</b></span
      ><button class="b" type="button" onClick=${close}>Make none</button
      ><button class="b primary" type="submit">Create 1 token</button>`}
  >
    ${problem && html`<p class="refusal" role="alert">${problem.message} ${problem.fix}</p>`}
    <fieldset class="opts">
      <legend class="sr">Role</legend>
      ${ROLES.map(([role, about]) => html`<label class="opt"><input class="check round" type="radio" name="role" value=${role} checked=${asked.role === role} onChange=${set("role")} /><span class="med">${role}</span><small>${about}</small></label>`)}
    </fieldset>
    ${field("name", "Name", "empty: made of the role")} ${field("queues", "Queues", "mail, pdf; empty: every queue")}
    ${field("expires", "Expires after", "90d, 12h; empty: never")}
    <${Reason} reason=${reason} setReason=${setReason} />
  <//>`;
}

/** @param {{made: any, close: () => void}} props */
function Told({ made, close }) {
  return html`<${Dialog}
    small
    title="The token ${made.name}"
    lead="Copy it now: its text is shown this once and stored nowhere."
    close=${close}
    onSubmit=${close}
    footer=${html`<span class="note"></span><button class="b primary" type="submit">I have copied it</button>`}
  >
    <p class="row">
      <code class="codebox any grow">${made.token}</code><${Copy} text=${made.token} what="the token" label="Copy" />
    </p>
  <//>`;
}
