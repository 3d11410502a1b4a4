// Offers what a term may become: fields first, then the values that are known, with how many jobs they have.
import { useData } from "../lib/answers.js";
import { STATES, term } from "../lib/words.js";

/** @typedef {{text: string, label: string, whole: boolean, n?: number, about?: string}} Offer */

const FIELDS = /** @type {[string, string][]} */ ([
  ["state:", "where it is"],
  ["queue:", "its queue"],
  ["task:", "its task, send_* too"],
  ["error:", "in its error"],
  ["age>", "enqueued longer ago, 1h"],
  ["age<", "enqueued since, 1h"],
  ["attempt>=", "its attempt"],
  ["finished<", "ended since, 1h"],
  ["due<", "due within, 10m"],
  ["tenant:", "its tenant"],
  ["tag:", "one of its tags"],
  ["args.", "an argument, args.user.id:42"],
  ["cause:", "what killed it"],
  ["id:", "the end of its id"],
  ["priority<=", "0 is the most urgent"],
  ["unique:", "its unique key"],
  ["flow:", "its flow"],
]);
const MOST = 9;

/** @param {string | null} text null: none are wanted @returns {Offer[]} */
export function useCompletion(text) {
  const wanted = text !== null;
  const queues = useData(wanted ? "/queues" : null, {}, { everyMs: 5_000 }).value.value?.queues ?? [];
  const tasks = useData(wanted ? "/tasks" : null, {}, { everyMs: 5_000 }).value.value?.tasks ?? [];
  const stats = useData(wanted ? "/stats" : null).value.value ?? {};
  if (text === null) return [];
  const [, no, field, value] = /^([-!]?)(state|queue|task):(.*)$/.exec(text) ?? [];
  if (!field) return fields(text);
  const values = {
    state: STATES.map((name) => ({ name, n: stats[name] })),
    queue: queues.map((/** @type {any} */ each) => ({ name: each.queue, n: sum(each) })),
    task: tasks.map((/** @type {any} */ each) => ({
      name: each.task,
      n: Object.values(each.states).reduce((all, n) => all + Number(n), 0),
    })),
  }[/** @type {"state"} */ (field)];
  const low = value.replace(/"/g, "").toLowerCase();
  const begins = (/** @type {any} */ each) => Number(each.name.toLowerCase().startsWith(low));
  return values
    .filter((/** @type {any} */ each) => each.name.toLowerCase().includes(low))
    .sort((/** @type {any} */ a, /** @type {any} */ b) => begins(b) - begins(a) || (field === "state" ? 0 : b.n - a.n))
    .slice(0, MOST)
    .map((/** @type {any} */ each) => ({
      text: no + term(field, each.name),
      label: each.name,
      whole: true,
      n: each.n,
    }));
}

/** @param {string} text @returns {Offer[]} */
function fields(text) {
  const no = /^[-!]/.exec(text)?.[0] ?? "";
  const low = text.slice(no.length).toLowerCase();
  if (/[:<>=" ]/.test(low)) return [];
  return FIELDS.filter(([name]) => name.startsWith(low))
    .slice(0, MOST)
    .map(([name, about]) => ({ text: no + name, label: no + name, whole: false, about }));
}

/** @param {any} queue */
const sum = (queue) => STATES.reduce((all, state) => all + queue[state], 0);
