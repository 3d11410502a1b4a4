// Cuts a line of the query language into its terms, as the server reads them; what it means only the server knows.

const TERM =
  /\s*([-!]?(?:[^\s:<>="!-][^\s:<>="]*(?::?(?:<=|>=|<|>)|:|=)(?:"(?:[^"\\]|\\.)*"|[^\s"]*)|"(?:[^"\\]|\\.)*"|[^\s"]+))(?=\s|$)/y;

/** The terms of a line; what cannot be read is the last. @param {string} line */
export function terms(line) {
  /** @type {string[]} */
  const found = [];
  TERM.lastIndex = 0;
  let end = 0;
  for (let match; (match = TERM.exec(line)); end = TERM.lastIndex) found.push(match[1]);
  const rest = line.slice(end).trim();
  return rest ? [...found, rest] : found;
}

/** @param {string} one */
export function partsOf(one) {
  const match = /^([-!]?)([^\s:<>="]+)(:?(?:<=|>=|<|>)|:|=)(.*)$/s.exec(one);
  return match ? { not: match[1] !== "", field: match[2], sign: match[3], value: match[4] } : null;
}

/** The line without terms of a field. @param {string} line @param {string} field */
export const without = (line, field) =>
  terms(line)
    .filter((each) => partsOf(each)?.field !== field)
    .join(" ");

/** The line with one term of a field in place of others. @param {string} line @param {string} field @param {string} wanted */
export const withTerm = (line, field, wanted) => `${wanted} ${without(line, field)}`.trim();

/** The value of the one positive term of a field. @param {string} line @param {string} field */
export function valueOf(line, field) {
  const found = terms(line)
    .map(partsOf)
    .filter((each) => each?.field === field && !each.not && each.sign === ":");
  return found.length === 1 ? (found[0]?.value ?? null) : null;
}
