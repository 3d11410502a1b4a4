// Remembers where the person is: the URL is the state, so back works and every view can be sent to someone.
import { signal } from "@preact/signals";

/** @typedef {{page: string, name: string | null, query: URLSearchParams}} Place */

/** What stands before our paths: this module lies at PREFIX/assets/DIGEST/lib/place.js. */
export const PREFIX = new URL("../../../", import.meta.url).pathname;

export const place = signal(read());

/** @returns {Place} */
function read() {
  const parts = location.pathname.slice(PREFIX.length).split("/");
  return {
    page: decodeURIComponent(parts[0] ?? "") || "overview",
    name: parts.length > 1 ? decodeURIComponent(parts.slice(1).join("/")) : null,
    query: new URLSearchParams(location.search),
  };
}

/**
 * The address of a page; parameters that are empty are left out.
 * @param {string} page
 * @param {string | null} [name]
 * @param {Record<string, string | number | null | undefined>} [query]
 */
export function at(page, name = null, query = {}) {
  const told = new URLSearchParams();
  for (const [key, value] of Object.entries(query))
    if (value !== null && value !== undefined && value !== "") told.set(key, String(value));
  const path = page === "overview" ? "" : name === null ? page : `${page}/${encodeURIComponent(name)}`;
  return PREFIX + path + (told.size ? `?${told}` : "");
}

/** The list of jobs that match a query. @param {string} q */
export const jobsAt = (q) => at("jobs", null, { q });

/** @param {string} href @param {{replace?: boolean}} [how] */
export function go(href, { replace = false } = {}) {
  if (href === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", href);
  const before = place.value;
  place.value = read();
  if (!replace && (before.page !== place.value.page || before.name !== place.value.name)) {
    scrollTo(0, 0);
    document.getElementById("main")?.focus({ preventScroll: true });
  }
}

/** Change parameters of this page, in place. @param {Record<string, string | null>} changes @param {{push?: boolean}} [how] */
export function turn(changes, { push = false } = {}) {
  const query = Object.fromEntries(place.value.query);
  go(at(place.value.page, place.value.name, { ...query, ...changes }), { replace: !push });
}

/** Follow links of ours without loading a document. */
export function followLinks() {
  addEventListener("popstate", () => (place.value = read()));
  document.addEventListener("click", (event) => {
    if (
      event.defaultPrevented ||
      event.button !== 0 ||
      event.metaKey ||
      event.ctrlKey ||
      event.shiftKey ||
      event.altKey
    )
      return;
    const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!link || link.hasAttribute("download") || link.getAttribute("target")) return;
    const url = new URL(link.getAttribute("href") ?? "", location.href);
    if (
      url.origin !== location.origin ||
      !url.pathname.startsWith(PREFIX) ||
      url.hash ||
      url.pathname.startsWith(`${PREFIX}api/`)
    )
      return;
    event.preventDefault();
    go(url.pathname + url.search);
  });
}
