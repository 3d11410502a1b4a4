// Asks the HTTP API: refusals are problems with a fix, and whole numbers of any size stay exact.
import { PREFIX } from "./place.js";

/** What the server refused, in its own words. */
export class Problem extends Error {
  /** @param {{status: number, code: string, detail: string, fix: string | null}} told */
  constructor({ status, code, detail, fix }) {
    super(detail);
    this.status = status;
    this.code = code;
    this.fix = fix;
  }
}

/** How far the server's clock is ahead of ours, in milliseconds; small differences are taken for none. */
export const skew = { ms: 0 };

/**
 * @param {string} method
 * @param {string} path below /api/v1
 * @param {{query?: Record<string, any>, body?: any, raw?: string, token?: string, signal?: AbortSignal}} [asked]
 * @returns {Promise<any>}
 */
export async function ask(method, path, { query = {}, body, raw, token, signal } = {}) {
  /** @type {Record<string, string>} */
  const headers = {};
  const text = raw ?? (body === undefined ? undefined : JSON.stringify(body));
  if (text !== undefined) headers["content-type"] = "application/json";
  if (token !== undefined) headers.authorization = `Bearer ${token}`;
  let answer;
  try {
    answer = await fetch(urlOf(path, query), { method, headers, body: text, signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem({ status: 0, code: "unreachable", detail: "The server does not answer.", fix: null });
  }
  noteClock(answer.headers.get("date"));
  if (answer.ok) return answer.status === 204 ? null : exact(await answer.text());
  throw await problemOf(answer);
}

/** @param {string} path @param {Record<string, any>} query */
export const read = (path, query = {}) => ask("GET", path, { query });

/** @param {string} path @param {Record<string, any>} query */
export function urlOf(path, query = {}) {
  const told = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) told.append(key, String(each));
  }
  return `${PREFIX}api/v1${path}${told.size ? `?${told}` : ""}`;
}

/** A name as a part of a path. @param {string} name */
export const part = (name) => encodeURIComponent(name);

/**
 * JSON as the server wrote it: what JavaScript's numbers cannot hold becomes a BigInt.
 * @param {string} text
 */
export function exact(text) {
  // @ts-ignore: the third argument is younger than the types
  return JSON.parse(text, (_key, value, context) => {
    const source = context?.source;
    if (typeof value !== "number" || Number.isSafeInteger(value) || !source) return value;
    return /^-?\d+$/.test(source) ? BigInt(source) : value;
  });
}

/** @param {Response} answer */
async function problemOf(answer) {
  try {
    const { code, detail, fix } = await answer.json();
    return new Problem({ status: answer.status, code, detail, fix });
  } catch {
    return new Problem({
      status: answer.status,
      code: "unknown",
      detail: `The server answered ${answer.status}.`,
      fix: null,
    });
  }
}

/** @param {string | null} date */
function noteClock(date) {
  const ahead = date ? Date.parse(date) + 500 - Date.now() : 0;
  skew.ms = Math.abs(ahead) > 2_500 ? ahead : 0;
}
