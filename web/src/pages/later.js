// A page whose module is fetched when it is first opened.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Nothing } from "../components/Odd.js";
import { html } from "../lib/html.js";

/** @param {() => Promise<any>} load answers the component */
export function later(load) {
  const found = signal(/** @type {any} */ (null));
  const failed = signal(false);
  return function Later(/** @type {any} */ props) {
    useEffect(() => {
      failed.value = false;
      if (!found.value)
        load().then(
          (component) => (found.value = component),
          () => (failed.value = true),
        );
    }, []);
    const Page = found.value;
    if (Page) return html`<${Page} ...${props} />`;
    if (failed.value)
      return html`<section class="panel">
        <${Nothing} state="warn" title="This page could not be fetched"
          >The server is away, or another version runs there by now. Load the page again.<//
        >
      </section>`;
    return html`<p class="pad dim" aria-busy="true">Loading…</p>`;
  };
}
