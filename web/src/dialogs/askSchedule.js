// Runs a schedule now, pauses it, lets it tick again, gives it back to the code, or removes it, after one more question.
import { part } from "../lib/api.js";
import { at, go } from "../lib/place.js";
import { cut } from "../lib/words.js";
import { askReason } from "./AskReason.js";

/** @type {Record<string, {title: (name: string) => string, about: string, button: string, safe: string, told: (name: string, answer: any) => string}>} */
const VERBS = {
  run: {
    title: (name) => `Run ${name} now`,
    about: "One run is asked for at once. The next ticks stay as they are.",
    button: "Run it now",
    safe: "Wait for its tick",
    told: (name, answer) =>
      answer.existing ? `A run of ${name} is not finished; no other was made.` : `A run of ${name} was asked for.`,
  },
  pause: {
    title: (name) => `Pause ${name}`,
    about: "No tick fires until it is resumed; those of the pause are not made up. Runs that have begun continue.",
    button: "Pause it",
    safe: "Let it tick",
    told: (name) => `${name} is paused.`,
  },
  resume: {
    title: (name) => `Resume ${name}`,
    about: "Ticks fire from now on; those of the pause are not made up. Backfill makes up what is missing.",
    button: "Resume it",
    safe: "Leave it paused",
    told: (name) => `${name} ticks again.`,
  },
  reset: {
    title: (name) => `Reset ${name}`,
    about: "What was changed by hand is dropped: it is again as the code declares it.",
    button: "Reset it",
    safe: "Keep the change",
    told: (name) => `${name} is as the code says.`,
  },
  remove: {
    title: (name) => `Remove ${name}?`,
    about: "It is removed for good. Runs that are stored stay.",
    button: "Remove it",
    safe: "Keep it",
    told: (name) => `${name} is removed.`,
  },
};

/** @param {string} verb @param {import("../api.d.ts").ScheduleRecord} schedule */
export function askSchedule(verb, schedule) {
  const { title, about, button, safe, told } = VERBS[verb];
  const [name, path] = [cut(schedule.name, 80), `/schedules/${part(schedule.name)}`];
  const removes = verb === "remove";
  askReason({
    title: title(name),
    about,
    button,
    safe,
    fatal: removes,
    method: removes ? "DELETE" : "POST",
    path: removes ? path : `${path}/${verb}`,
    told: (answer) => told(name, answer),
    next: (answer) => (verb === "run" ? { label: "Open the run", run: () => go(at("jobs", answer.id)) } : undefined),
    after: () => removes && go(at("schedules"), { replace: true }),
  });
}
