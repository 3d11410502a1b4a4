// Who one is to this server, and what this browser alone remembers.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { keysAreOn, switchKeys } from "../lib/keys.js";
import { at } from "../lib/place.js";
import { session, signOut } from "../lib/session.js";
import { chooseTheme, theme } from "../lib/theme.js";
import { sayError } from "../lib/toasts.js";
import { Panel } from "../components/Panel.js";
import { FactList } from "./JobFacts.js";

const THEMES = [
  ["system", "As the system"],
  ["light", "Light"],
  ["dark", "Dark"],
];

export function Browser() {
  const [keys, setKeys] = useState(keysAreOn);
  const turnKeys = () => (switchKeys(!keys), setKeys(!keys));
  const who = session.value;
  return html`<${Panel} title="You, in this browser">
    <div class="pad stack">
      <${FactList}
        facts=${[
          ["Name", html`<span class="said">${who?.name}</span>`],
          ["Role", who?.role],
          ["Queues", who?.queues ? who.queues.join(", ") : "every queue"],
          ["May", who?.may.join(", ")],
          ["Store", html`<span class="said">${who?.namespace}</span> on ${who?.engine}`],
          ["Limpet", who?.version],
        ]}
      />
      <div class="seg" role="group" aria-label="Theme">
        ${THEMES.map(([key, label]) => html`<button type="button" aria-pressed=${theme.value === key ? "true" : "false"} onClick=${() => chooseTheme(key)}>${label}</button>`)}
      </div>
      <label class="row"
        ><input class="check" type="checkbox" checked=${keys} onChange=${turnKeys} />Single keys act, such as j, k and
        x</label
      >
      ${who?.signed_in && html`<button class="b" type="button" onClick=${() => signOut().catch(sayError)}>Sign out</button>`}
    </div>
    <footer><a class="link" href=${at("operations")}>Operations</a> on many jobs, and how far they are</footer>
  <//>`;
}
