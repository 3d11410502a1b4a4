// Tells the time of the server once a second, while the page is seen.
import { signal } from "@preact/signals";
import { skew } from "./api.js";

export const now = signal(Date.now());

export const startClock = () =>
  setInterval(() => {
    if (!document.hidden) now.value = Date.now() + skew.ms;
  }, 1_000);
