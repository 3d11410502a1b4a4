// Knows which view answers which path: the list of a kind of thing, and one of them by its name.
import { Approvals } from "./Approvals.js";
import { Dead } from "./Dead.js";
import { Flows } from "./Flows.js";
import { Job } from "./Job.js";
import { Jobs } from "./Jobs.js";
import { later } from "./later.js";
import { Overview } from "./Overview.js";
import { Queues } from "./Queues.js";
import { Tasks } from "./Tasks.js";

// Fetched when they are first opened, so that the first page is there sooner.
const Agents = later(() => import("./Agents.js").then((found) => found.Agents));
const Audit = later(() => import("./Audit.js").then((found) => found.Audit));
const Flow = later(() => import("./Flow.js").then((found) => found.Flow));
const Limits = later(() => import("./Limits.js").then((found) => found.Limits));
const Operations = later(() => import("./Operations.js").then((found) => found.Operations));
const Schedules = later(() => import("./Schedules.js").then((found) => found.Schedules));
const Settings = later(() => import("./Settings.js").then((found) => found.Settings));
const Workers = later(() => import("./Workers.js").then((found) => found.Workers));

/** @type {Record<string, {list?: any, one?: any}>} */
export const pages = {
  overview: { list: Overview },
  queues: { list: Queues, one: Queues },
  jobs: { list: Jobs, one: Job },
  tasks: { list: Tasks, one: Tasks },
  flows: { list: Flows, one: Flow },
  schedules: { list: Schedules, one: Schedules },
  dead: { list: Dead, one: Dead },
  approvals: { list: Approvals },
  limits: { list: Limits, one: Limits },
  workers: { list: Workers, one: Workers },
  agents: { list: Agents, one: Agents },
  operations: { list: Operations, one: Operations },
  audit: { list: Audit },
  settings: { list: Settings },
};
