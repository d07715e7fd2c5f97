// Markdown inside of a block: emphasis, code, links. It takes a time that grows with the text, and no faster.

import { element, link } from "./dom.js";

const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "\u00a9", hellip: "\u2026", mdash: "\u2014", ndash: "\u2013" };
const SPECIAL = /\\[!-/:-@[-`{-~\n]|(`+)|(\*+|_+|~~)|!?\[|\]|<((?:https?:\/\/|mailto:)[^<>\s]*)>|<br ?\/?>|https?:\/\/[^\s<>"'`*(\])}]+(?:\([^\s()]*\)[^\s<>"'`*\])}]*)*|&(?:#\d{1,7}|[a-z]+);|\n/g;
// What stands in the parentheses after a link's text, each read where the one before ended.
const SPACE = /\s*/y;
const ADDRESS = /<([^<>\n]*)>|([^\s()]*(?:\([^\s()]*\)[^\s()]*)*)/y;
const TITLE = /"[^"]*"|'[^']*'|\([^()]*\)/y;

/** The nodes of a text with inline Markdown. */
export function inline(text) {
  const parts = []; // nodes, texts, and delimiters as {mark, count, opens, closes}
  const brackets = []; // of each open `[`: its place in parts, and whether it is an image
  brackets.linked = 0; // how many of the first of them have a link inside
  const runs = new Map(); // the places of runs of backticks that are still to come, by their length
  for (const { 0: ticks, index } of text.matchAll(/`+/g)) {
    if (!runs.has(ticks.length)) runs.set(ticks.length, { places: [], next: 0 });
    runs.get(ticks.length).places.push(index);
  }
  const special = new RegExp(SPECIAL);
  let at = 0;
  for (let found; (found = special.exec(text)); ) {
    if (found.index > at) parts.push(text.slice(at, found.index));
    at = special.lastIndex;
    const [token, ticks, run, address] = found;
    if (ticks) at = codeSpan(text, found.index, ticks, parts, runs);
    else if (run) parts.push(delimiter(text, found.index, run));
    else if (token === "[" || token === "![") {
      brackets.push({ place: parts.length, isImage: token === "![" });
      parts.push(token);
    } else if (token === "]") at = closeBracket(text, at, parts, brackets);
    else if (token === "\n") breakLine(parts);
    else parts.push(...plainToken(token, address));
    special.lastIndex = at;
  }
  if (at < text.length) parts.push(text.slice(at));
  return emphasised(parts);
}

/** The end of a line: two spaces before it break the line in what is shown, too. */
function breakLine(parts) {
  const last = parts.at(-1);
  if (typeof last !== "string" || !last.endsWith("  ")) return parts.push("\n");
  parts[parts.length - 1] = last.trimEnd();
  parts.push(element("br"));
}

function plainToken(token, address) {
  if (address) return [link(address, address.replace(/^mailto:/, ""))];
  if (token.startsWith("http")) {
    const href = token.replace(/[.,;:!?]+$/, "");
    return [link(href, href), token.slice(href.length)];
  }
  if (token === "\\\n" || token.startsWith("<br")) return [element("br")];
  if (token[0] === "\\") return [token[1]];
  if (token[0] !== "&") return [token];
  if (token[1] !== "#") return [Object.hasOwn(ENTITIES, token.slice(1, -1)) ? ENTITIES[token.slice(1, -1)] : token];
  const code = Number(token.slice(2, -1));
  return [code && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff) ? String.fromCodePoint(code) : "\ufffd"];
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

/** A link or an image, if a `[` is open and an address follows. Returns where the text goes on. */
function closeBracket(text, at, parts, brackets) {
  const bracket = brackets.pop();
  const hasLink = bracket && !bracket.isImage && brackets.length < brackets.linked; // no link inside of a link
  brackets.linked = Math.min(brackets.linked, brackets.length);
  const target = bracket && !hasLink ? targetAt(text, at) : null;
  if (!target) {
    parts.push("]");
    return at;
  }
  const inner = emphasised(parts.splice(bracket.place).slice(1));
  const address = target.address.replace(/\\([!-/:-@[-`{-~])/g, "$1");
  parts.push(bracket.isImage ? image(address, inner) : link(address, inner));
  if (!bracket.isImage) brackets.linked = brackets.length;
  return target.end;
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
  const before = text[at - 1] ?? " ";
  const after = text[at + run.length] ?? " ";
  const isPunctuation = (character) => /[\p{P}\p{S}]/u.test(character);
  const left = !/\s/.test(after) && (!isPunctuation(after) || /\s/.test(before) || isPunctuation(before));
  const right = !/\s/.test(before) && (!isPunctuation(before) || /\s/.test(after) || isPunctuation(after));
  const mark = run[0];
  const opens = left && (mark !== "_" || !right || isPunctuation(before));
  const closes = right && (mark !== "_" || !left || isPunctuation(after));
  return { mark, count: run.length, opens, closes };
}

/** The nodes of parts, whose delimiters become emphasis where they pair. */
function emphasised(parts) {
  const out = [];
  const openers = []; // the places of delimiters in `out`
  for (const part of parts) {
    if (!part.mark || part instanceof Node) {
      out.push(part);
      continue;
    }
    while (part.closes && part.count) {
      const match = openers.findLastIndex((place) => out[place].mark === part.mark);
      if (match < 0) break;
      const opener = out[openers[match]];
      const strength = opener.mark === "~" ? 2 : Math.min(2, opener.count, part.count);
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
