// Acts on what is selected: on these ids, or on all that match the query, never on "all" by accident.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { openDialog } from "../lib/overlays.js";
import { valueOf } from "../lib/query.js";
import { count } from "../lib/words.js";
import { ActOnJobs } from "../dialogs/ActOnJobs.js";
import { EditAndReplay } from "../dialogs/EditAndReplay.js";
import { Action } from "./Action.js";
import { Icon } from "./Icon.js";

/** @param {{chosen: Set<string>, q: string, jobs: import("../api.d.ts").JobRecord[], clear: () => void}} props */
export function BulkBar({ chosen, q, jobs, clear }) {
  const [all, setAll] = useState(false);
  const states = new Set(jobs.filter((each) => chosen.has(each.id)).map((each) => each.state));
  const has = (/** @type {string[]} */ ...wanted) => wanted.some((each) => states.has(/** @type {any} */ (each)));
  const meant = all ? { q } : { ids: [...chosen] };
  const open = (/** @type {any} */ view, /** @type {string} */ verb) =>
    openDialog(view, { verb, ...meant, done: clear });
  const dead = all ? (valueOf(q, "state") ?? "dead") === "dead" : has("dead");
  return html`<div class="bulk" role="region" aria-label="What is selected">
    <b>${all ? "All that match" : `${count(chosen.size)} selected`}</b>
    ${q && !all && html`<button class="b quiet tiny" type="button" onClick=${() => setAll(true)}>Select all that match</button>`}
    <span class="sepv"></span>
    ${(dead || has("scheduled")) && html`<${Action} tiny icon="retry" label="Retry…" run=${() => open(ActOnJobs, "retry")} />`}
    ${dead && html`<${Action} tiny icon="edit" label="Edit and replay…" run=${() => open(EditAndReplay, "retry")} />`}
    ${has("succeeded", "cancelled") && html`<${Action} tiny icon="retry" label="Run again…" run=${() => open(ActOnJobs, "rerun")} />`}
    ${(all || has("blocked", "scheduled", "ready", "running")) && html`<${Action} tiny kind="danger" icon="cancel" label="Cancel…" run=${() => open(ActOnJobs, "cancel")} />`}
    ${dead && html`<${Action} tiny kind="danger" icon="trash" label="Discard…" run=${() => open(ActOnJobs, "discard")} />`}
    <button class="b quiet tiny icon" type="button" aria-label="Select none" onClick=${clear}>
      <${Icon} name="close" />
    </button>
  </div>`;
}
