// Keeps rows in the order in which they were first shown, so that none moves under the pointer; new ones come last.
import { useRef } from "preact/hooks";

/**
 * @template T
 * @param {T[]} rows sorted @param {(row: T) => string} keyOf @param {string} [asked] another one sorts them again
 * @returns {T[]}
 */
export function useOrder(rows, keyOf, asked = "") {
  const known = useRef({ asked, keys: /** @type {string[]} */ ([]) });
  if (known.current.asked !== asked) known.current = { asked, keys: [] };
  const found = new Map(rows.map((each) => [keyOf(each), each]));
  const before = new Set(known.current.keys);
  known.current.keys = [
    ...known.current.keys.filter((key) => found.has(key)),
    ...[...found.keys()].filter((key) => !before.has(key)),
  ];
  return known.current.keys.map((key) => /** @type {T} */ (found.get(key)));
}
