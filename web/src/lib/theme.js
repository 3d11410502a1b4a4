// Turns the page dark or light; until a person has chosen, the system decides.
import { signal } from "@preact/signals";

export const theme = signal(document.documentElement.dataset.theme ?? "system");

export function turnTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const shown = theme.value === "system" ? (dark ? "dark" : "light") : theme.value;
  chooseTheme(shown === "dark" ? "light" : "dark");
}

/** @param {string} chosen light, dark or system */
export function chooseTheme(chosen) {
  theme.value = chosen;
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  try {
    localStorage.setItem("limpet.theme", chosen);
  } catch {
    // A private window may have no storage: it holds until the page is left.
  }
}
