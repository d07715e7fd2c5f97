// How each kind of message is shown. A part has an `element`, `update(message)`, and takes what belongs to it.

import { ConsoleView } from "./console.js";
import { copyButton, element, link } from "./dom.js";
import { CodeView } from "./highlight.js";
import { MarkdownView } from "./markdown.js";
import { QuestionView } from "./question.js";

const ENDED = { cancelled: "stopped here", incomplete: "cut short here", failed: "failed here" };

/** Text in Markdown, of the assistant. */
class TextPart {
  constructor(message) {
    this.prose = element("div", { class: "prose" });
    this.note = element("p", { class: "note", hidden: true });
    const title = message.format === "refusal" ? element("p", { class: "note" }, "The model declined:") : null;
    this.element = element("div", { class: message.format === "refusal" ? "text refusal" : "text" }, title, this.prose, this.note);
    this.view = new MarkdownView(this.prose);
    this.sources = null;
  }

  update(message) {
    this.view.update(message.content);
    this.note.hidden = !(message.status in ENDED);
    this.note.textContent = ENDED[message.status] ?? "";
    if (message.annotations?.length) this.#cite(message.annotations);
  }

  #cite(annotations) {
    const cited = new Map();
    for (const { url, title, file_id } of annotations) if (url ?? file_id) cited.set(url ?? file_id, title || url || file_id);
    const items = [...cited].map(([address, title]) => element("li", {}, link(address, title)));
    this.sources?.remove();
    this.sources = items.length ? element("ol", { class: "sources", "aria-label": "Sources" }, ...items) : null;
    if (this.sources) this.element.append(this.sources);
  }
}

/** What a person wrote: as it is. */
class UserPart {
  constructor() {
    this.element = element("div", { class: "bubble" });
  }

  update(message) {
    this.element.textContent = message.content;
  }
}

/** A folded message: reasoning, or a message of a kind that has no view. */
class FoldedPart {
  constructor(message) {
    this.summary = element("span", { class: "summary" });
    this.body = element("div", { class: "prose small" });
    this.view = new MarkdownView(this.body);
    this.element = element("details", { class: "fold" }, element("summary", {}, this.summary), this.body);
    this.element.addEventListener("toggle", () => this.update(this.message));
    this.message = message;
  }

  update(message) {
    this.message = message;
    const isOpen = message.status === "in_progress";
    const names = isOpen ? ["Thinking\u2026", "working"] : ["Thought about it", ""];
    const [title, working] = message.type === "reasoning" ? names : [`${message.role} \u00b7 ${message.type}`, ""];
    this.summary.textContent = title;
    this.element.classList.toggle("working", Boolean(working));
    this.element.hidden = message.format === "redacted" || (!isOpen && !message.content);
    if (this.element.open) this.view.update(message.content); // a fold that is closed costs nothing
  }
}

/** A picture. Those that stand on a server or a disk are not loaded: their address is shown. */
class ImagePart {
  constructor() {
    this.element = element("figure", { class: "picture" });
  }

  update({ status, format = "", content }) {
    const kind = /^base64\.(png|jpeg|jpg|gif|webp)$/.exec(format)?.[1];
    if (status === "in_progress" && !kind) return;
    if (kind && /^[A-Za-z0-9+/=\s]+$/.test(content)) {
      const src = `data:image/${kind.replace("jpg", "jpeg")};base64,${content}`;
      if (!this.picture) this.element.replaceChildren((this.picture = element("img", { alt: "Picture" })));
      this.picture.src = src;
    } else if (status !== "in_progress") this.element.replaceChildren(element("p", { class: "chip" }, link(content, `Picture: ${content.slice(0, 300)}`)));
  }
}

/** A file, or audio: its name. */
class FilePart {
  constructor() {
    this.element = element("p", { class: "chip" });
  }

  update({ type, content, name, format }) {
    const what = type === "audio" ? `Audio (${format ?? "unknown"})` : `File: ${name ?? content.slice(0, 300)}`;
    this.element.replaceChildren(what);
  }
}

class ConsolePart {
  constructor() {
    this.view = new ConsoleView();
    this.element = this.view.element;
  }

  update(message) {
    this.view.update(message.content);
  }
}

/** Code, with its question, what it prints and what it draws. */
class CodePart {
  constructor(message) {
    this.view = new CodeView(message.format);
    this.state = element("span", { class: "state" });
    this.language = element("span", {}, message.format ?? "code");
    const head = element("header", {}, this.language, this.state, copyButton(() => this.view.text, "Copy the code"));
    this.asked = element("div");
    this.output = element("div", { class: "output" });
    this.element = element("section", { class: "card", "aria-label": `Code in ${message.format ?? "an unknown language"}` }, head, this.view.element, this.asked, this.output);
    this.confirmation = null;
    this.hasEnded = false;
    this.isRunning = false;
  }

  update(message) {
    this.message = message;
    if (!this.isEdited) this.view.update(message.content.replace(/\n$/, ""));
    if (message.format) this.language.textContent = message.format;
    this.#tellState();
  }

  ask(confirmation) {
    this.confirmation = confirmation;
    this.question = new QuestionView(confirmation, "Run");
    this.asked.replaceChildren(this.question.element);
    this.#tellState();
    return this.question;
  }

