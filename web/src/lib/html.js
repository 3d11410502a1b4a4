// The one tag by which components are written: htm over preact, text nodes only.
import { h } from "preact";
import htm from "htm";

const written = htm.bind(h);

/** @type {Map<TemplateStringsArray, string[]>} */
const known = new Map();

/**
 * A line break beside text is a space, as in HTML, so that formatting a template does not change the page.
 * @type {(strings: TemplateStringsArray, ...values: any[]) => any}
 */
export function html(strings, ...values) {
  let told = known.get(strings);
  if (!told) known.set(strings, (told = strings.map(spaced)));
  return written(/** @type {any} */ (told), ...values);
}

/** @param {string} text a part between two values */
function spaced(text) {
  return text.replace(/\s*\n\s*/g, (_found, at, whole) => {
    const [before, after] = [whole.slice(0, at).at(-1), whole.slice(at).trimStart()[0]];
    const besideTag = (before === undefined || before === ">") && (after === undefined || after === "<");
    return besideTag && (before || after) ? "" : " ";
  });
}
