// What references in Markdown lead to: addresses of links, and footnotes. They may stand anywhere, so a text has to be complete.

import { element } from "./dom.js";

const NOTE = /^ {0,3}\[\^([^\]\s]+)\]:[ \t]*/;
const DEFINITION =
  /\s*\[((?:\\[^]|[^[\]\\])+)\]:[ \t]*\n?[ \t]*(?:<((?:\\[^\n]|[^<>\n\\])*)>|([^\s<]\S*))(?:(?:[ \t]+|[ \t]*\n[ \t]*)(?:"(?:\\[^]|[^"\\])*"|'(?:\\[^]|[^'\\])*'|\((?:\\[^]|[^()\\])*\)))?[ \t]*(?:\n|$)/y;
const LABEL = /\[((?:\\[^]|[^[\]\\])*)\]/y;
const LONGEST_LABEL = 999;

export class Definitions {
  #addresses = new Map(); // by label
  #notes = new Map(); // their texts, by label
  #numbers = new Map(); // of the notes that are referred to, by label, from 1 on

  /** Take the definitions at the beginning of a paragraph. Returns the rest of it. */
  take(text) {
    let rest = text;
    for (;;) {
      const note = NOTE.exec(rest);
      DEFINITION.lastIndex = 0;
      const found = note ? null : DEFINITION.exec(rest);
      if (note) {
        const next = /\n {0,3}\[[^\]\n]+\]:/.exec(rest);
        const end = next ? next.index + 1 : rest.length;
        if (!this.#notes.has(note[1])) this.#notes.set(note[1], rest.slice(note[0].length, end).trim());
        rest = rest.slice(end);
      } else if (found && found[1].trim()) {
        const label = normal(found[1]);
        if (!this.#addresses.has(label)) this.#addresses.set(label, found[2] ?? found[3]);
        rest = rest.slice(DEFINITION.lastIndex);
      } else return rest;
    }
  }

  /** What the brackets refer to whose text begins at `start`, and whose end is behind `at`; null if nothing. */
  targetAt(text, start, at) {
    const inner = text.slice(start, Math.min(at - 1, start + LONGEST_LABEL + 1));
    if (inner[0] === "^" && this.#notes.has(inner.slice(1))) return { note: this.#cite(inner.slice(1)), end: at };
    LABEL.lastIndex = at;
    const label = LABEL.exec(text);
    const address = this.#addresses.get(normal(label?.[1].trim() ? label[1] : inner));
    if (address !== undefined) return { address, end: label ? LABEL.lastIndex : at };
    return null;
  }

  #cite(label) {
    if (!this.#numbers.has(label)) this.#numbers.set(label, this.#numbers.size + 1);
    return element("sup", { class: "footnote", title: this.#notes.get(label).slice(0, 500) }, String(this.#numbers.get(label)));
  }

  /** The list of the notes, whose texts `show` makes nodes of; null if none was referred to. */
  notes(show) {
    const items = [];
    for (const label of this.#numbers.keys()) items.push(element("li", {}, show(this.#notes.get(label)))); // which may refer to more of them
    return items.length ? element("ol", { class: "footnotes", "aria-label": "Footnotes" }, items) : null;
  }
}

function normal(label) {
  return label.trim().replace(/\s+/g, " ").toLowerCase().toUpperCase();
}
