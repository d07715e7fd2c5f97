// Markdown inside of a block: emphasis, code, links. It takes a time that grows with the text, and no faster.

import { element, link } from "./dom.js";
import { mathematics } from "./mathematics.js";

const SPECIAL =
  /\\[!-/:-@[-`{-~\n]|(`+)|(\*+|_+|~+)|!?\[|\]|\$\$?|<((?:https?:\/\/|mailto:)[^<>\s]*|[\w.!#$%&'*+/=?^`{|}~-]+@[\w-]+(?:\.[\w-]+)+)>|<(\/?)([a-z]+)(?:\s[^<>]*)?\/?>|<!--|(?:https?:\/\/|(?<![\w/.@-])www\.)[^\s<>"'`*(\])}]+(?:\([^\s()]*\)[^\s<>"'`*\])}]*)*|&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[a-zA-Z][\da-zA-Z]{1,40});|\n/g;
const ESCAPED = /\\([!-/:-@[-`{-~])|&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[a-zA-Z][\da-zA-Z]{1,40});/g;
// What stands in the parentheses after a link's text, each read where the one before ended.
const SPACE = /\s*/y;
const ADDRESS = /<((?:\\[^\n]|[^<>\n\\])*)>|(?!<)((?:\\[^\s]|[^\s()\\]|\((?:\\[^\s]|[^\s()\\])*\))*)/y;
const TITLE = /"(?:\\[^]|[^"\\])*"|'(?:\\[^]|[^'\\])*'|\((?:\\[^]|[^()\\])*\)/y;
// Elements that do nothing but show their text: they are made without their attributes. The others stay text.
const INERT = new Set("b i u s q em strong del ins mark small sub sup kbd abbr cite code var samp span".split(" "));
const DEEPEST = 50; // of these inside of each other
const FORMULAS = { "\\(": "\\)", $$: "$$", $: "$" };
const LONGEST_FORMULA = 1000; // characters: a search for its end goes no further
const WIDE = /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}]/u;

/** The nodes of a text with inline Markdown. `definitions` has what references lead to; see `definitions.js`. */
export function inline(text, definitions = null) {
  const parts = []; // nodes, texts, delimiters as {mark, count, opens, closes}, and beginnings of elements as {tag}
  const brackets = []; // of each open `[`: its place in parts, where its text begins, and whether it is an image
  brackets.linked = 0; // how many of the first of them have a link inside
  const tags = []; // the places of beginnings of elements
  const runs = new Map(); // the places of runs of backticks that are still to come, by their length
  for (const { 0: ticks, index } of text.matchAll(/`+/g)) {
    if (!runs.has(ticks.length)) runs.set(ticks.length, { places: [], next: 0 });
    runs.get(ticks.length).places.push(index);
  }
  const lastComment = text.lastIndexOf("-->"); // the end of the last one
  const special = new RegExp(SPECIAL);
  let at = 0;
  for (let found; (found = special.exec(text)); ) {
    if (found.index > at) parts.push(text.slice(at, found.index));
    at = special.lastIndex;
    const [token, ticks, run, address, isEnd, tag] = found;
    const formula = token in FORMULAS ? formulaAt(text, found.index, token) : "";
    if (formula) {
      parts.push(mathematics(formula));
      at = found.index + formula.length;
    } else if (ticks) at = codeSpan(text, found.index, ticks, parts, runs);
    else if (run) parts.push(delimiter(text, found.index, run));
    else if (token === "[" || token === "![") {
      brackets.push({ place: parts.length, start: at, isImage: token === "![" });
      parts.push(token);
    } else if (token === "]") at = closeBracket(text, at, parts, brackets, tags, definitions);
    else if (token === "\n") breakLine(parts);
    else if (token === "<!--") at = at <= lastComment ? text.indexOf("-->", at) + 3 : (parts.push(token), at); // it is not shown
    else if (tag === "br") parts.push(element("br"));
    else if (tag && INERT.has(tag)) placeTag(token, tag, isEnd, parts, brackets, tags);
    else parts.push(...plainToken(token, address));
    special.lastIndex = at;
  }
  if (at < text.length) parts.push(text.slice(at));
  return emphasised(parts);
}

/** The formula that begins here, with its delimiters; "" if none does. `$` may be money: no blank inside, no digit behind. */
function formulaAt(text, start, opening) {
  const closing = FORMULAS[opening];
  const from = start + opening.length;
  const length = text.slice(from, from + LONGEST_FORMULA).indexOf(closing);
  const inside = text.slice(from, from + length);
  const end = from + length + closing.length;
  if (length < 1 || (opening === "$" && (inside.trim() !== inside || inside.includes("\n") || /\d/.test(text[end] ?? "")))) return "";
  return text.slice(start, end);
}

/** The beginning or the end of an inert element. An end without a beginning is text. */
function placeTag(token, tag, isEnd, parts, brackets, tags) {
  if (!isEnd) {
    if (tags.length >= DEEPEST) return;
    tags.push(parts.length);
    return parts.push({ tag });
  }
  const index = tags.findLastIndex((place) => parts[place].tag === tag);
  if (index < 0) return parts.push(token);
  const place = tags[index];
  tags.length = index;
  const inner = emphasised(parts.splice(place).slice(1));
  while (brackets.at(-1)?.place > place) brackets.pop();
  brackets.linked = Math.min(brackets.linked, brackets.length);
  parts.push(element(tag, {}, inner));
}

/** The end of a line: two spaces before it break the line in what is shown, too. */
function breakLine(parts) {
  const last = parts.at(-1);
  if (typeof last !== "string" || !last.endsWith(" ")) return parts.push("\n");
  parts[parts.length - 1] = last.trimEnd();
  parts.push(last.endsWith("  ") ? element("br") : "\n");
}

function plainToken(token, address) {
  if (address) return [link(address.includes(":") ? address : `mailto:${address}`, address.replace(/^mailto:/, ""))];
  if (/^(?:http|www\.)/.test(token)) {
    const shown = token.replace(/[.,;:!?]+$/, "");
    return [link(shown.startsWith("w") ? `http://${shown}` : shown, shown), token.slice(shown.length)];
  }
  if (token === "\\\n") return [element("br")];
  if (token[0] === "\\") return [token[1]];
  return [token[0] === "&" ? entity(token) : token];
}

const entities = new Map();

/** The character of an entity. Its name is looked up by the browser, in a document of its own that has nothing else. */
function entity(token) {
  if (!entities.has(token)) entities.set(token, new DOMParser().parseFromString(token.replace(/^&#(?:0+|x0+);$/i, "\ufffd"), "text/html").body.textContent);
  return entities.get(token);
}

/** A text without its backslashes and entities. */
export function unescaped(text) {
  return text.replace(ESCAPED, (token, escaped) => escaped ?? entity(token));
}

/** A code span, or its backticks as text. Returns where the text goes on. */
function codeSpan(text, start, ticks, parts, runs) {
  const from = start + ticks.length;
  const same = runs.get(ticks.length);
  while (same && same.places[same.next] < from) same.next += 1;
  const end = same?.places[same.next];
  if (end === undefined) {
    parts.push(ticks);
    return from;
  }
  const inner = text.slice(from, end).replaceAll("\n", " ");
  const isPadded = inner.length > 2 && inner.startsWith(" ") && inner.endsWith(" ") && inner.trim();
  parts.push(element("code", {}, isPadded ? inner.slice(1, -1) : inner));
  return end + ticks.length;
}

/** Close a `[`: a link or an image if an address follows, or if its text refers to a definition. Returns where the text goes on. */
function closeBracket(text, at, parts, brackets, tags, definitions) {
  const bracket = brackets.pop();
  const hasLink = bracket && !bracket.isImage && brackets.length < brackets.linked; // no link inside of a link
  brackets.linked = Math.min(brackets.linked, brackets.length);
  const target = bracket && !hasLink ? (targetAt(text, at) ?? definitions?.targetAt(text, bracket.start, at)) : null;
  if (!target) {
    parts.push("]");
    return at;
  }
  while (tags.at(-1) > bracket.place) tags.pop();
  const inner = emphasised(parts.splice(bracket.place).slice(1));
  if (target.note) parts.push(target.note);
  else parts.push(bracket.isImage ? image(unescaped(target.address), inner) : link(unescaped(target.address), withoutLinks(inner)));
  if (!bracket.isImage) brackets.linked = brackets.length;
  return target.end;
}

/** The nodes of a link's text: the link of a picture in it becomes its text. */
function withoutLinks(nodes) {
  return nodes.map((node) => (node.localName === "a" || node.localName === "span" ? [...node.childNodes] : node));
}

/** The address in the parentheses that begin here, and where they end. */
function targetAt(text, start) {
  if (text[start] !== "(") return null;
  let at = start + 1;
  const read = (expression) => {
    expression.lastIndex = at;
    const found = expression.exec(text);
    if (found) at = expression.lastIndex;
    return found;
  };
  read(SPACE);
  const address = read(ADDRESS);
  if (read(SPACE)[0] && read(TITLE)) read(SPACE);
  return text[at] === ")" ? { address: address[1] ?? address[2], end: at + 1 } : null;
}

/** Pictures of other servers are not loaded: their address is a link. */
function image(address, inner) {
  const alt = element("span", {}, inner).textContent;
  if (/^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/.test(address)) return element("img", { src: address, alt });
  return link(address, alt || address);
}

function delimiter(text, at, run) {
  const before = [...text.slice(Math.max(0, at - 2), at)].at(-1) ?? " ";
  const after = at + run.length < text.length ? String.fromCodePoint(text.codePointAt(at + run.length)) : " ";
  const isPunctuation = (character) => /[\p{P}\p{S}]/u.test(character);
  const left = !/\s/.test(after) && (!isPunctuation(after) || /\s/.test(before) || isPunctuation(before));
  const right = !/\s/.test(before) && (!isPunctuation(before) || /\s/.test(after) || isPunctuation(after));
  const mark = run[0];
  if (mark === "~" && run.length > 2) return run;
  // Beside a wide character an asterisk may always begin and end: its language has no blanks between words.
  const opens = (left && (mark !== "_" || !right || isPunctuation(before))) || (mark === "*" && WIDE.test(before) && /\S/.test(after));
  const closes = (right && (mark !== "_" || !left || isPunctuation(after))) || (mark === "*" && WIDE.test(after) && /\S/.test(before));
  return { mark, count: run.length, length: run.length, opens, closes };
}

/** Whether two delimiters pair. One that both opens and closes does only if their lengths are no multiple of three together. */
function pairs(opener, closer) {
  if (opener.mark !== closer.mark) return false;
  if (opener.mark === "~") return opener.length === closer.length;
  const isThree = (opener.length + closer.length) % 3 === 0 && (opener.length % 3 || closer.length % 3);
  return !(isThree && (opener.closes || closer.opens));
}

/** The nodes of parts, whose delimiters become emphasis where they pair. An element without its end goes on to the end. */
function emphasised(parts) {
  for (let place; (place = parts.findLastIndex((part) => part.tag)) >= 0; ) {
    const [{ tag }, ...inner] = parts.splice(place);
    parts.push(element(tag, {}, emphasised(inner)));
  }
  const out = [];
  const openers = []; // the places of delimiters in `out`
  for (const part of parts) {
    if (!part.mark || part instanceof Node) {
      out.push(part);
      continue;
    }
    while (part.closes && part.count) {
      const match = openers.findLastIndex((place) => pairs(out[place], part));
      if (match < 0) break;
      const opener = out[openers[match]];
      const strength = opener.mark === "~" ? opener.length : Math.min(2, opener.count, part.count);
      const place = openers[match];
      openers.length = match + 1;
      const inner = out.splice(place + 1).map(asNode);
      out.push(element(part.mark === "~" ? "del" : strength === 2 ? "strong" : "em", {}, inner));
      opener.count -= strength;
      part.count -= strength;
      if (!opener.count) {
        out.splice(place, 1);
        openers.pop();
      }
    }
    if (part.count) {
      if (part.opens && openers.length < 100) openers.push(out.length);
      out.push(part);
    }
  }
  return joined(out.map(asNode));
}

/** Nodes and texts, with texts beside each other in one. */
function joined(nodes) {
  const found = [];
  let texts = [];
  for (const node of [...nodes, null]) {
    if (typeof node === "string") texts.push(node);
    else {
      if (texts.length) found.push(texts.join(""));
      texts = [];
      if (node) found.push(node);
    }
  }
  return found;
}

function asNode(part) {
  return part.mark && !(part instanceof Node) ? part.mark.repeat(part.count) : part;
}
