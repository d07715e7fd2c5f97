// What programs print: colours as classes, a carriage return overwrites its line, other control sequences are dropped.

import { element } from "./dom.js";

const MOST_LINES = 5000; // that are shown; older ones are dropped from the view, and counted
const PARTIAL = /\x1b(?:\[[\d;:<=>?]*|\][^\x07\x1b]*\x1b?)?$/; // a sequence whose end has not come yet
const PIECES = /\x1b\[([\d;:<=>?]*)[ -/]*([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.|[\n\r\b]|[^\x1b\n\r\b]+/gs;

/** Output that may grow. `element` shows it. */
export class ConsoleView {
  #text = "";
  #held = ""; // a control sequence that is not complete
  #style = "";
  #isError = false; // whether it goes to stderr
  #cells = []; // of the last line: [character, style]
  #at = 0;
  #line = null;
  #rows = []; // the elements of the lines, from the oldest that is shown
  #dropped = 0;
  #note = null; // says how many lines were dropped

  constructor() {
    this.element = element("pre", { class: "console", tabindex: "0", role: "group", "aria-label": "Output" });
  }

  /** `errors` are the places in the text that went to stderr, as [start, end], in their order. */
  update(text, errors = []) {
    if (text === this.#text) return;
    if (!text.startsWith(this.#text)) {
      this.element.replaceChildren();
      [this.#text, this.#held, this.#style, this.#cells, this.#at, this.#line] = ["", "", "", [], 0, null];
      [this.#rows, this.#dropped, this.#note] = [[], 0, null];
    }
    const from = this.#text.length;
    this.#text = text;
    const isAtEnd = this.element.scrollTop + this.element.clientHeight >= this.element.scrollHeight - 8;
    for (const [start, end, isError] of segments(from, text.length, errors)) this.#add(text.slice(start, end), isError);
    this.#draw();
    this.#trim();
    if (isAtEnd) this.element.scrollTop = this.element.scrollHeight;
  }

  #add(text, isError) {
    const added = this.#held + text;
    const partial = PARTIAL.exec(added);
    this.#held = partial && partial[0].length < 1000 ? partial[0] : "";
    this.#isError = isError;
    for (const piece of added.slice(0, added.length - this.#held.length).matchAll(PIECES)) this.#take(piece);
  }

  #take([text, numbers, command]) {
    if (text === "\n") {
      this.#draw();
      this.#line.append("\n");
      if (this.#rows.length > 2 * MOST_LINES) this.#trim();
      [this.#cells, this.#at, this.#line] = [[], 0, null];
    } else if (text === "\r") this.#at = 0;
    else if (text === "\b") this.#at = Math.max(0, this.#at - 1);
    else if (command === "m") this.#style = styled(this.#style, numbers);
    else if (command === "K") this.#cells.length = Math.min(this.#cells.length, numbers === "2" ? 0 : this.#at);
    else if (text[0] !== "\x1b") {
      const style = this.#isError ? `stderr ${this.#style}`.trimEnd() : this.#style;
      for (const character of text.replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f]/g, "")) {
        while (this.#cells.length < this.#at) this.#cells.push([" ", ""]);
        this.#cells[this.#at++] = [character, style];
      }
    }
  }

  /** Drop the oldest lines, many at once. */
  #trim() {
    const extra = this.#rows.length - MOST_LINES;
    if (extra <= 0) return;
    for (const row of this.#rows.splice(0, extra)) row.remove();
    this.#dropped += extra;
    if (!this.#note) this.element.prepend((this.#note = element("span", { class: "dropped" })));
    this.#note.textContent = `${this.#dropped.toLocaleString()} earlier lines are not shown\n`;
  }

  #draw() {
    if (!this.#line) this.#rows.push((this.#line = this.element.appendChild(element("span", { class: "row" }))));
    const parts = [];
    for (const [character, style] of this.#cells) {
      if (parts.at(-1)?.[1] === style) parts.at(-1)[0].push(character);
      else parts.push([[character], style]);
    }
    this.#line.replaceChildren();
    for (const [text, style] of parts) this.#line.append(style ? element("span", { class: style }, text.join("")) : text.join(""));
  }
}

/** The parts of a text from a place on, as [start, end, whether it went to stderr]. */
function* segments(from, to, errors) {
  const first = errors.findLastIndex(([, end]) => end <= from) + 1;
  for (const [start, end] of errors.slice(first)) {
    if (start > from) yield [from, start, false];
    yield [Math.max(from, start), end, true];
    from = end;
  }
  if (from < to) yield [from, to, false];
}

/** The classes of text after the numbers of a colour sequence. */
function styled(style, numbers) {
  const now = new Set(style.split(" ").filter(Boolean));
  const drop = (start) => now.forEach((name) => name.startsWith(start) && now.delete(name));
  const codes = numbers.split(/[;:]/).map(Number);
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at];
    const colour = code % 10;
    if (code === 0) now.clear();
    else if (code === 1) now.add("ansi-bold");
    else if (code === 2) now.add("ansi-dim");
    else if (code === 3) now.add("ansi-italic");
    else if (code === 4) now.add("ansi-underline");
    else if (code === 22) drop("ansi-bold"), drop("ansi-dim");
    else if (code === 23) drop("ansi-italic");
    else if (code === 24) drop("ansi-underline");
    else if (code === 38 || code === 48) at += codes[at + 1] === 5 ? 2 : 4; // of 256 colours, or of all: left out
    else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) drop("ansi-f"), now.add(`ansi-f${colour}`);
    else if (code === 39) drop("ansi-f");
    else if ((code >= 40 && code <= 47) || (code >= 100 && code <= 107)) drop("ansi-g"), now.add(`ansi-g${colour}`);
    else if (code === 49) drop("ansi-g");
  }
  return [...now].join(" ");
}
