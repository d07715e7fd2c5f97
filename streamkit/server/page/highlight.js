// Highlighted code: a small tokenizer that goes line by line, so that code which grows is not highlighted again.

import { element } from "./dom.js";

// Characters that change what is seen and not what runs: those that turn the direction of text, and those that nothing shows. A
// carriage return ends a line for Python, so that what follows it is no comment.
const UNSEEN = /([\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069])/;
const LONGEST = 5000; // characters of a line that are highlighted; the rest of it is plain

const words = (text) => new Set(text.split(" "));

const PYTHON = {
  comment: "#",
  strings: [['"""', true], ["'''", true], ['"', false], ["'", false]],
  prefix: /^[rbfuRBFU]{1,2}(?=["'])/,
  keywords: words(
    "and as assert async await break case class continue def del elif else except finally for from global if import in is lambda " +
      "match nonlocal not or pass raise return try while with yield",
  ),
  literals: words("True False None self cls"),
};
const SCRIPT = {
  comment: "//",
  block: ["/*", "*/"],
  strings: [["`", true], ['"', false], ["'", false]],
  keywords: words(
    "async await break case catch class const continue default delete do else enum export extends finally for from function if " +
      "implements import in instanceof interface let new of private public return static switch throw try type typeof var void while yield",
  ),
  literals: words("true false null undefined this super NaN Infinity"),
};
const SHELL = {
  comment: "#",
  commentAfterSpace: true,
  strings: [['"', true], ["'", true]],
  keywords: words("case do done elif else esac export fi for function if in local return set then unset until while source exit"),
  literals: words("true false"),
  variable: /^\$(?:\{[^}]*\}|\w+|[@#?$!*-])/,
};
const JSON_TEXT = { strings: [['"', false]], keywords: words(""), literals: words("true false null"), keys: /^\s*:/ };
const CURLY = {
  comment: "//",
  block: ["/*", "*/"],
  strings: [['"', false], ["'", false]],
  keywords: words(
    "auto break case catch class const continue default do else enum extern final fn for func go if impl import in int interface let " +
      "loop match mod mut namespace new package private pub public return select static struct switch throw trait try type use using " +
      "var void where while bool char double float long string unsigned",
  ),
  literals: words("true false null nil None self this nullptr"),
};
const SQL = {
  comment: "--",
  block: ["/*", "*/"],
  strings: [["'", false], ['"', false]],
  ignoresCase: true,
  keywords: words(
    "select from where and or not insert into values update set delete create table index view drop alter add join left right inner " +
      "outer on as group by order having limit offset union all distinct case when then else end in is like between exists with returning",
  ),
  literals: words("null true false"),
};
const PLAIN = { strings: [['"', false]], keywords: words(""), literals: words("true false null") };
const TEXT = { strings: [], keywords: words(""), literals: words(""), plain: true };
const SETTINGS = {
  comment: "#",
  commentAfterSpace: true,
  strings: [['"""', true], ['"', false]],
  keywords: words(""),
  literals: words("true false null yes no"),
  name: /^[\p{L}_][\p{L}\d_.-]*/u,
  keys: /^\s*[:=](?:\s|$)/,
};
const CSS = { ...PLAIN, block: ["/*", "*/"], name: /^[\p{L}@_-][\p{L}\d_-]*/u, keys: /^\s*:(?:\s|$)/ };
const HTML = { ...PLAIN, block: ["<!--", "-->"], literals: words(""), variable: /^(?:<[!/]?[\p{L}][\p{L}\d-]*|\/?>|&#?\w+;)/u };
const DIFF = { ...TEXT, lines: [[/^(?:@@|diff |index |\+\+\+ |--- )/, "comment"], [/^\+/, "string"], [/^-/, "removed"]] };

const GRAMMARS = new Map();
for (const [grammar, names] of [
  [PYTHON, "python py python3 ipython"],
  [SCRIPT, "javascript js jsx mjs node typescript ts tsx"],
  [SHELL, "shell sh bash zsh console shellscript fish"],
  [JSON_TEXT, "json jsonc jsonl json5"],
  [CURLY, "c cpp c++ cs csharp go java kotlin rust rs swift scala dart php"],
  [SQL, "sql sqlite postgresql mysql"],
  [SETTINGS, "yaml yml toml ini properties"],
  [CSS, "css scss less"],
  [HTML, "html xml svg vue"],
  [DIFF, "diff patch"],
  [TEXT, "text plain txt plaintext output markdown md"],
]) {
  for (const name of names.split(" ")) GRAMMARS.set(name, grammar);
}

/** The tokens of a line, as [kind, text], and the state in which the next line begins: what closes an open string or comment. */
export function tokens(line, grammar, state) {
  const found = [];
  const add = (kind, text) => {
    if (!text) return;
    if (found.at(-1)?.[0] === kind) found.at(-1)[1] += text;
    else found.push([kind, text]);
  };
  let at = 0;
  const whole = grammar.lines?.find(([begin]) => begin.test(line));
  if (whole) return [[[whole[1], line]], null];
  if (state) {
    at = endOf(line, 0, state.close, state.kind === "string");
    add(state.kind, line.slice(0, at < 0 ? line.length : at));
    if (at < 0) return [found, state];
  }
  while (at < line.length) {
    const rest = line.slice(at, at + 400);
    const open = opening(rest, grammar, at === 0 || /\s/.test(line[at - 1]));
    if (open?.kind === "comment" && !open.close) {
      add("comment", line.slice(at));
      return [found, null];
    }
    if (open) {
      const end = endOf(line, at + open.length, open.close, open.kind === "string");
      const stop = end < 0 ? line.length : end;
      const isKey = grammar.keys?.test(line.slice(stop));
      add(isKey ? "key" : open.kind, line.slice(at, stop));
      if (end < 0 && open.spans) return [found, open];
      at = stop;
      continue;
    }
    const [kind, text] = word(rest, grammar, line[at + rest.length] ?? "");
    add(kind, text);
    at += text.length;
  }
  return [found, null];
}

/** The string or the comment that begins here, with the text that closes it. */
function opening(rest, { comment, commentAfterSpace, block, strings, prefix }, afterSpace) {
  if (block && rest.startsWith(block[0])) return { kind: "comment", length: block[0].length, close: block[1], spans: true };
  if (comment && rest.startsWith(comment) && (afterSpace || !commentAfterSpace)) return { kind: "comment" };
  const before = prefix ? (prefix.exec(rest)?.[0].length ?? 0) : 0;
  for (const [quote, spans] of strings) {
    if (rest.startsWith(quote, before)) return { kind: "string", length: before + quote.length, close: quote, spans };
  }
  return null;
}

/** The end of the string or comment that `close` closes; -1 if it is not in this line. */
function endOf(line, from, close, escapes) {
  for (let at = from; at < line.length; at += 1) {
    if (escapes && line[at] === "\\") at += 1;
    else if (line.startsWith(close, at)) return at + close.length;
  }
  return -1;
}

function word(rest, grammar, after) {
  if (grammar.plain) return ["", rest];
  const variable = grammar.variable?.exec(rest);
  if (variable) return ["variable", variable[0]];
  const number = /^(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)/.exec(rest);
  if (number) return ["number", number[0]];
  const name = (grammar.name ?? /^[\p{L}_$@][\p{L}\d_]*/u).exec(rest);
  if (!name) return ["", /^(?:\s+|.)/su.exec(rest)[0]];
  const text = name[0];
  const key = grammar.ignoresCase ? text.toLowerCase() : text;
  if (grammar.keys?.test(rest.slice(text.length) + after)) return ["key", text];
  if (grammar.keywords.has(key)) return ["keyword", text];
  if (grammar.literals.has(key)) return ["literal", text];
  if ((rest[text.length] ?? after) === "(") return ["function", text];
  return [text[0] === "@" ? "function" : "", text];
}

/** Text with a sign in the place of each character that nobody would see. */
function seen(text) {
  if (!UNSEEN.test(text)) return text;
  const sign = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
  return text.split(UNSEEN).map((part, at) => (at % 2 ? element("span", { class: "unseen", title: "A character that is not seen" }, sign(part)) : part));
}

/** Code that may grow. `element` shows it. */
export class CodeView {
  #grammar;
  #text = "";
  #lines = []; // [element, the state in which the next line begins]
  #whole = 0; // the length of the lines that have ended
  #active = null;
  #follows = true; // the line that runs, until a person scrolls

  constructor(language) {
    this.#grammar = GRAMMARS.get((language ?? "").toLowerCase()) ?? PLAIN;
    this.code = element("code");
    this.element = element("pre", { class: "code", tabindex: "0", dir: "ltr", role: "group", "aria-label": "Code" }, this.code);
    for (const name of ["wheel", "touchmove", "pointerdown", "keydown"]) {
      this.element.addEventListener(name, () => (this.#follows = false), { passive: true });
    }
  }

  get text() {
    return this.#text;
  }

  update(text) {
    if (text === this.#text) return;
    if (!text.startsWith(this.#text)) {
      this.code.replaceChildren();
      this.#lines = [];
      this.#whole = 0;
    } else if (this.#lines.length && this.#whole < this.#text.length) this.#lines.pop()[0].remove(); // it was not whole
    this.#text = text;
    const lines = text.slice(this.#whole).split("\n");
    const added = document.createDocumentFragment();
    for (const [number, line] of lines.entries()) {
      const isLast = number === lines.length - 1;
      if (isLast && line === "") break;
      added.append(this.#line(line));
      if (!isLast) this.#whole += line.length + 1;
    }
    this.code.append(added);
    this.#mark();
  }

  #line(source) {
    const line = source.endsWith("\r") ? source.slice(0, -1) : source; // the end of a line, in files of Windows
    const [found, state] = tokens(line.slice(0, LONGEST), this.#grammar, this.#lines.at(-1)?.[1] ?? null);
    const parts = found.map(([kind, text]) => (kind ? element("span", { class: `token-${kind}` }, seen(text)) : seen(text)));
    const made = element("span", { class: "line" }, parts, seen(line.slice(LONGEST)), "\n");
    this.#lines.push([made, state]);
    return made;
  }

  /** Mark the line that runs, counted from 1; null marks none. */
  set activeLine(line) {
    this.#active = line;
    this.#mark();
    const marked = this.#lines[line - 1]?.[0];
    if (!marked || !this.#follows) return;
    const { scrollTop, clientHeight } = this.element;
    const top = marked.offsetTop;
    if (top < scrollTop || top + marked.offsetHeight > scrollTop + clientHeight) this.element.scrollTop = top - clientHeight / 2;
  }

  #mark() {
    for (const marked of this.code.querySelectorAll(".active")) marked.classList.remove("active");
    this.#lines[this.#active - 1]?.[0].classList.add("active");
  }
}
