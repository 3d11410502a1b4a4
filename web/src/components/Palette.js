// Finds a place, or a job by any end of its id, or all jobs that match; Ctrl K opens it.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { ask, part } from "../lib/api.js";
import { useData } from "../lib/answers.js";
import { opened } from "../lib/overlays.js";
import { at, go, jobsAt } from "../lib/place.js";
import { pauseLive } from "../lib/live.js";
import { turnTheme } from "../lib/theme.js";
import { tail, term } from "../lib/words.js";
import { Icon } from "./Icon.js";
import { PLACES } from "./Nav.js";
import { StateBadge } from "./StateBadge.js";

/** @typedef {{key: string, icon?: string, state?: string, label: any, end?: string, run: () => void}} Found */

const MOST = 6;
const AFTER_MS = 120;

export function Palette() {
  const [text, setText] = useState("");
  const [at_, setAt] = useState(0);
  const [job, setJob] = useState(/** @type {any} */ (null));
  const ref = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const close = () => (opened.value = "");
  useEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    ref.current?.showModal();
    ref.current?.querySelector("input")?.focus();
    return () => {
      ref.current?.close();
      before?.focus({ preventScroll: true });
    };
  }, []);
  useEffect(() => {
    setJob(null);
    const id = text.trim().replace(/^…/, "");
    if (!/^[0-9a-f-]{4,36}$/i.test(id)) return;
    const stop = new AbortController();
    const timer = setTimeout(
      () => ask("GET", `/jobs/${part(id)}`, { signal: stop.signal }).then(setJob, () => null),
      AFTER_MS,
    );
    return () => (clearTimeout(timer), stop.abort());
  }, [text]);
  const groups = useGroups(text.trim().toLowerCase(), text.trim(), job);
  const all = groups.flatMap((each) => each.found);
  const chosen = Math.min(at_, all.length - 1);
  const run = (/** @type {Found | undefined} */ found) => {
    if (!found) return;
    close();
    found.run();
  };
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step) setAt((chosen + step + all.length) % all.length);
    else if (event.key === "Enter") run(all[chosen]);
    else return;
    event.preventDefault();
  };
  return html`<dialog
    ref=${ref}
    class="palette"
    aria-label="Search or jump to"
    onCancel=${close}
    onClick=${(/** @type {Event} */ e) => e.target === ref.current && close()}
  >
    <div class="in">
      <${Icon} name="search" />
      <input
        role="combobox"
        aria-expanded="true"
        aria-controls="found"
        aria-activedescendant=${all[chosen] ? `found-${chosen}` : undefined}
        aria-label="Search"
        placeholder="A page, the end of an id, or words of a job"
        value=${text}
        autocomplete="off"
        spellcheck=${false}
        onInput=${(/** @type {any} */ e) => (setText(e.target.value), setAt(0))}
        onKeyDown=${pressed}
      />
    </div>
    <div class="found" id="found" role="listbox" aria-label="Found" tabindex="0">
      ${groups.map(
        ({ title, found }) =>
          html`<div role="group" aria-label=${title}>
            <p class="grp" aria-hidden="true">${title}</p>
            ${found.map((each) => {
              const i = all.indexOf(each);
              return html`<div
                id="found-${i}"
                role="option"
                key=${each.key}
                aria-selected=${i === chosen}
                onClick=${() => run(each)}
                onPointerMove=${() => setAt(i)}
              >
                ${each.state ? html`<${StateBadge} state=${each.state} word="" />` : html`<${Icon} name=${each.icon ?? "right"} />`}<span
                  class="cut"
                  >${each.label}</span
                >
                ${each.end && html`<span class="end">${each.end}</span>`}
              </div>`;
            })}
          </div>`,
      )}
    </div>
    <footer>
      <span><kbd>↑</kbd> <kbd>↓</kbd> choose</span><span><kbd>Enter</kbd> open</span><span><kbd>Esc</kbd> close</span>
    </footer>
  </dialog>`;
}

/** @param {string} low @param {string} text @param {any} job */
function useGroups(low, text, job) {
  const queues = useData("/queues", {}, { everyMs: 5_000 }).value.value?.queues ?? [];
  const tasks = useData("/tasks", {}, { everyMs: 5_000 }).value.value?.tasks ?? [];
  const has = (/** @type {string} */ name) => name.toLowerCase().includes(low);
  const to = (/** @type {string} */ href) => () => go(href);
  const pages = PLACES.flatMap((each) => each.pages).filter(({ label }) => has(label));
  /** @type {{title: string, found: Found[]}[]} */
  const groups = [
    { title: "Jobs", found: [] },
    { title: "Pages", found: pages.map(({ page, label }) => ({ key: page, icon: page, label, run: to(at(page)) })) },
  ];
  if (job)
    groups[0].found.push({
      key: job.id,
      state: job.state,
      label: `${job.task} ${tail(job.id)}`,
      end: job.state,
      run: to(at("jobs", job.id)),
    });
  if (!low) {
    groups.push({
      title: "Do",
      found: [
        { key: "live", icon: "pause", label: "Pause or resume live updates", end: "r", run: pauseLive },
        { key: "theme", icon: "moon", label: "Change the theme", end: "t", run: turnTheme },
        { key: "help", icon: "help", label: "Keys", end: "?", run: () => (opened.value = "help") },
      ],
    });
    return groups.filter((each) => each.found.length);
  }
  groups[0].found.push({ key: "q", icon: "search", label: `Jobs that match ${text}`, run: to(jobsAt(text)) });
  groups.push({
    title: "Queues",
    found: queues
      .filter((/** @type {any} */ each) => has(each.queue))
      .slice(0, MOST)
      .map((/** @type {any} */ each) => ({
        key: `q${each.queue}`,
        icon: "queues",
        label: each.queue,
        run: to(at("queues", each.queue)),
      })),
  });
  groups.push({
    title: "Tasks",
    found: tasks
      .filter((/** @type {any} */ each) => has(each.task))
      .slice(0, MOST)
      .map((/** @type {any} */ each) => ({
        key: `t${each.task}`,
        icon: "tasks",
        label: each.task,
        end: "its jobs",
        run: to(jobsAt(term("task", each.task))),
      })),
  });
  return groups.filter((each) => each.found.length);
}