  settle() {
    const { status, edited, reason } = this.confirmation;
    this.asked.replaceChildren();
    if (edited !== null && edited !== undefined && edited !== this.message.content) {
      this.isEdited = true;
      this.view.update(edited.replace(/\n$/, ""));
      this.asked.append(element("p", { class: "note" }, "You edited this before it ran."));
    }
    if (status === "declined" && reason) this.asked.append(element("p", { class: "note" }, `Not run: ${reason}`));
    this.isRunning = status === "approved";
    this.#tellState();
  }

  runs(line) {
    this.isRunning = line !== null;
    this.view.activeLine = line;
    this.#tellState();
  }

  take(part) {
    if (part instanceof OutputPart && this.confirmation?.status === "declined") this.asked.replaceChildren(); // it says so
    this.output.append(part.element);
  }

  end() {
    this.runs(null);
    this.hasEnded = true;
    this.#tellState();
  }

  #tellState() {
    const asked = this.confirmation?.status;
    const writing = this.message?.status === "in_progress";
    let [kind, text] = ["", ""];
    if (writing && !this.hasEnded) [kind, text] = ["working", "Writing"];
    else if (asked === "pending") [kind, text] = ["waiting", "Waits for your yes"];
    else if (asked === "declined") [kind, text] = ["declined", "Not run"];
    else if (this.isRunning) [kind, text] = ["working", "Running"];
    else if (asked === "approved") [kind, text] = ["done", "Ran"];
    this.state.className = `state ${kind}`;
    this.state.textContent = text;
  }
}

/** A tool call, folded, with its output. */
class ToolPart {
  constructor() {
    this.summary = element("span", { class: "summary" });
    this.state = element("span", { class: "state" });
    this.view = new CodeView("json");
    this.output = element("div", { class: "output" });
    this.fold = element("details", { class: "fold tool" }, element("summary", {}, this.summary, this.state), this.view.element, this.output);
    this.asked = element("div");
    this.element = element("div", {}, this.fold, this.asked);
    this.confirmation = null;
  }

  update(message) {
    this.message = message;
    const isWriting = message.status === "in_progress";
    // Where a call's argument becomes a message of its own, that one is shown; it begins within the first characters.
    this.element.hidden = this.isReplaced || (isWriting && message.content.length < 80);
    this.summary.replaceChildren(element("code", {}, message.name ?? "tool"), element("span", { class: "brief" }, brief(message)));
    this.view.update(isWriting ? message.content : pretty(message.content));
    this.#tellState();
  }

  ask(confirmation) {
    this.confirmation = confirmation;
    this.question = new QuestionView(confirmation, "Allow");
    this.asked.replaceChildren(this.question.element);
    this.fold.open = true;
    this.asked.className = "card asks";
    this.#tellState();
    return this.question;
  }

  settle() {
    const { status, reason } = this.confirmation;
    this.asked.className = "";
    this.asked.replaceChildren(...(status === "declined" && reason ? [element("p", { class: "note" }, `Declined: ${reason}`)] : []));
    this.#tellState();
  }

  runs() {}

  take(part) {
    this.hasOutput = true;
    this.output.append(part.element);
    this.#tellState();
  }

  end() {
    this.hasEnded = true;
    this.#tellState();
  }

  #tellState() {
    const asked = this.confirmation?.status;
    let [kind, text] = ["working", "Calling"];
    if (asked === "pending") [kind, text] = ["waiting", "Waits for your yes"];
    else if (asked === "declined") [kind, text] = ["declined", "Declined"];
    else if (this.hasOutput || this.hasEnded) [kind, text] = ["", ""];
    this.state.className = `state ${kind}`;
    this.state.textContent = text;
  }
}

/** The output of a tool: JSON, or text. */
class OutputPart {
  constructor() {
    this.element = element("div", { class: "plain" });
  }

  update({ status, content }) {
    const text = status === "in_progress" ? content : pretty(content);
    const isData = text !== content || /^[[{]/.test(text);
    if (this.isData !== isData) this.element.replaceChildren((this.view = isData ? new CodeView("json") : new ConsoleView()).element);
    this.isData = isData;
    this.view.update(text);
  }
}

function pretty(text) {
  try {
    return text.length < 200_000 && /^\s*[[{]/.test(text) ? JSON.stringify(JSON.parse(text), null, 2) : text;
  } catch {
    return text;
  }
}

/** The arguments of a call in a few words. */
function brief(message) {
  const values = Object.values(message.arguments).map((value) => (typeof value === "string" ? value : JSON.stringify(value)));
  return values.join(", ").replace(/\s+/g, " ").slice(0, 160);
}

const PARTS = {
  reasoning: FoldedPart,
  console: ConsolePart,
  image: ImagePart,
  file: FilePart,
  audio: FilePart,
  tool_call: ToolPart,
  tool_output: OutputPart,
};

/** A part for a message. */
export function partOf(message) {
  const { type, role, format } = message;
  if (role === "user") return new UserPart(message);
  if (type === "message" && (!format || format === "refusal") && role === "assistant") return new TextPart(message);
  if (type === "code" && role !== "computer") return new CodePart(message);
  return new (PARTS[type] ?? FoldedPart)(message);
}
