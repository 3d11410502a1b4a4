// Reads Python's traceback as it is stored: frames of the app stand open, those of libraries are folded.

/** @typedef {{file: string, line: number, name: string, code: string[], library: string | null}} Frame */

const HEAD = /^ {2}File "(.*)", line (\d+), in (.*)$/;
const OWN = /\/limpet\/(?:runtime|core|client)\/[^/]+\.py$/;
const LIBRARY = /(?:site-packages|dist-packages|lib\/python3\.\d+)\/([^/]+)/;

/** @param {string} text @returns {{frames: Frame[], rest: string}} `rest`: what is no frame, with the error itself */
export function readTraceback(text) {
  /** @type {Frame[]} */
  const frames = [];
  /** @type {string[]} */
  const rest = [];
  for (const line of text.split("\n")) {
    const head = HEAD.exec(line);
    if (head)
      frames.push({ file: head[1], line: Number(head[2]), name: head[3], code: [], library: libraryOf(head[1]) });
    else if (
      /^ {4}/.test(line) &&
      frames.length &&
      !rest.some((each) => each.trim() && !each.startsWith("Traceback"))
    ) {
      if (!/^[\s^~]+$/.test(line)) frames[frames.length - 1].code.push(line.slice(4));
    } else rest.push(line);
  }
  return {
    frames,
    rest: rest
      .filter((each) => !each.startsWith("Traceback (most"))
      .join("\n")
      .trim(),
  };
}

/** @param {string} file */
function libraryOf(file) {
  if (OWN.test(file)) return "limpet";
  const found = LIBRARY.exec(file);
  return found ? found[1].replace(/\.py$/, "") : file.startsWith("<frozen") ? "python" : null;
}
