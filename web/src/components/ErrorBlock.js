// An error: its type and message, what its kind means, then the frames: ours open, those of libraries folded.
import { useMemo, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { readTraceback } from "../lib/traceback.js";
import { StateBadge } from "./StateBadge.js";

const MEANS = /** @type {Record<string, string>} */ ({
  transient: "tried again, the attempt counts",
  permanent: "not tried again: it would fail again",
  timeout: "tried again, the attempt counts",
  rate_limited: "held back, no attempt is spent",
  poison: "its worker died under it too often",
});

/** @param {{error: string | null, message: string | null, kind?: string | null, traceback?: string | null}} props */
export function ErrorBlock({ error, message, kind, traceback }) {
  return html`<div class="stack close">
    <div class="errhead">
      <${StateBadge} state="dead" word="" /><span class="grow said"
        ><b>${error}</b
        >${message ? `: ${message}` : ""}${kind && html`<br />kind ${kind}${MEANS[kind] ? `: ${MEANS[kind]}` : ""}`}</span
      >
    </div>
    ${traceback && html`<${Frames} text=${traceback} />`}
  </div>`;
}

/** @param {{text: string}} props */
export function Frames({ text }) {
  const { frames } = useMemo(() => readTraceback(text), [text]);
  const [all, setAll] = useState(false);
  const own = frames.filter((each) => !each.library);
  const libraries = [...new Set(frames.map((each) => each.library).filter((each) => each))];
  if (!frames.length) return html`<pre class="codebox wide" tabindex="0">${text}</pre>`;
  const shown = all || !own.length ? frames : own;
  const hidden = frames.length - shown.length;
  return html`<ul class="frames">
    ${hidden > 0 && html`<li class="lib">${hidden} ${hidden === 1 ? "frame" : "frames"} of <b>${libraries.slice(0, 4).join(", ")}</b> · <button class="link" type="button" onClick=${() => setAll(true)}>show</button></li>`}
    ${shown.map(
      (each) =>
        html`<li>
          <p class="at ${each.library ? "lib" : ""} said">
            ${shortFile(each.file)}:${each.line} in <b>${each.name}</b>
          </p>
          ${each.code.length > 0 && html`<pre class="said" tabindex="0">${each.code.join("\n")}</pre>`}
        </li>`,
    )}
  </ul>`;
}

/** @param {string} file */
const shortFile = (file) => file.split("/").slice(-3).join("/");
