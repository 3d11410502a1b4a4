// Changes some arguments of dead jobs and runs them again: one first, all slowly, or all at once, seen before it is done.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { exact } from "../lib/api.js";
import { session } from "../lib/session.js";
import { count, duration, json, some, tail } from "../lib/words.js";
import { Dialog } from "../components/Dialog.js";
import { act, body, operate, useDryRun } from "./acting.js";
import { Samples } from "./ActOnJobs.js";

const PER_S = 5;
const STOP_AFTER = 10;

/** @param {{q?: string, ids?: string[], patch?: string, plain?: boolean, done?: () => void, close: () => void}} props `plain`: nothing is edited */
export function EditAndReplay({ q, ids, patch = "{}", plain = false, done, close }) {
  const meant = { q, ids };
  const [text, setText] = useState(patch);
  const [how, setHow] = useState(ids?.length === 1 ? "all" : plain ? "one" : "slow");
  const [reason, setReason] = useState("");
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const { raw, wrong } = plain ? { raw: "", wrong: "" } : partOf(text);
  const { report, error } = useDryRun("retry", meant, {}, raw);
  const n = report?.matched ?? 0;
  const number = how === "one" ? Math.min(1, n) : n;
  const submit = async () => {
    if (!n || wrong || busy) return;
    setBusy(true);
    try {
      const asked = { verb: "retry", ...body(meant), reason };
      if (how === "one") await act("retry", { ids: [report.samples[0].id] }, { reason }, raw);
      else if (how === "slow") await operate({ ...asked, per_second: PER_S, stop_after: STOP_AFTER }, raw);
      else if (n > 500) await operate(asked, raw);
      else await act("retry", meant, { reason }, raw);
      done?.();
      close();
    } catch (refusal) {
      setProblem(refusal);
      setBusy(false);
    }
  };
  const refusal = problem ?? error;
  const footer = html`<span class="note"
      >as
      <b>${session.value?.name}</b
      >${how === "slow" && n ? ` · about ${duration((n / PER_S) * 1_000)} at ${PER_S} per second · can be stopped` : ""}</span
    >
    <button class="b" type="button" onClick=${close}>Keep as they are</button>
    <button class="b primary" type="submit" disabled=${!n || wrong !== "" || busy}>
      Replay ${some(number, "job")}
    </button>`;
  const title = `${plain ? "Replay" : "Edit and replay"} ${report ? some(n, "dead job") : "dead jobs"}`;
  return html`<${Dialog}
    title=${title}
    lead="They keep their ids, get fresh attempts, and obey limits and unique keys."
    close=${close}
    onSubmit=${submit}
    footer=${footer}
  >
    ${ids?.length !== 1 && html`<${How} how=${how} setHow=${setHow} />`}
    ${!plain && html`<div class="cols patch"><${Patch} text=${text} setText=${setText} wrong=${wrong} /><${Preview} report=${report} /></div>`}
    ${refusal && html`<p class="refusal" role="alert">${refusal.message} ${refusal.fix}</p>`}
    ${report && (plain || !report.matched) && html`<${Samples} report=${report} verb="retry" />`}
    ${report && !plain && report.notes.map((/** @type {string} */ each) => html`<p class="small mid">${each}</p>`)}
    <div class="field">
      <label for="reason">Reason<span class="dim">kept in the audit log</span></label>
      <input
        class="input"
        id="reason"
        maxlength="500"
        value=${reason}
        onInput=${(/** @type {any} */ e) => setReason(e.target.value)}
      />
    </div>
  <//>`;
}

/** @param {string} text */
function partOf(text) {
  try {
    const value = exact(text);
    if (value === null || typeof value !== "object" || Array.isArray(value))
      return { raw: "", wrong: 'Write an object: {"url": "…"}' };
    return { raw: Object.keys(value).length ? `"patch":${text}` : "", wrong: "" };
  } catch (error) {
    return { raw: "", wrong: `This is not JSON: ${error instanceof Error ? error.message : error}` };
  }
}

const HOW = [
  { key: "one", title: "One first", about: "the newest, then ask again" },
  { key: "slow", title: `All, ${PER_S} per second`, about: `stops when ${STOP_AFTER} died again` },
  { key: "all", title: "All at once", about: "as fast as limits allow" },
];

/** @param {{how: string, setHow: (how: string) => void}} props */
function How({ how, setHow }) {
  return html`<fieldset class="opts three">
    <legend class="sr">How fast</legend>
    ${HOW.map((each) => html`<label class="opt"><input class="check round" type="radio" name="how" checked=${how === each.key} onChange=${() => setHow(each.key)} /><span class="med">${each.title}</span><small>${each.about}</small></label>`)}
  </fieldset>`;
}

/** @param {{text: string, setText: (text: string) => void, wrong: string}} props */
function Patch({ text, setText, wrong }) {
  return html`<div class="field">
    <label for="patch">Patch<span class="dim">some arguments; the task's name stays</span></label>
    <textarea
      class="input"
      id="patch"
      rows="8"
      spellcheck=${false}
      value=${text}
      aria-invalid=${wrong ? "true" : undefined}
      aria-describedby="patch-note"
      onInput=${(/** @type {any} */ e) => setText(e.target.value)}
      data-first
    ></textarea>
    <p class="note ${wrong ? "dead-t" : ""}" id="patch-note">${wrong || "Numbers of any size stay exact."}</p>
  </div>`;
}

/** What changes in the first sample. @param {{report: any}} props */
function Preview({ report }) {
  const sample = report?.samples[0];
  const { before = {}, after = {} } = report?.edits[0] ?? {};
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return html`<div class="field">
    <span
      >Preview${sample ? ` on job ${tail(sample.id)}` : ""}<span class="dim">
        ${report ? `1 of ${count(report.samples.length)} samples` : ""}</span
      ></span
    >
    <div class="diff" tabindex="0" role="group" aria-label="Preview">
      <div class="cap">arguments</div>
      ${names.map((name) => html`${name in before && html`<div class="del">− ${name}: ${json(before[name], 1)}</div>`}${name in after && html`<div class="add">+ ${name}: ${json(after[name], 1)}</div>`}`)}
      ${!names.length && html`<div>${sample ? "Nothing changes." : "–"}</div>`}
    </div>
  </div>`;
}
