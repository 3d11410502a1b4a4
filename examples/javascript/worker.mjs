// A worker in plain JavaScript: Node 18 or newer, no packages. It works where LIMPET_API and LIMPET_TOKEN say.
// limpet serve & limpet enqueue book.scan '{"pages": 5}' && node worker.mjs
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

const tasks = {
  async "book.scan"({ pages, ms = 100 }, job) {
    for (let page = job.checkpoint?.page ?? 0; page < pages; ) {
      await sleep(ms, null, { signal: job.signal }); // the work: it ends when the job is lost, cancelled or released
      await job.say("checkpoint", { value: { page: ++page } }); // where the next attempt begins
      await job.say("progress", { done: page, total: pages });
    }
    return { pages };
  },
  async "book.index"({ title }) { // errors are transient (retried), permanent, rate-limited (with retryAfter) or spent
    if (!title) throw Object.assign(new Error("a book needs a title"), { kind: "permanent" });
    return { words: title.split(" ").length };
  },
};
const { LIMPET_API = "http://127.0.0.1:8787", LIMPET_TOKEN, LEASE = "60", SLOTS = "4" } = process.env;
const headers = { "content-type": "application/json", ...(LIMPET_TOKEN && { authorization: `Bearer ${LIMPET_TOKEN}` })};
const lease = 1000 * LEASE, third = Math.ceil(lease / 3), held = new Set(), stop = new AbortController();

async function post(path, body, signal) { // asks again while the server is away: keys and tokens make that safe
  for (let wait = 100; ; wait = Math.min(5000, 2 * wait)) {
    const asked = { method: "POST", headers, body: JSON.stringify(body), signal };
    const answer = await fetch(`${LIMPET_API}/api/v1/${path}`, asked).catch(() => null);
    if (answer?.ok) return answer.json();
    const refused = answer && answer.status < 500 && answer.status !== 429;
    if (refused) throw Object.assign(new Error((await answer.json()).detail), { refused });
    await sleep(1000 * answer?.headers.get("retry-after") || wait, null, { signal });
  }
}
function run(job) {
  const control = new AbortController();
  const say = (verb, body, ms = lease) =>
    post(`leases/${job.id}/${verb}`, { token: job.token, ...body }, AbortSignal.timeout(ms));
  Object.assign(job, { say, signal: control.signal, abort: () => control.abort() });
  const kept = (answer) => answer.cancel_requested && job.abort();
  const beat = () => say("heartbeat", { lease: lease / 1000 }, third).then(kept, (e) => e.refused && job.abort());
  const beating = setInterval(beat, third);
  const failed = (e) => job.signal.aborted ? ["release", { reason: "stopped" }]
    : ["fail", { message: e.message, type: e.name, traceback: e.stack, kind: e.kind, retry_after: e.retryAfter }];
  return tasks[job.task](job.args, job).then((result) => ["complete", { result }], failed)
    .then((end) => say(...end))
    .then((ended) => console.log(job.id, job.token, ended.state))
    .catch((error) => console.log(job.id, job.token, "lost:", error.message)) // another worker has it, or will have it
    .finally(() => clearInterval(beating) ?? held.delete(job));
}
async function claim(max) {
  const asked = { worker: `js-${process.pid}`, tasks: Object.keys(tasks), max, lease: lease / 1000, wait: 30 };
  try {
    return max ? (await post("claim", { ...asked, key: randomUUID() }, stop.signal)).jobs : await sleep(20, []);
  } catch (error) {
    if (error.refused) throw error;
    return [];
  }
}
for (const name of ["SIGTERM", "SIGINT"]) process.once(name, () => [stop, ...held].forEach((each) => each.abort()));
while (!stop.signal.aborted) for (const job of await claim(SLOTS - held.size)) { held.add(job); run(job); }
