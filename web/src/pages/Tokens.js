// Who may come in, as what, and until when: tokens are listed by how they begin, made, and revoked.
import { html } from "../lib/html.js";
import { part } from "../lib/api.js";
import { useData } from "../lib/answers.js";
import { openDialog } from "../lib/overlays.js";
import { at, place } from "../lib/place.js";
import { may } from "../lib/session.js";
import { cut } from "../lib/words.js";
import { Action, Locked } from "../components/Action.js";
import { shown } from "../components/Odd.js";
import { Panel } from "../components/Panel.js";
import { StateBadge } from "../components/StateBadge.js";
import { Ago } from "../components/Time.js";
import { NewToken } from "../dialogs/NewToken.js";
import { askReason } from "../dialogs/AskReason.js";

/** @typedef {import("../api.d.ts").TokenRecord} Token */

export function Tokens() {
  const admin = may.value.has("admin");
  const revoked = place.value.query.get("revoked") === "yes";
  const entry = useData(admin ? "/tokens" : null, { revoked: revoked || null }, { everyMs: 10_000 });
  const make = html`<${Action}
    tiny
    role="admin"
    icon="plus"
    label="Create token…"
    run=${() => openDialog(NewToken)}
  />`;
  if (!admin)
    return html`<${Panel} title="Tokens" end=${make}>
      <p class="pad"><${Locked} role="admin" what="Seeing and changing tokens" /></p>
    <//>`;
  return html`<${Panel} title="Tokens" n=${entry.value.value?.tokens.length ?? ""} end=${make}>
    ${shown(entry, ({ tokens }) =>
      tokens.length
        ? html`<div class="wrap-t">
            <table class="tight iconly">
              <thead>
                <tr>
                  <th class="sth" scope="col">State</th>
                  <th scope="col">Name</th>
                  <th class="p2" scope="col">Queues</th>
                  <th class="num p1" scope="col">Last used</th>
                  <th class="num p1" scope="col">Expires</th>
                  <th class="p3" scope="col">Made</th>
                  <th scope="col"><span class="sr">Actions</span></th>
                </tr>
              </thead>
              <tbody>
                ${tokens.map((/** @type {Token} */ each) => html`<${Row} key=${each.prefix} token=${each} />`)}
              </tbody>
            </table>
          </div>`
        : html`<p class="pad dim">There is no token. Requests of this machine need none; all others do.</p>`,
    )}
    <footer>
      Their texts are stored nowhere.
      <a class="link" href=${at("settings", null, { revoked: revoked ? null : "yes" })}
        >${revoked ? "Hide revoked ones" : "Show revoked ones"}</a
      >
    </footer>
  <//>`;
}

/** @param {{token: Token}} props */
function Row({ token }) {
  return html`<tr>
    <td><${StateBadge} state=${token.state} /></td>
    <th scope="row">
      <span class="said any">${cut(token.name, 80)}</span>
      <span class="sub">${token.role} · <span class="mono">${token.prefix}…</span></span>
    </th>
    <td class="p2 small mid said any">${token.queues ? cut(token.queues.join(", "), 200) : "every queue"}</td>
    <td class="num p1">
      ${token.last_used_at ? html`<${Ago} iso=${token.last_used_at} />` : html`<span class="dim">never</span>`}
    </td>
    <td class="num p1">
      ${token.expires_at ? html`<${Ago} iso=${token.expires_at} />` : html`<span class="dim">never</span>`}
    </td>
    <td class="p3 small dim">
      <${Ago} iso=${token.created_at} /> by <span class="said">${cut(token.created_by, 40)}</span>
    </td>
    <td class="go">
      ${token.state === "active" && html`<${Action} tiny kind="danger quiet" role="admin" label="Revoke…" name="Revoke… ${cut(token.name, 80)}" run=${() => revoke(token)} />`}
    </td>
  </tr>`;
}

/** @param {Token} token */
const revoke = (token) =>
  askReason({
    title: `Revoke ${cut(token.name, 80)}?`,
    about: "Servers refuse it within a second, and it cannot be brought back. Jobs that it enqueued stay.",
    button: "Revoke 1 token",
    safe: "Keep it",
    fatal: true,
    method: "DELETE",
    path: `/tokens/${part(token.prefix)}`,
    told: () => `${cut(token.name, 80)} is revoked.`,
  });
