// Asks for a token where the server wants one; it is exchanged for a cookie that no script can read.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { refused, signIn } from "../lib/session.js";
import { Mark } from "./Icon.js";

export function Login() {
  const [[token, keep, error], set] = useState(/** @type {[string, boolean, any]} */ (["", false, null]));
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      await signIn(token.trim(), keep);
    } catch (problem) {
      set([token, keep, problem]);
    }
  };
  document.title = "Sign in · Limpet";
  const why = refused.value?.message ?? "";
  return html`<main class="narrow" id="main" tabindex="-1">
    <section class="panel">
      <div class="hello">
        <${Mark} />
        <div>
          <h1 class="lead">Sign in to Limpet</h1>
          <p class="mid">${why[0]?.toUpperCase()}${why.slice(1)}.</p>
        </div>
      </div>
      <form class="pad stack" onSubmit=${submit}>
        <div class="field">
          <label for="token">Token</label>
          <input
            class="input mono"
            id="token"
            type="password"
            autocomplete="current-password"
            required
            value=${token}
            onInput=${(/** @type {any} */ e) => set([e.target.value, keep, null])}
            aria-invalid=${error ? "true" : undefined}
            aria-describedby="token-note"
          />
          <p class="note ${error ? "dead-t" : ""}" id="token-note">
            ${error ? `${error.message}.` : html`The person who runs this server makes one: <code>limpet tokens create --role operator</code>`}
          </p>
        </div>
        <label class="row"
          ><input
            class="check"
            type="checkbox"
            checked=${keep}
            onChange=${(/** @type {any} */ e) => set([token, e.target.checked, null])}
          />Stay signed in on this machine for 30 days</label
        >
        <div class="row"><button class="b primary" type="submit">Sign in</button></div>
      </form>
    </section>
  </main>`;
}
