// Markdown as DOM nodes. What a model wrote never becomes HTML: markup that is not Markdown stays text.

import { copyButton, element } from "./dom.js";
import { CodeView } from "./highlight.js";
import { inline } from "./inline.js";

const DEEPEST = 12; // lists and quotes inside of each other
// A model may write anything, also a million spaces: each expression takes time that grows with its text, and no faster.
const FENCE = /^( {0,3})(`{3,}|~{3,}) *(\S*)/;
const HEADING = /^ {0,3}(#{1,6})(?![^ \t])/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?: {1,4}(?=\S)| +|$)/;
const UNDERLINE = /^ {0,3}(=+|--+)[ \t]*$/; // one dash is the beginning of a list, whose text has not come yet

/** Text in Markdown that may grow. Blocks that have ended are not made again. */
export class MarkdownView {
  #text = "";
  #start = 0; // where the blocks begin that may still change
  #open = []; // those blocks, as {source, block, node, view}

  constructor(root) {
    this.element = root;
  }

  update(text) {
    if (text === this.#text) return;
    if (!text.startsWith(this.#text)) {
      this.element.replaceChildren();
      [this.#start, this.#open] = [0, []];
    }
    this.#text = text;
    const lines = text.slice(this.#start).split("\n");
    const blocks = parse(lines);
    const now = blocks.map((block, number) => {
      const source = lines.slice(block.from, block.to).join("\n");
      return this.#shown(block, source, this.#open[number]);
    });
    for (const { node } of this.#open.slice(now.length)) node.remove();
    // The next line may still belong to the block before: `---` below a paragraph makes it a heading.
    const ended = Math.max(0, now.length - 2);
    if (ended) this.#start += lines.slice(0, blocks[ended].from).join("\n").length + 1;
    this.#open = now.slice(ended);
  }

  /** A block with its node: the one that it has already, if its source is the same, or if it is code, which grows. */
  #shown(block, source, before) {
    if (before && before.source === source) return before;
    if (before?.view && block.kind === "fence" && before.block.language === block.language) {
      before.view.update(block.text);
      return Object.assign(before, { block, source });
    }
    const view = block.kind === "fence" ? new CodeView(block.language) : null;
    view?.update(block.text);
    const node = view ? fence(block, view) : made(block);
    if (before) before.node.replaceWith(node);
    else this.element.append(node);
    return { source, block, node, view };
  }
}

// -- blocks

/** The blocks of lines, each with the lines that it stands in. */
function parse(lines, depth = 0) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const block = blockAt(lines, at, depth);
    blocks.push({ ...block, from: at });
    at = block.to;
  }
  return blocks;
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  const heading = HEADING.exec(line);
  if (heading) return { kind: "heading", level: heading[1].length, text: headingText(line.slice(heading[0].length)), to: at + 1 };
  if (fenceOf(line)) return fenceAt(lines, at);
  if (RULE.test(line)) return { kind: "rule", to: at + 1 };
  if (QUOTE.test(line) && depth < DEEPEST) return quoteAt(lines, at, depth);
  if (ITEM.test(line) && depth < DEEPEST) return listAt(lines, at, depth);
  if (/^(?: {4}|\t)/.test(line)) return indentedAt(lines, at);
  if (isTable(lines, at)) return tableAt(lines, at);
  return paragraphAt(lines, at);
}

/** A heading's text, without the `#` that close it. */
function headingText(rest) {
  const text = rest.trim();
  let end = text.length;
  while (text[end - 1] === "#") end -= 1;
  return end === 0 || /[ \t]/.test(text[end - 1]) ? text.slice(0, end).trimEnd() : text;
}

/** The indent, the marks and the language of a line that begins a fence. */
function fenceOf(line) {
  const found = FENCE.exec(line);
  if (!found) return null;
  const [, indent, marks] = found;
  return marks[0] === "`" && line.includes("`", indent.length + marks.length) ? null : found; // ```a``` is a code span
}

function fenceAt(lines, at) {
  const [, indent, marks, language] = fenceOf(lines[at]);
  const closes = (line) => {
    const text = line.trimEnd();
    return /^ {0,3}[`~]/.test(text) && text.trim().length >= marks.length && !text.trim().replaceAll(marks[0], "");
  };
  let to = at + 1;
  while (to < lines.length && !closes(lines[to])) to += 1;
  const inner = lines.slice(at + 1, to).map((line) => (line.startsWith(indent) ? line.slice(indent.length) : line));
  const isClosed = to < lines.length;
  return { kind: "fence", language, text: inner.map((line) => `${line}\n`).join("").slice(0, isClosed ? undefined : -1), to: isClosed ? to + 1 : to };
}

function indentedAt(lines, at) {
  let to = at;
  while (to < lines.length && (/^(?: {4}|\t)/.test(lines[to]) || !lines[to].trim())) to += 1;
  const text = lines.slice(at, to).map((line) => line.replace(/^(?: {4}|\t)/, ""));
  return { kind: "fence", language: "text", text: text.join("\n").trimEnd(), to };
}

function quoteAt(lines, at, depth) {
  let to = at;
  while (to < lines.length && (QUOTE.test(lines[to]) || (to > at && lines[to].trim() && !starts(lines[to])))) to += 1;
  const inner = lines.slice(at, to).map((line) => line.replace(QUOTE, ""));
  return { kind: "quote", blocks: parse(inner, depth + 1), to };
}

function listAt(lines, at, depth) {
  const first = ITEM.exec(lines[at])[2];
  const kind = first.slice(-1);
  const items = [];
  let isLoose = false;
  let to = at;
  while (to < lines.length) {
    const item = ITEM.exec(lines[to]);
    if (!item || item[2].slice(-1) !== kind || RULE.test(lines[to])) break;
    const marker = item[1].length + item[2].length;
    const width = item[0].length > marker + 4 ? marker + 1 : Math.max(item[0].length, marker + 1);
    const inner = [lines[to].slice(width)];
    let end = to + 1;
    let blank = false;
    for (; end < lines.length; end += 1) {
      const line = lines[end];
      const isInside = line.search(/\S/) >= width;
      if (!line.trim()) blank = true;
      else if (!isInside && (blank || starts(line))) break;
      else {
        if (blank && isInside) isLoose = true;
        blank = false;
      }
      inner.push(isInside ? line.slice(width) : line.trimStart());
    }
    const trailing = inner.length - inner.findLastIndex((line) => line.trim()) - 1;
    to = end;
    if (blank && ITEM.exec(lines[to] ?? "")?.[2].slice(-1) === kind) isLoose = true;
    items.push(itemOf(inner.slice(0, inner.length - trailing), depth));
  }
  return { kind: "list", ordered: kind === "." || kind === ")", start: Number.parseInt(first, 10), isLoose, items, to };
}

function itemOf(lines, depth) {
  const task = /^\[([ xX])\] +/.exec(lines[0] ?? "");
  if (task) lines = [lines[0].slice(task[0].length), ...lines.slice(1)];
  return { blocks: parse(lines, depth + 1), checked: task ? task[1] !== " " : null };
}

function isTable(lines, at) {
  const below = lines[at + 1] ?? "";
  if (!lines[at].includes("|") || !/^ {0,3}[|:-]/.test(below)) return false;
  const marks = cells(below);
  return marks.every((mark) => /^:?-+:?$/.test(mark)) && cells(lines[at]).length === marks.length;
}

function tableAt(lines, at) {
  const aligned = cells(lines[at + 1]).map((mark) => (mark.endsWith(":") ? (mark.startsWith(":") ? "center" : "right") : ""));
  let to = at + 2;
  while (to < lines.length && lines[to].trim() && !starts(lines[to])) to += 1;
  return { kind: "table", head: cells(lines[at]), aligned, rows: lines.slice(at + 2, to).map(cells), to };
}

function cells(line) {
  const parts = line.trim().replace(/^\|/, "").match(/(?:\\.|`[^`]*`|[^|\\])+|\|/g) ?? [];
  const found = [""];
  for (const part of parts) {
    if (part === "|") found.push("");
    else found[found.length - 1] += part.replace(/\\\|/g, "|");
  }
  if (found.length > 1 && !found.at(-1).trim()) found.pop();
  return found.map((cell) => cell.trim());
}

function paragraphAt(lines, at) {
  let to = at + 1;
  while (to < lines.length && lines[to].trim()) {
    const underline = UNDERLINE.exec(lines[to]);
    if (underline) {
      const text = lines.slice(at, to).join("\n").trim();
      return { kind: "heading", level: underline[1][0] === "=" ? 1 : 2, text, to: to + 1 };
    }
    if (starts(lines[to], true) || isTable(lines, to)) break;
    to += 1;
  }
  return { kind: "paragraph", text: lines.slice(at, to).map((line) => line.trimStart()).join("\n").trimEnd(), to };
}

/** Whether a line begins a block. Inside of a paragraph a list begins only with an item that has a text, and with 1. */
function starts(line, inParagraph = false) {
  if (HEADING.test(line) || fenceOf(line) || RULE.test(line) || QUOTE.test(line)) return true;
  const item = ITEM.exec(line);
  if (!item) return false;
  return !inParagraph || (line.length > item[0].length && (Number.isNaN(Number.parseInt(item[2], 10)) || Number.parseInt(item[2], 10) === 1));
}

const RIGHT_TO_LEFT = /^[^\p{L}]*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/u;

function firstText(block) {
  const inner = block?.items?.[0]?.blocks[0] ?? block?.blocks?.[0];
  return block?.text ?? block?.head?.join(" ") ?? (inner ? firstText(inner) : "");
}

/** The node of a block, in the direction of its first letter. */
function made(block) {
  const node = nodeOf(block);
  if (block.kind !== "fence" && RIGHT_TO_LEFT.test(firstText(block))) node.dir = "rtl";
  return node;
}

function nodeOf(block) {
  switch (block.kind) {
    case "heading":
      return element(`h${Math.min(6, block.level + 2)}`, { class: `h${block.level}` }, inline(block.text));
    case "rule":
      return element("hr");
    case "quote":
      return element("blockquote", {}, block.blocks.map(made));
    case "list":
      return list(block);
    case "table":
      return table(block);
    case "fence": {
      const view = new CodeView(block.language);
      view.update(block.text);
      return fence(block, view);
    }
    default:
      return element("p", {}, inline(block.text));
  }
}

function fence(block, view) {
  const head = element("div", { class: "fence-head" }, element("span", {}, block.language || "text"), copyButton(() => view.text, "Copy the code"));
  return element("div", { class: "fence" }, head, view.element);
}

function list({ ordered, start, isLoose, items }) {
  const nodes = items.map(({ blocks, checked }) => {
    const box = checked === null ? null : element("input", { type: "checkbox", disabled: true, checked, "aria-label": "done" });
    const inner = blocks.flatMap((block) => (block.kind === "paragraph" && !isLoose ? inline(block.text) : [made(block)]));
    return element("li", { class: box ? "task" : null }, box, inner);
  });
  return element(ordered ? "ol" : "ul", { start: ordered && start !== 1 ? start : null }, nodes);
}

function table({ head, aligned, rows }) {
  const row = (tag, values) => element("tr", {}, head.map((_, at) => element(tag, { class: aligned[at] || null }, inline(values[at] ?? ""))));
  const body = element("tbody", {}, rows.map((values) => row("td", values)));
  return element("div", { class: "table", tabindex: "0" }, element("table", {}, element("thead", {}, row("th", head)), body));
}
