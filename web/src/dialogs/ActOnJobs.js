// Looks before it leaps: what an action on jobs would change, why it is done, and the number typed where it cannot be undone.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { session } from "../lib/session.js";
import { at } from "../lib/place.js";
import { count, some, tail } from "../lib/words.js";
import { Dialog } from "../components/Dialog.js";
import { StateBadge } from "../components/StateBadge.js";
import { act, body, DIRECT_MOST, operate, TYPED_ABOVE, useDryRun, VERBS } from "./acting.js";

/** @param {{verb: string, q?: string, ids?: string[], done?: () => void, close: () => void}} props */
export function ActOnJobs({ verb, q, ids, done, close }) {
  const meant = { q, ids };
  const { report, error } = useDryRun(verb, meant);
  const [reason, setReason] = useState("");
  const [typed, setTyped] = useState("");
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const { verb: word, primary, safe, fatal, about } = VERBS[verb];
  const n = report?.matched ?? 0;
  const sure = !fatal || n <= TYPED_ABOVE || typed.replace(/\D/g, "") === String(n);
  const submit = async () => {
    if (!n || !sure || busy) return;
    setBusy(true);
    try {
      if (n > DIRECT_MOST) await operate({ verb, ...body(meant), reason });
      else await act(verb, meant, { reason });
      done?.();
      close();
    } catch (refusal) {
      setProblem(refusal);
      setBusy(false);
    }
  };
  const label = report ? `${word} ${some(n, "job")}` : `${word}…`;
  const footer = html`<span class="note"
      >as <b>${session.value?.name}</b>${n > DIRECT_MOST ? " · by the server, can be stopped" : ""}</span
    >
    <button class="b" type="button" onClick=${close}>${safe}</button>
    <button class="b ${primary}" type="submit" disabled=${!n || !sure || busy}>${label}</button>`;
  return html`<${Dialog}
    small
    title=${`${label}${fatal ? "?" : ""}`}
    lead=${about}
    close=${close}
    onSubmit=${submit}
    footer=${footer}
  >
    ${(error || problem) && html`<p class="refusal" role="alert">${(error ?? problem).message} ${(error ?? problem).fix}</p>`}
    ${report && html`<${Samples} report=${report} verb=${verb} />`}
    <div class="field">
      <label for="reason">Reason<span class="dim">kept in the audit log</span></label>
      <input
        class="input"
        id="reason"
        maxlength="500"
        value=${reason}
        onInput=${(/** @type {any} */ e) => setReason(e.target.value)}
        data-first
      />
    </div>
    ${fatal && n > TYPED_ABOVE && html`<div class="field"><label for="typed">Type ${count(n)} to go on</label><input class="input" id="typed" inputmode="numeric" autocomplete="off" value=${typed} onInput=${(/** @type {any} */ e) => setTyped(e.target.value)} /></div>`}
  <//>`;
}

const MEANT = /** @type {Record<string, string>} */ ({
  retry: "dead or scheduled",
  rerun: "succeeded or cancelled",
  cancel: "not finished",
  discard: "dead",
});

/** @param {{report: any, verb: string}} props */
export function Samples({ report, verb }) {
  if (!report.matched)
    return html`<p class="note-box"><span></span>None of them is ${MEANT[verb]}, so nothing would change.</p>`;
  const more = report.matched - report.samples.length;
  return html`<ul class="verdict" aria-label="Dry run: nothing has changed yet">
      ${report.samples.map(
        (/** @type {any} */ each) =>
          html`<li>
            <${StateBadge} state=${each.state} quiet /><span class="id">${tail(each.id)}</span
            ><span class="mono small said">${each.task}</span
            ><a class="link small p1" href=${at("jobs", each.id)} target="_blank" rel="noopener">show</a>
          </li>`,
      )}
      ${more > 0 && html`<li><span></span><b>${count(more)}</b><span>more</span></li>`}
    </ul>
    ${report.notes.map((/** @type {string} */ each) => html`<p class="small mid">${each}</p>`)}`;
}
