// Walks the rows of a table with j and k: an ink bar at the left edge says where one is, Enter opens the row.
import { useEffect, useRef } from "preact/hooks";
import { own } from "../lib/keys.js";

/** @param {(i: number) => void} [open] @returns the ref of the body whose rows are walked, but for opened details */
export function useRows(open) {
  const body = useRef(/** @type {HTMLElement | null} */ (null));
  const cursor = useRef(-1);
  useEffect(() => {
    const move = (/** @type {number} */ step) => () => {
      const rows = [.../** @type {HTMLElement} */ (body.current).querySelectorAll("tr:not(.detail)")];
      rows[cursor.current]?.classList.remove("at");
      cursor.current = Math.max(0, Math.min(rows.length - 1, cursor.current + step));
      rows[cursor.current]?.classList.add("at");
      rows[cursor.current]?.scrollIntoView({ block: "nearest" });
      /** @type {HTMLElement | null} */ (rows[cursor.current]?.querySelector("th a"))?.focus({ preventScroll: true });
    };
    if (!body.current) return;
    Object.assign(own.current, { j: move(1), k: move(-1) });
    if (open)
      own.current.Enter = (event) => event.target === document.body && cursor.current >= 0 && open(cursor.current);
  });
  return body;
}
