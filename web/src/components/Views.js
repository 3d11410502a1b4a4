// Queries that have a name: some that everyone needs, and those that a person keeps in this browser.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { useData } from "../lib/answers.js";
import { closeDialog, openDialog } from "../lib/overlays.js";
import { at } from "../lib/place.js";
import { count } from "../lib/words.js";
import { Dialog } from "./Dialog.js";
import { Icon } from "./Icon.js";

const GIVEN = [
  { name: "All jobs", q: "" },
  { name: "Running", q: "state:running", of: "running" },
  { name: "Waiting over 10m", q: "state:ready age>10m" },
  { name: "On a retry", q: "state:scheduled attempt>=1" },
  { name: "Dead", q: "state:dead", of: "dead" },
];
const KEPT = "limpet.views";

/** @param {{q: string}} props */
export function Views({ q }) {
  const [own, setOwn] = useState(kept);
  const stats = useData("/stats").value.value;
  const views = [...GIVEN, ...own];
  const known = views.some((each) => each.q === q);
  const save = (/** @type {string} */ name) => setOwn(keep([...own.filter((each) => each.name !== name), { name, q }]));
  const drop = () => setOwn(keep(own.filter((each) => each.q !== q)));
  return html`<nav class="tabs" aria-label="Views">
    ${views.map((/** @type {any} */ each) => html`<a key=${each.name} href=${at("jobs", null, { q: each.q })} aria-current=${each.q === q ? "true" : undefined}>${each.name}${each.of && stats && html`<span class="n">${count(stats[each.of])}</span>`}</a>`)}
    ${!known && html`<button type="button" onClick=${() => openDialog(SaveView, { q, save })}><${Icon} name="plus" />Save view</button>`}
    ${own.some((each) => each.q === q) && html`<button type="button" onClick=${drop}><${Icon} name="close" />Remove view</button>`}
  </nav>`;
}

/** @param {{q: string, save: (name: string) => void, close: () => void}} props */
function SaveView({ q, save, close }) {
  const [name, setName] = useState("");
  const submit = () => {
    if (!name.trim()) return;
    save(name.trim());
    closeDialog();
  };
  const footer = html`<span class="note">kept in this browser</span
    ><button class="b" type="button" onClick=${close}>Keep none</button
    ><button class="b primary" type="submit" disabled=${!name.trim()}>Save view</button>`;
  return html`<${Dialog}
    title="Save this query as a view"
    lead=${html`<code class="any">${q}</code>`}
    small
    close=${close}
    onSubmit=${submit}
    footer=${footer}
  >
    <div class="field">
      <label for="view-name">Name</label
      ><input
        class="input"
        id="view-name"
        maxlength="40"
        value=${name}
        onInput=${(/** @type {any} */ e) => setName(e.target.value)}
      />
    </div>
  <//>`;
}

/** @returns {{name: string, q: string}[]} */
function kept() {
  try {
    const found = JSON.parse(localStorage.getItem(KEPT) ?? "[]");
    return Array.isArray(found)
      ? found.filter((each) => typeof each?.name === "string" && typeof each?.q === "string")
      : [];
  } catch {
    return [];
  }
}

/** @param {{name: string, q: string}[]} views */
function keep(views) {
  try {
    localStorage.setItem(KEPT, JSON.stringify(views));
  } catch {
    // A private window may have no storage: they hold until the page is left.
  }
  return views;
}
