// What does it wait for, what went wrong, what will happen? One job with everything that is known of it.
import { useEffect, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { part } from "../lib/api.js";
import { useData } from "../lib/answers.js";
import { own } from "../lib/keys.js";
import { at } from "../lib/place.js";
import { bytes, json, tail } from "../lib/words.js";
import { Copy } from "../components/Copy.js";
import { ErrorBlock } from "../components/ErrorBlock.js";
import { Explain } from "../components/Explain.js";
import { shown } from "../components/Odd.js";
import { Panel } from "../components/Panel.js";
import { Timeline } from "../components/Timeline.js";
import { Tree } from "../components/Tree.js";
import { useHeading } from "../components/Shell.js";
import { Attempts } from "./JobAttempts.js";
import { Facts, Belongs } from "./JobFacts.js";
import { actOnJob, Head } from "./JobHead.js";
import { Happened } from "./JobHappened.js";
import { Steps } from "./JobSteps.js";

/** @typedef {import("../api.d.ts").JobDetail} Job */

/** @param {{name: string}} props */
export function Job({ name }) {
  const entry = useData(`/jobs/${part(name)}`, {}, { everyMs: 1_000 });
  const job = /** @type {Job | undefined} */ (entry.value.value);
  const told = job
    ? `${job.state}${job.attempt ? `, attempt ${job.attempt} of ${job.attempts}` : ""} · ${job.task} ${tail(job.id)}`
    : `Job ${tail(name)}`;
  useHeading(tail(job?.id ?? name), { title: told, crumb: { label: "Jobs", href: at("jobs") } });
  useEffect(() => {
    if (job)
      Object.assign(own.current, {
        R: () => actOnJob(job, "retry"),
        E: () => actOnJob(job, "edit"),
        C: () => actOnJob(job, "cancel"),
      });
  });
  return shown(entry, (job) => html`<${Whole} job=${job} />`, 9);
}

/** @param {{job: Job}} props */
function Whole({ job }) {
  const [at_, setAt] = useState(/** @type {number | null} */ (null));
  const failed = job.history.filter((each) => each.error || each.traceback);
  const attempt = failed.find((each) => each.number === at_) ?? failed.at(-1);
  return html`<${Head} job=${job} />
    <div class="cols side-r job-cols">
      <div class="stack">
        ${
          (job.started_at || job.history.length > 0) &&
          html`<${Panel}
            title="Attempts"
            n=${`${job.attempt} of ${job.attempts}`}
            end=${html`<span class="p1">${LEGEND}</span>`}
          >
            <${Timeline} job=${job} /><${Attempts} job=${job} chosen=${attempt?.number} choose=${setAt} />
          <//>`
        }
        ${job.steps.length > 0 && html`<${Steps} job=${job} />`}
        ${
          attempt &&
          html`<${Panel}
            title=${`Error of attempt ${attempt.number}`}
            end=${html`${attempt.cause && html`<a class="link" href=${at("dead", attempt.cause)}>cause ${attempt.cause.slice(0, 6)}</a>`}<${Copy} text=${attempt.traceback ?? attempt.message ?? ""} what="The traceback" />`}
          >
            <div class="pad">
              <${ErrorBlock}
                error=${attempt.error}
                message=${attempt.message}
                kind=${attempt.kind}
                traceback=${attempt.traceback}
              />
            </div>
          <//>`
        }
        <${Contents} job=${job} />
      </div>
      <aside class="stack" aria-label="About the job">
        <${Explain} id=${job.id} state=${job.state} />
        <${Facts} job=${job} />
        <${Belongs} job=${job} />
        <${Happened} job=${job} />
      </aside>
    </div>`;
}

const LEGEND = "wait, run, backoff; long gaps are cut";

/** @param {{job: Job}} props */
function Contents({ job }) {
  const [tab, setTab] = useState("args");
  const logs = job.notes.filter((each) => each.kind === "log");
  const value = tab === "args" ? job.args : tab === "result" ? job.result : logs.map((each) => each.body);
  const tabs = /** @type {[string, string][]} */ ([
    ["args", "Arguments"],
    ["result", "Result"],
    ...(logs.length ? [["log", `Log ${logs.length}`]] : []),
  ]);
  const text = json(value ?? null);
  return html`<${Panel}
    title=${tabs.find(([key]) => key === tab)?.[1]}
    n=${value === null || value === undefined ? "" : bytes(new Blob([json(value, 0)]).size)}
    end=${html`<div class="seg" role="group" aria-label="What is shown">
        ${tabs.map(([key, label]) => html`<button type="button" aria-pressed=${key === tab} onClick=${() => setTab(key)}>${label}</button>`)}
      </div>
      <${Copy} text=${text} what="It" />`}
  >
    <div class="pad">
      ${tab === "log" ? html`<pre class="codebox wide said" tabindex="0">${logs.map((each) => (typeof each.body === "string" ? each.body : json(each.body, 0))).join("\n")}</pre>` : html`<${Tree} key=${tab} value=${value} path=${tab} />`}
    </div>
  <//>`;
}
