// The query: terms become chips, the rest stays text; fields and values are completed. The URL is the query.
import { useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { partsOf, terms } from "../lib/query.js";
import { count } from "../lib/words.js";
import { copy } from "./Copy.js";
import { Icon } from "./Icon.js";
import { useCompletion } from "./completion.js";

/** @param {{q: string, change: (q: string) => void, problem?: import("../lib/api.js").Problem | null}} props */
export function QueryBar({ q, change, problem }) {
  const [text, write] = useState("");
  const written = useRef("");
  const setText = (/** @type {string} */ next) => (write((written.current = next)), setAt(-1));
  const [focused, setFocused] = useState(false);
  const [at, setAt] = useState(-1);
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  const chips = terms(q);
  const offers = useCompletion(focused ? text : null);
  const open = focused && offers.length > 0;
  const set = (/** @type {string[]} */ all) => change(all.join(" ").trim());
  const add = (/** @type {string} */ written) => {
    setText("");
    if (written.trim()) set([...chips, ...terms(written)]);
  };
  const take = (/** @type {{text: string, whole: boolean}} */ offer) => {
    if (offer.whole) add(offer.text);
    else setText(offer.text);
    input.current?.focus();
  };
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step && open) setAt((at + step + offers.length) % offers.length);
    else if ((event.key === "Enter" || (event.key === "Tab" && open && text)) && open && at >= 0) take(offers[at]);
    else if (event.key === "Tab" && open && text && offers.length === 1) take(offers[0]);
    else if (event.key === "Enter") add(text);
    else if (event.key === " " && closed(text)) add(text);
    else if (event.key === "Backspace" && !text && chips.length) {
      setText(/** @type {string} */ (chips.at(-1)));
      set(chips.slice(0, -1));
    } else if (event.key === "Escape") input.current?.blur();
    else return;
    event.preventDefault();
  };
  return html`<div class="query" role="search">
    <div class="box" onClick=${(/** @type {Event} */ e) => e.target === e.currentTarget && input.current?.focus()}>
      <${Icon} name="search" />
      ${chips.map((each, i) => html`<${Chip} key=${each + i} text=${each} drop=${() => set(chips.filter((_, j) => j !== i))} />`)}
      <input
        ref=${input}
        data-query
        role="combobox"
        aria-label="Query"
        aria-expanded=${open}
        aria-controls="offers"
        aria-autocomplete="list"
        aria-activedescendant=${open && at >= 0 ? `offer-${at}` : undefined}
        autocomplete="off"
        autocapitalize="none"
        spellcheck=${false}
        placeholder=${chips.length ? "" : "state:dead queue:mail task:send_* error:Timeout age>1h"}
        value=${text}
        onInput=${(/** @type {any} */ e) => setText(e.target.value)}
        onKeyDown=${pressed}
        onFocus=${() => setFocused(true)}
        onBlur=${() => (setFocused(false), add(written.current))}
      />
      <kbd class="p1" aria-hidden="true">/</kbd>
      <button
        class="b quiet tiny p1"
        type="button"
        onClick=${() => copy(`limpet jobs '${q.replace(/'/g, "'\\''")}'`, "The command")}
      >
        <${Icon} name="copy" />Copy as CLI
      </button>
    </div>
    ${open && html`<${Offers} offers=${offers} at=${at} take=${take} />`}
    ${problem && html`<p class="problem" role="alert">${problem.message}${problem.fix ? `: ${problem.fix}` : ""}</p>`}
  </div>`;
}

/** Whether a space ends the term: not within quotes. @param {string} text */
const closed = (text) => text.trim() !== "" && (text.match(/(?<!\\)"/g)?.length ?? 0) % 2 === 0;

/** @param {{text: string, drop: () => void}} props */
function Chip({ text, drop }) {
  const parts = partsOf(text);
  return html`<span class="chip ${parts?.not ? "not" : ""}">
    ${parts ? html`<span>${parts.not ? "−" : ""}${parts.field}${parts.sign}</span><bdi>${parts.value}</bdi>` : html`<bdi>${text}</bdi>`}
    <button type="button" aria-label="Remove ${text}" onClick=${drop}><${Icon} name="close" /></button>
  </span>`;
}

/** @param {{offers: import("./completion.js").Offer[], at: number, take: (offer: any) => void}} props */
function Offers({ offers, at, take }) {
  return html`<div class="complete">
    <div id="offers" role="listbox" aria-label="Completions">
      ${offers.map(
        (each, i) =>
          html`<div
            id="offer-${i}"
            role="option"
            key=${each.text}
            aria-selected=${i === at}
            onPointerDown=${(/** @type {Event} */ e) => (e.preventDefault(), take(each))}
          >
            <bdi class="cut">${each.label}</bdi
            >${each.n !== undefined ? html`<span class="end">${count(each.n)}</span>` : each.about && html`<span class="end">${each.about}</span>`}
          </div>`,
      )}
    </div>
    <p class="hint"><kbd>↓</kbd> choose · <kbd>Enter</kbd> take · a − before a term turns it around</p>
  </div>`;
}
