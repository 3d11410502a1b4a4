// Lists the keys, in four groups.
import { html } from "../lib/html.js";
import { opened } from "../lib/overlays.js";
import { keysAreOn } from "../lib/keys.js";
import { Dialog } from "./Dialog.js";

const GROUPS = [
  {
    title: "Everywhere",
    keys: [
      ["Search or jump to", "Ctrl K"],
      ["Query", "/"],
      ["Pause live updates", "r"],
      ["Theme", "t"],
      ["This help", "?"],
      ["Back, or clear", "Esc"],
    ],
  },
  {
    title: "Go to",
    keys: [
      ["Overview", "g o"],
      ["Queues", "g q"],
      ["Jobs", "g j"],
      ["Tasks", "g t"],
      ["Flows", "g f"],
      ["Schedules", "g s"],
      ["Dead letters", "g d"],
      ["Approvals", "g a"],
      ["Limits & breakers", "g l"],
      ["Workers", "g w"],
    ],
  },
  {
    title: "In a list",
    keys: [
      ["Down, up", "j k"],
      ["Open", "Enter"],
      ["Select", "x"],
      ["Select to here", "shift click"],
      ["Show new rows", "n"],
    ],
  },
  {
    title: "A job, or what is selected",
    keys: [
      ["Retry", "shift R"],
      ["Edit and replay", "shift E"],
      ["Cancel", "shift C"],
    ],
  },
];

export function Help() {
  const close = () => (opened.value = "");
  const lead = keysAreOn() ? "" : "Single keys are switched off in Settings.";
  return html`<${Dialog} title="Keys" lead=${lead} close=${close}>
    <div class="keys">
      ${GROUPS.map(
        ({ title, keys }) =>
          html`<div>
            <h3>${title}</h3>
            <dl>
              ${keys.map(
                ([what, key]) =>
                  html`<dt>${what}</dt>
                    <dd>${key.split(" ").map((each) => html`<kbd>${each}</kbd> `)}</dd>`,
              )}
            </dl>
          </div>`,
      )}
    </div>
  <//>`;
}
