// Remembers who the person is to the server, and what that role may do.
import { computed, signal } from "@preact/signals";
import { ask, Problem, read } from "./api.js";
import { forgetAll } from "./answers.js";

/** @type {import("@preact/signals").Signal<import("../api.d.ts").SessionRecord | null>} */
export const session = signal(null);
/** Why there is no session. @type {import("@preact/signals").Signal<Problem | null>} */
export const refused = signal(null);
export const may = computed(() => new Set(session.value?.may ?? []));

export async function loadSession() {
  try {
    session.value = await read("/session");
    refused.value = null;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    refused.value = error;
  }
}

/** @param {string} token @param {boolean} keep */
export async function signIn(token, keep) {
  session.value = await ask("POST", "/session", { token, body: { keep } });
  forgetAll();
  refused.value = null;
}

export async function signOut() {
  await ask("DELETE", "/session");
  forgetAll();
  session.value = null;
  await loadSession();
}
