// How the page behaves here, what the doctor says, and who may use the server.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { part } from "../lib/api.js";
import { useData } from "../lib/answers.js";
import { keysAreOn, switchKeys } from "../lib/keys.js";
import { at } from "../lib/place.js";
import { may, session, signOut } from "../lib/session.js";
import { chooseTheme, theme } from "../lib/theme.js";
import { cut } from "../lib/words.js";
import { Action, Locked } from "../components/Action.js";
import { Copy } from "../components/Copy.js";
import { shown } from "../components/Odd.js";
import { Panel } from "../components/Panel.js";
import { RecordTable } from "../components/RecordTable.js";
import { useHeading } from "../components/Shell.js";
import { StateBadge } from "../components/StateBadge.js";
import { Ago } from "../components/Time.js";
import { askReason } from "../dialogs/AskReason.js";
import { FactList } from "./JobFacts.js";

/** @typedef {import("../api.d.ts").TokenRecord} Token */

export function Settings() {
  useHeading("Settings");
  return html`<div class="cols c2"><${Here} /><${You} /></div>
    <${Doctor} />
    ${
      may.value.has("admin")
        ? html`<${Tokens} />`
        : html`<section class="panel">
            <div class="pad"><${Locked} role="admin" what="Seeing and making tokens" /></div>
          </section>`
    }`;
}

function Here() {
  const [keys, setKeys] = useState(keysAreOn());
  const turn = (/** @type {boolean} */ on) => (switchKeys(on), setKeys(on));
  return html`<${Panel} title="This browser">
    <div class="pad stack close">
      <div class="row wrap">
        <span class="mid">Theme</span>
        <div class="seg" role="group" aria-label="Theme">
          ${["system", "light", "dark"].map((each) => html`<button type="button" aria-pressed=${theme.value === each} onClick=${() => chooseTheme(each)}>${each}</button>`)}
        </div>
      </div>
      <label class="row"
        ><input
          class="check"
          type="checkbox"
          checked=${keys}
          onChange=${(/** @type {any} */ e) => turn(e.target.checked)}
        />Single keys do something (<kbd>?</kbd> lists them)</label
      >
      <p>
        <a class="link" href=${at("operations")}>Operations</a>
        <span class="mid">on many jobs, and how far they are</span>
      </p>
    </div>
  <//>`;
}

function You() {
  const you = session.value;
  return html`<${Panel} title="You">
    <div class="pad stack close">
      <${FactList}
        facts=${[
          ["Name", html`<span class="said">${you?.name}</span>`],
          ["Role", you?.role],
          ["Queues", you?.queues === null ? "every queue" : you?.queues.join(", ")],
          ["Namespace", you?.namespace],
          ["Engine", you?.engine],
          ["Version", you?.version],
        ]}
      />
      ${you?.signed_in && html`<div><button class="b" type="button" onClick=${signOut}>Sign out</button></div>`}
    </div>
  <//>`;
}

const RANK = /** @type {Record<string, number>} */ ({ error: 0, warning: 1, ok: 2 });

function Doctor() {
  const entry = useData("/doctor", {}, { everyMs: 60_000 });
  return html`<${Panel} title="Doctor" end="what is wrong, or could be">
    ${shown(
      entry,
      ({ findings }) =>
        html`<ul class="needs">
          ${[...findings]
            .sort((a, b) => RANK[a.level] - RANK[b.level])
            .map(
              (each) =>
                html`<li>
                  <${StateBadge} state=${each.level} word=${each.level} quiet />
                  <p>
                    <span class="said">${each.text}</span
                    >${each.fix && html` <span class="mid said">${each.fix}</span>`}
                  </p>
                  <span class="when mono">${each.code}</span>
                </li>`,
            )}
        </ul>`,
    )}
  <//>`;
}

const ROLES = ["viewer", "producer", "worker", "operator", "admin"];

function Tokens() {
  const [made, setMade] = useState("");
  const entry = useData("/tokens", {}, { everyMs: 5_000 });
  const make = () =>
    askReason({
      title: "Make 1 token",
      about: "Its text is shown once.",
      button: "Make it",
      safe: "Make none",
      method: "POST",
      path: "/tokens",
      fields: [
        { name: "role", label: "Role", choices: ROLES },
        { name: "name", label: "Name", note: "the audit log names it so" },
        { name: "expires", label: "Expires after", note: "30d; empty: it does not" },
      ],
      told: (answer) => `Token ${answer.name} is made.`,
      after: (answer) => setMade(answer.token),
    });
  const columns = [
    {
      head: "Token",
      name: true,
      cell: (/** @type {Token} */ each) =>
        html`<span class="said">${cut(each.name, 60)}</span> <span class="mono small dim">${each.prefix}…</span>`,
    },
    { head: "Role", cell: (/** @type {Token} */ each) => each.role },
    {
      head: "Queues",
      rank: "p1",
      cell: (/** @type {Token} */ each) =>
        html`<span class="mid said">${each.queues === null ? "every queue" : cut(each.queues.join(", "), 80)}</span>`,
    },
    {
      head: "Used",
      kind: "num",
      rank: "p1",
      cell: (/** @type {any} */ each) => html`<${Ago} iso=${each.used_at ?? each.last_used_at ?? null} />`,
    },
    {
      head: "Expires",
      kind: "num",
      rank: "p2",
      cell: (/** @type {any} */ each) => html`<${Ago} iso=${each.expires_at ?? null} />`,
    },
    {
      head: "",
      kind: "go",
      cell: (/** @type {Token} */ each) =>
        html`<${Action}
          tiny
          role="admin"
          kind="danger"
          label="Revoke…"
          name=${`Revoke ${each.name}`}
          run=${() => askReason({ title: `Revoke token ${cut(each.name, 60)}`, about: "Servers refuse it within a second.", button: "Revoke it", safe: "Keep it", fatal: true, method: "DELETE", path: `/tokens/${part(each.name)}`, told: () => `Token ${each.name} is revoked.` })}
        />`,
    },
  ];
  return html`<${Panel}
    title="Tokens"
    end=${html`<${Action} tiny role="admin" icon="plus" label="Make a token…" run=${make} />`}
  >
    ${
      made &&
      html`<div class="pad">
        <div class="note-box">
          <${StateBadge} state="succeeded" word="" /><span
            >Copy it now; it is not shown again: <code class="any">${made}</code>
            <${Copy} text=${made} what="The token"
          /></span>
        </div>
      </div>`
    }
    ${shown(entry, ({ tokens }) => (tokens.length ? html`<${RecordTable} label="Tokens" rows=${tokens} columns=${columns} keyOf=${(/** @type {Token} */ each) => each.name} />` : html`<p class="pad dim">No token yet. On this machine none is needed.</p>`))}
  <//>`;
}
