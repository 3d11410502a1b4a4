// Says what an action did, in the past tense; errors stay until they are closed.
import { signal } from "@preact/signals";

/** @typedef {{id: number, kind: string, text: any, action?: {label: string, run: () => void}}} Toast */
/** @type {import("@preact/signals").Signal<Toast[]>} */
export const toasts = signal([]);
const LASTS_MS = 6_000;
let last = 0;

/** @param {string} kind succeeded, warn or dead @param {any} text @param {Toast["action"]} [action] */
export function say(kind, text, action) {
  const id = ++last;
  toasts.value = [...toasts.value.slice(-3), { id, kind, text, action }];
  if (kind !== "dead") setTimeout(() => drop(id), action ? LASTS_MS * 2 : LASTS_MS);
}

/** @param {unknown} error */
export function sayError(error) {
  const fix = /** @type {{fix?: string | null}} */ (error).fix;
  say("dead", `${error instanceof Error ? error.message : error}${fix ? ` Then: ${fix}` : ""}`);
}

/** @param {number} id */
export const drop = (id) => (toasts.value = toasts.value.filter((each) => each.id !== id));
