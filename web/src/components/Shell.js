// Stands around every page: where one is, how live the numbers are, and what is said when they are not.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { html } from "../lib/html.js";
import { now } from "../lib/clock.js";
import { heardAt, liveness, pauseLive } from "../lib/live.js";
import { opened } from "../lib/overlays.js";
import { turnTheme } from "../lib/theme.js";
import { duration } from "../lib/words.js";
import { OpenedDialog } from "./Dialog.js";
import { Help } from "./Help.js";
import { Icon } from "./Icon.js";
import { Bottom, Side } from "./Nav.js";
import { Palette } from "./Palette.js";
import { Toasts } from "./Toasts.js";

/** @typedef {{text: any, crumb?: {label: string, href: string}}} Heading */
/** @type {import("@preact/signals").Signal<Heading>} */
const heading = signal({ text: "Limpet" });

/**
 * What the top bar and the tab say of this page; the tab begins with the state or the trouble.
 * @param {string} text @param {{title?: string, crumb?: Heading["crumb"]}} [more]
 */
export function useHeading(text, { title = text, crumb } = {}) {
  useEffect(() => {
    heading.value = { text, crumb };
    document.title = `${title} · Limpet`;
  }, [text, title, crumb?.href]);
}

/** @param {{children: any}} props */
export function Shell({ children }) {
  const { text, crumb } = heading.value;
  return html`<a class="skip" href="#main">Skip to content</a>
    <div class="app">
      <${Side} />
      <div class="frame">
        <header class="top">
          <div class="crumbs grow">
            ${crumb && html`<a href=${crumb.href}>${crumb.label}</a><span class="sep" aria-hidden="true">/</span>`}
            <h1 class="cut">${text}</h1>
          </div>
          <button class="find" type="button" onClick=${() => (opened.value = "palette")}>
            <${Icon} name="search" /><span>Search or jump to…</span><kbd aria-hidden="true">Ctrl K</kbd>
          </button>
          <${Live} />
          <button class="b quiet icon p1" type="button" aria-label="Change theme, t" onClick=${turnTheme}>
            <${Icon} name="moon" />
          </button>
          <button
            class="b quiet icon p1"
            type="button"
            aria-label="Keyboard help, question mark"
            onClick=${() => (opened.value = "help")}
          >
            <${Icon} name="help" />
          </button>
        </header>
        <${Banner} />
        <main id="main" tabindex="-1">${children}</main>
      </div>
    </div>
    <${Bottom} /><${Toasts} /><${OpenedDialog} />
    ${opened.value === "palette" && html`<${Palette} />`}${opened.value === "help" && html`<${Help} />`}`;
}

const LIVE = /** @type {Record<string, string>} */ ({ live: "Live", paused: "Paused", lost: "Not connected" });

function Live() {
  const state = liveness.value;
  return html`<button
    class="live ${state === "live" ? "" : "off"}"
    type="button"
    aria-pressed=${state === "live"}
    title="Live updates: press r to pause"
    onClick=${pauseLive}
  >
    <i></i><span>${LIVE[state]}</span><span class="sr"> updates, press r to pause</span>
  </button>`;
}

function Banner() {
  if (liveness.value !== "lost") return null;
  const age = duration(Math.max(0, now.value - heardAt.value));
  return html`<div class="banner">
    <${Icon} name="plug" /><span
      >The server does not answer. The numbers are ${age} old; jobs are safe, and the page tries again by itself.</span
    >
  </div>`;
}
