// Starts the page: who the person is, which page the URL names, and what keeps it true.
import { render } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { html } from "./lib/html.js";
import { startClock } from "./lib/clock.js";
import { startRefreshing } from "./lib/answers.js";
import { listenToKeys, own } from "./lib/keys.js";
import { startLive, stopLive } from "./lib/live.js";
import { closeDialog } from "./lib/overlays.js";
import { at, followLinks, place } from "./lib/place.js";
import { loadSession, refused, session } from "./lib/session.js";
import { Login } from "./components/Login.js";
import { Nothing } from "./components/Odd.js";
import { Shell, useHeading } from "./components/Shell.js";
import { pages } from "./pages/pages.js";

function App() {
  const { page, name } = place.value;
  const known = session.value !== null;
  useEffect(() => {
    if (known) startLive();
    return stopLive;
  }, [known]);
  useMemo(() => (own.current = {}), [page, name]); // before the page of the new place says what its keys do
  useEffect(() => closeDialog, [page, name]);
  if (!known)
    return refused.value && (refused.value.status === 401 || refused.value.status === 403)
      ? html`<${Login} />`
      : html`<${Away} />`;
  const found = pages[page];
  const view = found && (name === null ? found.list : found.one);
  const key = found?.one === found?.list ? page : `${page}/${name}`; // a list with one row opened is the same list
  return html`<${Shell}>${view ? html`<${view} key=${key} name=${name} />` : html`<${NoSuchPage} />`}<//>`;
}

function Away() {
  useEffect(() => {
    const timer = setInterval(loadSession, 2_000);
    return () => clearInterval(timer);
  }, []);
  return (
    refused.value &&
    html`<main class="narrow">
      <section class="panel">
        <${Nothing} state="warn" title="The server does not answer"
          >Jobs are safe where they are. The page tries again by itself.<//
        >
      </section>
    </main>`
  );
}

function NoSuchPage() {
  useHeading("No such page");
  return html`<section class="panel">
    <${Nothing} state="warn" title="There is no such page"
      ><a class="link" href=${at("overview")}>Go to the overview</a><//
    >
  </section>`;
}

followLinks();
listenToKeys();
startClock();
startRefreshing();
await loadSession();
render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById("page")));
