// BullMQ's side of the bench: `node bench/peers/with_bullmq.mjs MEASURE OPTIONS` prints its figures as one line of JSON.
// Best documented settings: jobs added by addBulk, one worker with a high concurrency, finished jobs removed at once.
// The packages lie in .bench/bullmq (`make bench-peers` puts them there), beside the sources of the project.

import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const require = createRequire(new URL('../../.bench/bullmq/package.json', import.meta.url));
const { Queue, Worker } = require('bullmq');
const { Redis } = require('ioredis');

const AT_ONCE = 100; // no-ops: 20 to 1,000 did not differ beyond the noise; automatic pipelines of ioredis were no faster
const CHUNK = 5_000; // jobs per addBulk when a backlog is laid out
const WARM = 5; // the first jobs pay for what is done once only
const CALM_MS = 20; // between two jobs, so that the worker is asleep again
const KEPT = { removeOnComplete: true, removeOnFail: true };

let connection;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const connect = () => new Redis({ ...connection, maxRetriesPerRequest: null });
const open = () => new Queue('bench', { connection: connect(), defaultJobOptions: KEPT });

async function fill(queue, jobs, perCall = CHUNK, data = {}, name = 'noop') {
  for (let start = 0; start < jobs; start += perCall) {
    const size = Math.min(perCall, jobs - start);
    await queue.addBulk(Array.from({ length: size }, () => ({ name, data })));
  }
}

async function info(section) {
  const redis = connect();
  const text = await redis.info(section);
  await redis.quit();
  return Object.fromEntries(text.split('\r\n').filter((line) => line.includes(':')).map((line) => line.split(':', 2)));
}

async function cpuSeconds() {
  const [mine, server] = [process.cpuUsage(), await info('cpu')];
  return (mine.user + mine.system) / 1e6 + Number(server.used_cpu_user) + Number(server.used_cpu_sys);
}

async function memoryBytes() {
  while ((await info('persistence')).aof_rewrite_in_progress !== '0') await sleep(50);
  const found = await info('memory');
  return Number(found.used_memory) - Number(found.mem_not_counted_for_evict);
}

async function worked(jobs, processor, concurrency) {
  const at = performance.now();
  const worker = new Worker('bench', processor, { connection: connect(), concurrency });
  worker.on('error', (error) => console.error(error));
  let completed = 0;
  await new Promise((resolve) => worker.on('completed', () => ++completed === jobs && resolve()));
  const seconds = (performance.now() - at) / 1000;
  await worker.close(true);
  return seconds;
}

async function drain({ jobs, at_once = AT_ONCE }) {
  const queue = open();
  await fill(queue, jobs);
  const before = await cpuSeconds();
  const seconds = await worked(jobs, async () => {}, at_once);
  const spent = (await cpuSeconds()) - before;
  return { jobs_per_s: jobs / seconds, cpu_s_per_10k: (spent / jobs) * 10_000 };
}

async function bulk({ jobs, per_call }) {
  const queue = open();
  await queue.waitUntilReady();
  const at = performance.now();
  await fill(queue, jobs, per_call);
  return { jobs_per_s: jobs / ((performance.now() - at) / 1000) };
}

async function single({ jobs }) {
  const queue = open();
  await queue.add('noop', {});
  const at = performance.now();
  for (let number = 0; number < jobs; number++) await queue.add('noop', {});
  return { jobs_per_s: jobs / ((performance.now() - at) / 1000) };
}

async function callers({ jobs, callers: count }) {
  const queue = open();
  await queue.add('noop', {});
  const caller = async () => {
    for (let number = 0; number < Math.floor(jobs / count); number++) await queue.add('noop', {});
  };
  const at = performance.now();
  await Promise.all(Array.from({ length: count }, caller));
  return { jobs_per_s: jobs / ((performance.now() - at) / 1000) };
}

async function latency({ jobs, url }) {
  const queue = open();
  const worker = spawn(process.execPath, [fileURLToPath(import.meta.url), 'consume', JSON.stringify({ url })], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const lines = createInterface({ input: worker.stdout })[Symbol.asyncIterator]();
  const waits = [];
  for (let number = 0; number < jobs + WARM; number++) {
    await queue.add('stamp', { sent_ns: String(process.hrtime.bigint()) });
    const waited = Number((await lines.next()).value) / 1e6;
    if (number >= WARM) waits.push(waited);
    await sleep(CALM_MS * (0.5 + Math.random()));
  }
  worker.kill();
  waits.sort((a, b) => a - b);
  const cut = (share) => {
    const place = share * (waits.length - 1);
    const low = Math.floor(place);
    return waits[low] + (place - low) * (waits[Math.min(low + 1, waits.length - 1)] - waits[low]);
  };
  return { p50_ms: cut(0.5), p95_ms: cut(0.95), p99_ms: cut(0.99) };
}

async function waiting({ jobs, seconds, at_once }) {
  const queue = open();
  await fill(queue, jobs, CHUNK, { seconds }, 'nap');
  const took = await worked(jobs, (job) => sleep(job.data.seconds * 1000), at_once);
  return { seconds: took, ideal_s: (jobs / at_once) * seconds };
}

async function memory({ jobs }) {
  const before = await memoryBytes();
  const queue = open();
  await fill(queue, jobs, CHUNK, { payload: 'x'.repeat(100) });
  await queue.close();
  await sleep(CALM_MS);
  return { bytes_per_job: ((await memoryBytes()) - before) / jobs };
}

// The worker process of `latency`: says how long each job waited; the monotonic clock is one for all processes.
async function consume() {
  const stamp = async (job) => {
    const waited = process.hrtime.bigint() - BigInt(job.data.sent_ns);
    process.stdout.write(`${waited}\n`);
  };
  new Worker('bench', stamp, { connection: connect(), concurrency: AT_ONCE });
  await new Promise(() => {});
}

// The release of a package that lies there; not every package lets its own description be required.
const release = (name) =>
  JSON.parse(readFileSync(new URL(`../../.bench/bullmq/node_modules/${name}/package.json`, import.meta.url))).version;

async function versions() {
  return { bullmq: release('bullmq'), ioredis: release('ioredis'), node: process.versions.node };
}

const measures = { versions, drain, bulk, single, callers, latency, waiting, memory, consume };
const [name, text] = process.argv.slice(2);
const options = JSON.parse(text);
if (options.url) {
  const where = new URL(options.url.replace('{n}', '0'));
  connection = { host: where.hostname, port: Number(where.port), db: Number(where.pathname.slice(1) || 0) };
}
console.log(JSON.stringify(await measures[name](options)));
process.exit(0);
