// How each kind of message is shown. A part has an `element`, `update(message)`, and takes what belongs to it.

import { ConsoleView } from "./console.js";
import { button, copyButton, element, link } from "./dom.js";
import { CodeView } from "./highlight.js";
import { MarkdownView } from "./markdown.js";
import { QuestionView } from "./question.js";
import { Message } from "./streamkit.js";

const QUEUED = ["queued", "Waits its turn"];
const UNANSWERED = ["declined", "Not answered"];
const LONG = 4000; // characters of a message that is shown with a scroll bar
const FILE = /^([^\n]{1,255}):\n\n(`{3,})(\w*)\n([^]*?)\n\2$/; // as `attachments.js` makes it
const EDITED = "You edited this before it ran.";
const ENDED = { cancelled: "stopped here", incomplete: "cut short here", failed: "failed here" };

/** What a person reads in place of the message with which an agent asked for its output once more. */
export const AGAIN_FOR_OUTPUT = "The answer had not the wanted form, so the model was asked once more.";

/** A quiet line. */
export class NotePart {
  constructor(text) {
    this.element = element("p", { class: "note" }, text);
  }

  update() {}
}

/** Text in Markdown, of the assistant. */
export class TextPart {
  constructor(message) {
    this.prose = element("div", { class: "prose" });
    this.note = element("p", { class: "note", hidden: true });
    const title = message.format === "refusal" ? element("p", { class: "note" }, "The model declined:") : null;
    this.element = element("div", { class: message.format === "refusal" ? "text refusal" : "text" }, title, this.prose, this.note);
    this.view = new MarkdownView(this.prose);
    this.sources = null;
  }

  update(message) {
    this.element.hidden = !message.content && message.status !== "in_progress"; // it ended before it began
    this.view.update(message.content);
    if (message.status !== "in_progress") this.view.complete();
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

/** What a person wrote: as it is; a text file that was attached, folded. */
export class UserPart {
  constructor() {
    this.element = element("div", { class: "bubble", dir: "auto" });
  }

  update(message) {
    this.text = message.content;
    const [, name, , language, text] = FILE.exec(message.content) ?? [];
    if (name) return this.#showFile(name, language, text);
    this.element.textContent = message.content;
    if (message.content.length < LONG) return;
    this.element.classList.add("long"); // such as a file
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", "A long message");
  }

  #showFile(name, language, text) {
    const view = new CodeView(language);
    const fold = element("details", { class: "fold file" }, element("summary", {}, element("span", { class: "summary" }, name)), view.element);
    fold.addEventListener("toggle", () => view.update(text), { once: true });
    this.element.replaceChildren(fold);
  }

  /** A field with its text, to be sent in its place. `send` is called with what it is then. */
  edit(send) {
    const field = element("textarea", { class: "editor prose", dir: "auto", rows: "3", "aria-label": "Your message" });
    field.value = this.text;
    const shown = this.element;
    const close = () => (form.replaceWith(shown), shown.parentElement.querySelector(".edit").focus());
    const submit = (event) => (event.preventDefault(), field.value.trim() && send(field.value.trim()));
    const choices = [element("button", { type: "submit", class: "primary" }, "Send"), button("Cancel", { text: "Cancel", class: "quiet", onclick: close })];
    const note = element("p", { class: "note" }, "It is sent in a new conversation. This one stays as it is.");
    const form = element("form", { class: "rewrite", onsubmit: submit }, field, note, element("div", { class: "choices" }, choices));
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") event.stopPropagation(), close(); // it would stop the answer
      else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
    });
    shown.replaceWith(form);
    field.focus();
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
    if (!this.element.open) return; // a fold that is closed costs nothing
    this.view.update(message.content);
    if (!isOpen) this.view.complete();
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
    this.errors = []; // what went to stderr, as [start, end]
  }

  /** A delta of it came, which ends at this place. Of a message that is complete, its metadata says the same. */
  wrote({ value, replace, metadata }, end) {
    if (replace) this.errors = [];
    if (metadata?.stream !== "stderr" || !value) return;
    if (this.errors.at(-1)?.[1] === end - value.length) this.errors.at(-1)[1] = end;
    else this.errors.push([end - value.length, end]);
  }

  update(message) {
    const places = placesOf(message);
    if (places && String(places) !== String(this.errors)) this.view.update(""); // it began before this page read it
    this.errors = places ?? this.errors;
    this.view.update(message.content, this.errors);
  }
}

/** The places in the content of a console that went to stderr, as [start, end]; null where the message does not tell. */
function placesOf({ content, metadata, status }) {
  const places = metadata?.stderr;
  if (status === "in_progress" || !Array.isArray(places)) return null;
  const characters = /[\ud800-\udfff]/.test(content) ? Array.from(content) : null; // the places count characters, not UTF-16 units
  const unit = (place) => (characters ? characters.slice(0, place).join("").length : place);
  return places.filter(Array.isArray).map(([start, end]) => [unit(start), unit(end)]);
}

/** Code, with its question, what it prints and what it draws. */
class CodePart {
  constructor(message) {
    this.view = new CodeView(message.format);
    this.state = element("span", { class: "state" });
    this.language = element("span", {}, message.format ?? "code");
    const head = element("header", {}, this.language, this.state, copyButton(() => this.view.text, "Copy the code"));
    this.decision = element("div"); // the question, then what was decided
    this.output = element("div", { class: "output" });
    const label = `Code in ${message.format ?? "an unknown language"}`;
    this.element = element("div", { class: "card", role: "group", tabindex: "-1", "aria-label": label }, head, this.view.element, this.decision, this.output);
    this.confirmation = null;
    this.outputs = []; // messages
    this.hasEnded = false;
    this.isRunning = false;
    this.isBehind = false; // whether another question is open
    this.isUnanswered = false; // whether its run ended because nobody has answered
  }

  update(message) {
    this.message = message;
    if (!this.isEdited) this.view.update(message.content.replace(/\n$/, ""));
    if (message.format) this.language.textContent = message.format;
    if (message.metadata?.edited) this.#noteEdit();
    this.showState();
  }

  ask(confirmation) {
    this.confirmation = confirmation;
    this.question = new QuestionView(confirmation, "Run");
    this.decision.replaceChildren(this.question.element);
    this.showState();
    return this.question;
  }

  settle() {
    const { status, edited, reason } = this.confirmation;
    const hadFocus = this.decision.contains(document.activeElement);
    this.decision.replaceChildren();
    if (isEdit(edited, this.message)) {
      this.isEdited = true;
      this.view.update(edited.replace(/\n$/, ""));
      this.#noteEdit();
    }
    if (status === "declined" && reason) this.decision.append(element("p", { class: "note" }, `Not run: ${reason}`));
    this.isRunning = status === "approved";
    if (hadFocus) this.element.focus({ preventScroll: true }); // the button that had it is gone
    this.showState();
  }

  #noteEdit() {
    if (!this.decision.childElementCount) this.decision.append(element("p", { class: "note" }, EDITED));
  }

  runs(line) {
    this.isRunning = line !== null;
    this.view.activeLine = line;
    this.showState();
  }

  take(part, message) {
    this.outputs.push(message);
    if (message.metadata?.action === "interrupted") return; // for the model: what it printed is shown
    this.output.append(part.element);
  }

  /** What it was declined with says more than its output. */
  #showRefusal(reason) {
    this.output.replaceChildren();
    if (reason && !this.decision.childElementCount) this.decision.append(element("p", { class: "note" }, `Not run: ${reason}`));
  }

  /** The step that it belongs to has ended, with this status. */
  end(status) {
    const hasRun = this.outputs.some((output) => output.status === "completed");
    this.wasStopped ||= this.isRunning && !hasRun && status === "cancelled";
    this.runs(null);
    this.hasEnded = true;
    this.showState();
  }

  showState() {
    const decision = this.confirmation?.status;
    const writing = this.message?.status === "in_progress";
    const refusal = refusalIn(this.outputs);
    if (refusal) this.#showRefusal(refusal.declined);
    const stopped = this.outputs.filter(({ status }) => status === "cancelled");
    let [kind, text] = ["", ""];
    if (writing && !this.hasEnded) [kind, text] = ["working", "Writing"];
    else if (decision === "pending" && !this.hasEnded) [kind, text] = ["waiting", "Waits for your yes"];
    else if (decision === "unanswered") [kind, text] = UNANSWERED;
    else if (decision === "declined" || refusal || stopped.some(({ metadata }) => metadata?.action === "not_run")) [kind, text] = ["declined", "Not run"];
    else if (this.isRunning) [kind, text] = ["working", "Running"];
    else if (stopped.length || this.wasStopped) [kind, text] = ["declined", "Stopped"];
    else if (this.isUnanswered && !this.outputs.length) [kind, text] = UNANSWERED;
    else if (this.outputs.some(({ metadata }) => metadata?.execution)) [kind, text] = ["failed", "Failed"];
    else if (decision === "approved" || this.outputs.length) [kind, text] = ["done", "Ran"];
    else if (this.isBehind && !this.hasEnded) [kind, text] = QUEUED;
    else if (this.hasEnded) [kind, text] = ["declined", "Not run"];
    this.state.className = `state ${kind}`;
    this.state.textContent = text;
  }
}

/** A tool call, folded, with its output. Where an agent answers it, what that says and does stands in between. */
class ToolPart {
  constructor() {
    this.summary = element("span", { class: "summary" });
    this.state = element("span", { class: "state" });
    this.view = new CodeView("json");
    this.output = element("div", { class: "output" });
    this.inner = element("div", { class: "inner", role: "group", hidden: true });
    const head = element("summary", { onclick: () => (this.isChosen = true) }, this.summary, this.state);
    this.fold = element("details", { class: "fold tool" }, head, this.view.element, this.inner, this.output);
    this.decision = element("div"); // the question, then what was decided
    this.element = element("div", {}, this.fold, this.decision);
    this.confirmation = null;
    this.nested = []; // messages of the agent that answers it
    this.outputs = []; // messages
    this.isChosen = false; // whether a person has opened or closed it
    this.isBehind = false; // whether another question is open
    this.isUnanswered = false; // whether its run ended because nobody has answered
  }

  update(message) {
    this.message = message;
    const isWriting = message.status === "in_progress";
    // Where a call's argument becomes a message of its own, that one is shown; it begins within the first characters.
    this.element.hidden = this.isReplaced || (isWriting && message.content.length < 80);
    if (!this.isEdited) this.#showArguments(isWriting ? message.content : pretty(message.content));
    if (message.metadata?.edited) this.#noteEdit();
    this.showState();
  }

  ask(confirmation) {
    this.confirmation = confirmation;
    this.question = new QuestionView(confirmation, "Allow", { read: pretty, fault: faultOfArguments });
    this.decision.replaceChildren(this.question.element);
    this.fold.open = true;
    this.decision.className = "card asks";
    this.showState();
    return this.question;
  }

  settle() {
    const { status, edited, reason } = this.confirmation;
    const hadFocus = this.decision.contains(document.activeElement);
    this.decision.removeAttribute("class");
    this.decision.replaceChildren();
    if (isEdit(edited, this.message)) {
      this.isEdited = true;
      this.#showArguments(pretty(edited));
      this.#noteEdit();
    }
    if (status === "declined") this.#showRefusal(reason);
    if (hadFocus) this.fold.querySelector("summary").focus({ preventScroll: true }); // the button that had it is gone
    this.showState();
  }

  #noteEdit() {
    if (!this.decision.childElementCount) this.decision.append(element("p", { class: "note" }, EDITED));
  }

  #showArguments(text) {
    this.summary.replaceChildren(element("code", {}, this.message.name ?? "tool"), element("span", { class: "brief" }, brief(text)));
    this.view.update(text);
  }

  #showRefusal(reason) {
    if (reason && !this.decision.childElementCount) this.decision.append(element("p", { class: "note" }, `Declined: ${reason}`));
  }

  runs() {}

  /** Where a message of the agent that answers the call is shown. While it works, a person sees it. */
  nest(message) {
    this.nested.push(message);
    this.inner.hidden = false;
    this.inner.setAttribute("aria-label", `What ${this.message?.name ?? "the agent"} said and did`);
    if (message.status === "in_progress" && !this.isChosen) this.fold.open = true;
    return this.inner;
  }

  /** A message of that agent was withdrawn. */
  unnest(message) {
    this.nested = this.nested.filter((one) => one !== message);
  }

  take(part, message) {
    this.outputs.push(message);
    this.output.append(part.element);
    if (this.nested.length && !this.isChosen) this.fold.open = false;
    this.showState();
  }

  end() {
    this.hasEnded = true;
    this.showState();
  }

  showState() {
    const decision = this.confirmation?.status;
    const refusal = refusalIn(this.outputs);
    if (refusal) this.#showRefusal(refusal.declined);
    let [kind, text] = this.message?.status === "in_progress" ? ["working", "Writing"] : this.isBehind && !this.nested.length ? QUEUED : ["working", this.nested.length ? "Working" : "Calling"];
    if (decision === "pending" && !this.hasEnded) [kind, text] = ["waiting", "Waits for your yes"];
    else if (decision === "unanswered") [kind, text] = UNANSWERED;
    else if (decision === "declined" || refusal) [kind, text] = ["declined", "Declined"];
    else if (this.isUnanswered && !this.outputs.length) [kind, text] = UNANSWERED;
    else if (this.outputs.length || this.hasEnded) [kind, text] = ["", ""];
    const answer = this.nested.findLast(({ type, parent_id }) => type === "message" && parent_id === this.message?.call_id)?.content;
    this.output.hidden = Boolean(answer) && this.outputs.every(({ content }) => content === answer); // it is shown above
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

/** The metadata of the output that says that a person declined; undefined if none does. */
function refusalIn(outputs) {
  return outputs.find(({ metadata }) => metadata && "declined" in metadata)?.metadata;
}

/** Whether an approval has other code, or other arguments, than the message. */
function isEdit(edited, message) {
  return edited !== null && edited !== undefined && edited !== message.content;
}

function faultOfArguments(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? "" : "Arguments are a JSON object: {\u2026}";
  } catch (error) {
    return `This is not JSON: ${error.message}`;
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
function brief(text) {
  const values = Object.values(new Message({ content: text }).arguments).map((value) => (typeof value === "string" ? value : JSON.stringify(value)));
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
  if (role === "user" && message.metadata?.output_retry) return new NotePart(AGAIN_FOR_OUTPUT);
  if (role === "user" && type === "message") return new UserPart(message);
  if (type === "message" && (!format || format === "refusal") && role === "assistant") return new TextPart(message);
  if (type === "code" && role !== "computer") return new CodePart(message);
  return new (PARTS[type] ?? FoldedPart)(message);
}
