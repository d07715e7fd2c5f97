// Markdown as DOM nodes. What a model wrote never becomes HTML: markup that is not Markdown stays text.

import { Definitions } from "./definitions.js";
import { copyButton, element } from "./dom.js";
import { CodeView } from "./highlight.js";
import { inline, unescaped } from "./inline.js";
import { mathematics } from "./mathematics.js";

const DEEPEST = 12; // lists and quotes inside of each other
// A model may write anything, also a million spaces: each expression takes time that grows with its text, and no faster.
const FENCE = /^( {0,3})(`{3,}|~{3,}) *(\S*)/;
const HEADING = /^ {0,3}(#{1,6})(?![^ \t])/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?: {1,4}(?=\S)| +|$)/;
const DETAILS = /^ {0,3}<details(?: open)?> *(?:<summary>(.*?)<\/summary>)? *(.*)$/;
const ALERT = /^\[!(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\][ \t]*$/i;
const FORMULAS = { "\\[": "\\]", $$: "$$" };
const UNDERLINE = /^ {0,3}(=+|--+)[ \t]*$/; // one dash is the beginning of a list, whose text has not come yet

/** Text in Markdown that may grow. Blocks that have ended are not made again. */
export class MarkdownView {
  #text = "";
  #start = 0; // where the blocks begin that may still change
  #open = []; // those blocks, as {source, block, node, view}
  #isComplete = false;

  constructor(root) {
    this.element = root;
  }

  update(text) {
    if (text === this.#text) return;
    if (this.#isComplete || !text.startsWith(this.#text)) {
      this.element.replaceChildren();
      [this.#start, this.#open, this.#isComplete] = [0, [], false];
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

  /** The text is complete. References lead to what they are about, wherever it stands. Assistive technology gets headings
   * whose levels skip none, below the turn's own; what is seen is as it was written. */
  complete() {
    if (this.#isComplete) return;
    this.#isComplete = true;
    if (this.#text.includes("]:")) this.#resolve();
    let before = 2;
    for (const heading of this.element.querySelectorAll("h3, h4, h5, h6")) {
      before = Math.min(Number(heading.tagName[1]), before + 1);
      heading.setAttribute("aria-level", before);
    }
  }

  #resolve() {
    const definitions = new Definitions();
    const nodes = parse(this.#text.split("\n"), 0, definitions).map((block) => made(block, definitions));
    const notes = definitions.notes((text) => inline(text, definitions));
    this.element.replaceChildren();
    for (const node of [...nodes, ...(notes ? [notes] : [])]) this.element.append(node);
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
function parse(lines, depth = 0, definitions = null) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const block = blockAt(lines, at, depth, definitions);
    const text = block.kind === "paragraph" && definitions ? definitions.take(block.text) : block.text;
    if (block.kind !== "paragraph" || text) blocks.push({ ...block, text, from: at });
    at = block.to;
  }
  return blocks;
}

function blockAt(lines, at, depth, definitions) {
  const line = lines[at];
  const heading = HEADING.exec(line);
  if (heading) return { kind: "heading", level: heading[1].length, text: headingText(line.slice(heading[0].length)), to: at + 1 };
  if (fenceOf(line)) return fenceAt(lines, at);
  if (formulaOf(line)) return formulaAt(lines, at);
  if (RULE.test(line)) return { kind: "rule", to: at + 1 };
  if (QUOTE.test(line) && depth < DEEPEST) return quoteAt(lines, at, depth, definitions);
  if (DETAILS.test(line) && depth < DEEPEST) return detailsAt(lines, at, depth, definitions);
  if (itemOf(line) && depth < DEEPEST) return listAt(lines, at, depth, definitions);
  if (indentOf(line) >= 4) return indentedAt(lines, at);
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
  return { kind: "fence", language: unescaped(language), text: inner.map((line) => `${line}\n`).join("").slice(0, isClosed ? undefined : -1), to: isClosed ? to + 1 : to };
}

/** The end of a formula that begins in this line, in lines of its own; "" if none does. */
function formulaOf(line) {
  const text = line.trimStart();
  const closing = line.length - text.length < 4 ? FORMULAS[text.slice(0, 2)] : undefined;
  const end = closing ? text.indexOf(closing, 2) : -1;
  return closing && (end < 0 || /^[ \t.,;]*$/.test(text.slice(end + 2))) ? closing : "";
}

/** Lines up to the end of the formula, or to a blank line, which no formula has. */
function formulaAt(lines, at) {
  const closing = formulaOf(lines[at]);
  let to = at;
  let text = lines[at].trimStart().slice(2);
  while (!text.includes(closing) && lines[to + 1]?.trim()) text = lines[(to += 1)];
  return { kind: "formula", text: lines.slice(at, to + 1).map((line) => line.trim()).join("\n"), to: to + 1 };
}

/** The columns before the text of a line. */
function indentOf(line) {
  let columns = 0;
  for (const character of /^[ \t]*/.exec(line)[0]) columns += character === "\t" ? 4 - (columns % 4) : 1;
  return columns;
}

/** A line without this many columns before its text, or with fewer blanks there. */
function dedented(line, columns) {
  if (!line.slice(0, columns).includes("\t")) return line.slice(Math.min(columns, line.length - line.trimStart().length));
  return " ".repeat(Math.max(0, indentOf(line) - columns)) + line.trimStart();
}

/** The match of a line that begins an item of a list. A tab behind its mark counts as blanks. */
function itemOf(line) {
  if (!/^[ ]{0,3}(?:[-*+]|\d{1,9}[.)])\t/.test(line)) return ITEM.exec(line);
  const mark = /^ *\S+/.exec(line)[0];
  return ITEM.exec(mark + " ".repeat(indentOf(" ".repeat(mark.length) .concat(line.slice(mark.length))) - mark.length) + line.slice(mark.length).trimStart());
}

function indentedAt(lines, at) {
  let to = at;
  while (to < lines.length && (indentOf(lines[to]) >= 4 || !lines[to].trim())) to += 1;
  while (!lines[to - 1].trim()) to -= 1;
  return { kind: "fence", language: "text", text: lines.slice(at, to).map((line) => dedented(line, 4)).join("\n"), to };
}

function quoteAt(lines, at, depth, definitions) {
  let to = at;
  while (to < lines.length && (QUOTE.test(lines[to]) || (to > at && endsInParagraph(lines[to - 1]) && isParagraph(lines[to])))) to += 1;
  const inner = lines.slice(at, to).map((line) => line.replace(QUOTE, ""));
  const alert = ALERT.exec(inner[0]);
  return { kind: "quote", alert: alert?.[1].toLowerCase(), blocks: parse(alert ? inner.slice(1) : inner, depth + 1, definitions), to };
}

/** Whether a line may be one of a paragraph, which goes on in lines without the marks of its quotation. */
function isParagraph(line) {
  return line.trim() && !starts(line);
}

/** Whether the innermost block of a line, in its quotations and lists, may be a paragraph. */
function endsInParagraph(line) {
  let text = line;
  for (let depth = 0; depth <= DEEPEST; depth += 1) text = QUOTE.test(text) ? text.replace(QUOTE, "") : text.slice(itemOf(text)?.[0].length ?? 0);
  return isParagraph(text) && indentOf(text) < 4;
}

/** What a person can open: up to its end, or to the end of the text. */
function detailsAt(lines, at, depth, definitions) {
  const [, summary = "", first] = DETAILS.exec(lines[at]);
  let to = at + 1;
  for (let open = 1; to < lines.length; to += 1) {
    if (DETAILS.test(lines[to])) open += 1;
    else if (/^ {0,3}<\/details> *$/.test(lines[to]) && !(open -= 1)) break;
  }
  const inner = [first, ...lines.slice(at + 1, to)];
  const title = /^ {0,3}<summary>(.*)<\/summary> *$/.exec(inner.find((line) => line.trim()) ?? "");
  if (title && !summary) inner.splice(inner.findIndex((line) => line.trim()), 1);
  return { kind: "details", text: summary || title?.[1] || "Details", blocks: parse(inner, depth + 1, definitions), to: Math.min(to + 1, lines.length) };
}

function listAt(lines, at, depth, definitions) {
  const first = itemOf(lines[at])[2];
  const kind = first.slice(-1);
  const items = [];
  let isLoose = false;
  let to = at;
  while (to < lines.length) {
    const item = itemOf(lines[to]);
    if (!item || item[2].slice(-1) !== kind || RULE.test(lines[to])) break;
    const marker = item[1].length + item[2].length;
    const width = item[0].length > marker + 4 ? marker + 1 : Math.max(item[0].length, marker + 1);
    const inner = [item.input.slice(width)];
    let end = to + 1;
    let blank = false;
    for (; end < lines.length; end += 1) {
      const line = lines[end];
      const isInside = line.trim() && indentOf(line) >= width;
      if (!line.trim()) blank = true;
      else if (!isInside && (blank || starts(line))) break;
      else {
        blank = false;
      }
      inner.push(isInside ? dedented(line, width) : line.trimStart());
    }
    const trailing = inner.length - inner.findLastIndex((line) => line.trim()) - 1;
    to = end;
    if (blank && itemOf(lines[to] ?? "")?.[2].slice(-1) === kind) isLoose = true;
    const made = parsedItem(inner.slice(0, inner.length - trailing), depth, definitions);
    isLoose ||= made.isLoose;
    items.push(made);
  }
  return { kind: "list", ordered: kind === "." || kind === ")", start: Number.parseInt(first, 10), isLoose, items, to };
}

/** An item. A blank line between its blocks makes its list a loose one. */
function parsedItem(lines, depth, definitions) {
  const task = /^\[([ xX])\] +/.exec(lines[0] ?? "");
  if (task) lines = [lines[0].slice(task[0].length), ...lines.slice(1)];
  const blocks = parse(lines, depth + 1, definitions);
  return { blocks, checked: task ? task[1] !== " " : null, isLoose: blocks.some(({ from }, at) => at && !lines[from - 1].trim()) };
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
  if (HEADING.test(line) || fenceOf(line) || RULE.test(line) || QUOTE.test(line) || formulaOf(line) || DETAILS.test(line)) return true;
  const item = itemOf(line);
  if (!item) return false;
  return !inParagraph || (line.length > item[0].length && (Number.isNaN(Number.parseInt(item[2], 10)) || Number.parseInt(item[2], 10) === 1));
}

const RIGHT_TO_LEFT = /^[^\p{L}]*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/u;

function firstText(block) {
  const inner = block?.items?.[0]?.blocks[0] ?? block?.blocks?.[0];
  return block?.text ?? block?.head?.join(" ") ?? (inner ? firstText(inner) : "");
}

/** The node of a block, in the direction of its first letter. */
function made(block, definitions = null) {
  const node = nodeOf(block, definitions);
  if (block.kind !== "fence" && RIGHT_TO_LEFT.test(firstText(block))) node.dir = "rtl";
  return node;
}

function nodeOf(block, definitions) {
  switch (block.kind) {
    case "heading":
      return element(`h${Math.min(6, block.level + 2)}`, { class: `h${block.level}` }, inline(block.text, definitions));
    case "rule":
      return element("hr");
    case "quote":
      return quote(block, definitions);
    case "details":
      return element("details", {}, element("summary", {}, inline(block.text, definitions)), block.blocks.map((one) => made(one, definitions)));
    case "formula":
      return element("p", { class: "formula" }, mathematics(block.text));
    case "list":
      return list(block, definitions);
    case "table":
      return table(block, definitions);
    case "fence": {
      const view = new CodeView(block.language);
      view.update(block.text);
      return fence(block, view);
    }
    default:
      return element("p", {}, inline(block.text, definitions));
  }
}

function fence(block, view) {
  const head = element("div", { class: "fence-head" }, element("span", {}, block.language || "text"), copyButton(() => view.text, "Copy the code"));
  return element("div", { class: "fence" }, head, view.element);
}

function quote({ alert, blocks }, definitions) {
  const title = alert ? element("p", {}, element("strong", {}, alert[0].toUpperCase() + alert.slice(1))) : null;
  return element("blockquote", { class: alert ? "alert" : null }, title, blocks.map((block) => made(block, definitions)));
}

function list({ ordered, start, isLoose, items }, definitions) {
  const nodes = items.map(({ blocks, checked }) => {
    const box = checked === null ? null : element("input", { type: "checkbox", disabled: true, checked, "aria-label": "done" });
    const inner = blocks.flatMap((block) => (block.kind === "paragraph" && !isLoose ? inline(block.text, definitions) : [made(block, definitions)]));
    return element("li", { class: box ? "task" : null }, box, inner);
  });
  return element(ordered ? "ol" : "ul", { start: ordered && start !== 1 ? start : null }, nodes);
}

function table({ head, aligned, rows }, definitions) {
  const row = (tag, values) => element("tr", {}, head.map((_, at) => element(tag, { class: aligned[at] || null }, inline(values[at] ?? "", definitions))));
  const body = element("tbody", {}, rows.map((values) => row("td", values)));
  return element("div", { class: "table", tabindex: "0", role: "group", "aria-label": "Table" }, element("table", {}, element("thead", {}, row("th", head)), body));
}
