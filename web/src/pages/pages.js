// Knows which view answers which path: the list of a kind of thing, and one of them by its name.
import { Agents } from "./Agents.js";
import { Approvals } from "./Approvals.js";
import { Audit } from "./Audit.js";
import { Dead } from "./Dead.js";
import { Flow } from "./Flow.js";
import { Flows } from "./Flows.js";
import { Job } from "./Job.js";
import { Jobs } from "./Jobs.js";
import { Limits } from "./Limits.js";
import { Operations } from "./Operations.js";
import { Overview } from "./Overview.js";
import { Queues } from "./Queues.js";
import { Schedules } from "./Schedules.js";
import { Settings } from "./Settings.js";
import { Tasks } from "./Tasks.js";
import { Workers } from "./Workers.js";

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
