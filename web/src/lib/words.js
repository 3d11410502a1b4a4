// Writes numbers, durations and instants as the command line does.

/** @typedef {import("../api.d.ts").State} State */

/** @type {State[]} */
export const STATES = ["blocked", "scheduled", "ready", "running", "succeeded", "dead", "cancelled"];

const whole = new Intl.NumberFormat("en-US");
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

/** 1,284 whole below ten million, then 12.4 M. @param {number} n */
export const count = (n) => (n < 10_000_000 ? whole.format(n) : short.format(n).replace(/([A-Z])$/, " $1"));

/** @param {number} n @param {string} one @param {string} [many] */
export const some = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** A figure that may have a fraction. @param {number} n */
export const figure = (n) =>
  Number.isInteger(n) ? whole.format(n) : n >= 100 ? whole.format(Math.round(n)) : String(+n.toPrecision(3));

/** @param {number} share */
export const percent = (share) =>
  `${share >= 0.9995 || share === 0 ? Math.round(share * 100) : (share * 100).toFixed(1)} %`;

/** @param {number} n @param {string} unit */
export const money = (n, unit) => (unit === "usd" ? `$${n.toFixed(n < 100 ? 2 : 0)}` : `${figure(n)} ${unit}`);

/** 250ms, 1.5s, 4m12s, 2d4h. @param {number} ms @returns {string} */
export function duration(ms) {
  if (ms < 0) return `-${duration(-ms)}`;
  if (ms < 1_000) return `${Math.round(ms)}ms`;
  if (ms < 59_950) return `${ms < 9_950 ? +(ms / 1_000).toFixed(1) : Math.round(ms / 1_000)}s`;
  const parts = [];
  let rest = Math.round(ms / 1_000);
  for (const [unit, s] of /** @type {[string, number][]} */ ([
    ["d", 86_400],
    ["h", 3_600],
    ["m", 60],
    ["s", 1],
  ])) {
    const n = Math.floor(rest / s);
    rest -= n * s;
    if (n || parts.length) parts.push(n ? `${n}${unit}` : "");
    if (parts.length === 2) break;
  }
  return parts.join("");
}

/** @param {string} iso */
export const ms = (iso) => Date.parse(iso);

/** 14:36:20 today, "Fri 27 Nov 06:00" else; UTC. @param {string} iso @param {number} nowMs */
export function instant(iso, nowMs) {
  const date = new Date(iso);
  const text = date.toISOString();
  if (text.slice(0, 10) === new Date(nowMs).toISOString().slice(0, 10)) return text.slice(11, 19);
  const [day, month] = [DAYS[date.getUTCDay()], MONTHS[date.getUTCMonth()]];
  const year = date.getUTCFullYear() === new Date(nowMs).getUTCFullYear() ? "" : ` ${date.getUTCFullYear()}`;
  return `${day} ${date.getUTCDate()} ${month}${year} ${text.slice(11, 16)}`;
}
const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** The last eight digits of an id. @param {string} id */
export const tail = (id) => `…${id.slice(-8)}`;

/** A text that may be very long, for a place that is not. @param {string} text */
export const cut = (text, most = 300) => (text.length > most ? `${text.slice(0, most)}…` : text);

/** @param {number} bytes */
export const bytes = (bytes) =>
  bytes < 1_024
    ? `${bytes} B`
    : bytes < 1_048_576
      ? `${(bytes / 1_024).toFixed(1)} KiB`
      : `${(bytes / 1_048_576).toFixed(1)} MiB`;

/** A value as a term of the query language. @param {string} field @param {string} value */
export const term = (field, value) =>
  `${field}:${/^[^\s":<>=]+$/.test(value) ? value : `"${value.replace(/(["\\])/g, "\\$1")}"`}`;

/** JSON with exact numbers, indented. @param {any} value */
export function json(value, indent = 2) {
  /** @type {Map<string, string>} */
  const big = new Map();
  const text = JSON.stringify(
    value,
    (_key, each) => {
      if (typeof each !== "bigint") return each;
      const mark = `\u0000big${big.size}\u0000`;
      big.set(JSON.stringify(mark), String(each));
      return mark;
    },
    indent,
  );
  return big.size ? text.replace(/"\\u0000big\d+\\u0000"/g, (found) => big.get(found) ?? found) : text;
}

/** The class of an error without its module. @param {string | null} type */
export const shortError = (type) => type?.replace(/^.*\.(?=[^.]+$)/, "") ?? "";

/** Sorts instants, the earliest first, and what has none last. @param {string | null | undefined} a @param {string | null | undefined} b */
export const earlier = (a, b) => (a === b ? 0 : (a ?? "~") < (b ?? "~") ? -1 : 1);

/** A key as people call it. @param {string} key */
export const bareKey = (key) => key.replace(/^limit:/, "");
