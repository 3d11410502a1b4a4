// Runs a schedule now, pauses it, lets it tick again, gives it back to the code, or removes it.
import { html } from "../lib/html.js";
import { ask, part } from "../lib/api.js";
import { at, go } from "../lib/place.js";
import { say } from "../lib/toasts.js";
import { cut } from "../lib/words.js";
import { Sure } from "./Sure.js";

/** @type {Record<string, {title: string, lead: string, button: string, safe: string, past: string, fatal?: boolean}>} */
const VERBS = {
  run: {
    title: "now",
    lead: "One run is asked for at once. The next ticks stay as they are.",
    button: "Run it now",
    safe: "Wait for its tick",
    past: "was asked for a run.",
  },
  pause: {
    title: "Pause",
    lead: "No tick fires until it is resumed; those of the pause are not made up. Runs that have begun continue.",
    button: "Pause it",
    safe: "Let it tick",
    past: "is paused.",
  },
  resume: {
    title: "Resume",
    lead: "Ticks fire from now on; those of the pause are not made up. Backfill makes up what is missing.",
    button: "Resume it",
    safe: "Leave it paused",
    past: "ticks again.",
  },
  reset: {
    title: "Reset",
    lead: "What was changed by hand is dropped: it is again as the code declares it.",
    button: "Reset it",
    safe: "Keep the change",
    past: "is as the code says.",
  },
  remove: {
    title: "Remove",
    lead: "It is removed for good. Runs that are stored stay.",
    button: "Remove it",
    safe: "Keep it",
    past: "is removed.",
    fatal: true,
  },
};

/** @param {{verb: string, schedule: import("../api.d.ts").ScheduleRecord, close: () => void}} props */
export function ActOnSchedule({ verb, schedule, close }) {
  const { title, lead, button, safe, past, fatal } = VERBS[verb];
  const name = cut(schedule.name, 80);
  const act = async (/** @type {string} */ reason) => {
    const path = `/schedules/${part(schedule.name)}`;
    if (verb === "remove") {
      await ask("DELETE", path, { query: { reason } });
      go(at("schedules"), { replace: true });
      return say("succeeded", `${name} ${past}`);
    }
    const answer = await ask("POST", `${path}/${verb}`, { body: { reason } });
    if (verb !== "run") return say("succeeded", `${name} ${past}`);
    const open = { label: "Open the run", run: () => go(at("jobs", answer.id)) };
    say(
      answer.existing ? "warn" : "succeeded",
      answer.existing ? `${name} has a run that is not finished; no other was made.` : `${name} ${past}`,
      open,
    );
  };
  return html`<${Sure}
    title=${verb === "run" ? `Run ${name} now` : `${title} ${name}${fatal ? "?" : ""}`}
    lead=${lead}
    button=${button}
    safe=${safe}
    fatal=${fatal}
    act=${act}
    close=${close}
  />`;
}
