// Remembers what lies over the page: the palette, the help, or a dialog with what it is about.
import { signal } from "@preact/signals";

/** "palette" | "help" | "" */
export const opened = signal("");

/** @typedef {{view: any, props: any}} OpenDialog */
/** @type {import("@preact/signals").Signal<OpenDialog | null>} */
export const dialog = signal(null);

/** @param {any} view a component that is given `close` beside its props @param {any} [props] */
export const openDialog = (view, props = {}) => (dialog.value = { view, props });
export const closeDialog = () => (dialog.value = null);
