// A conversation on the page: turns of messages. It is a handler of streams, and shows finished messages in the same way.

import { button, copyButton, element } from "./dom.js";
import { AGAIN_FOR_OUTPUT, NotePart, partOf, TextPart, UserPart } from "./parts.js";
import { EventHandler } from "./streamkit.js";
import { Waiting } from "./waiting.js";

const LONGEST_WAIT = 5000; // milliseconds between two drawings
const MOST_LOAD = 4; // a drawing that takes 10 ms is followed by 40 ms in which nothing is drawn

export class ConversationView extends EventHandler {
  #turn = null;
  #parts = new Map(); // by message
  #calls = new Map(); // the part that shows a call, by its call id
  #newestCode = null;
  #dirty = new Set();
  #lines = new Map(); // the line that runs, by the part that shows the code
  #questions = new Map(); // views of open questions, by confirmation
  #timer = 0;
  #cost = 0;
  #runParts = []; // of the run that goes on
  #isRead = false; // whether an answer is read
  #growing = new Set(); // messages of which something has come, and more may
  #isRunning = false; // whether code runs, which shows it by itself
  #seen = { scrollTop: 0, clientWidth: 0, clientHeight: 0 }; // of the scroller, when it was looked at or scrolled last
  #follows = true;

  /** `scroller` is what scrolls; `announce` is given what a screen reader says; `showFollowing` is called when the page begins to
   * follow what comes, and when it ceases to; `resend` with a message of the person's, what is sent with it, and its new text. */
  constructor(log, scroller, announce, showFollowing, resend) {
    super();
    this.log = log;
    this.scroller = scroller;
    this.announce = announce;
    this.showFollowing = showFollowing;
    this.resend = resend;
    this.waiting = new Waiting(log);
    scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    const sizes = new ResizeObserver(() => this.#follow()); // a picture gets its height after it was drawn
    for (const one of [log, scroller]) sizes.observe(one);
    document.addEventListener("visibilitychange", () => document.hidden || this.#draw());
  }

  clear() {
    this.log.replaceChildren();
    for (const map of [this.#parts, this.#calls, this.#dirty, this.#lines, this.#questions]) map.clear();
    [this.#turn, this.#newestCode, this.#sent, this.#runParts, this.#warnings] = [null, null, [], [], []];
    this.reads(false);
    this.follows = true;
    this.scroller.scrollTop = 0;
  }

  /** The view of the question that waits for longest; undefined if there is none. */
  get question() {
    return [...this.#questions.values()].find((view) => view.isOpen);
  }

  get isEmpty() {
    return !this.log.querySelector(".turn");
  }

  // -- messages

  /** Show messages that are complete. `notes` gives what the footers say of their runs, by the runs' ids. */
  show(messages, notes = new Map()) {
    const runs = new Map(); // of turns
    for (const message of messages) {
      if (isHidden(message)) continue;
      const part = this.#part(message);
      part.isUnanswered = notes.get(message.run_id)?.status === "requires_action";
      part.update(message);
      if (this.#turn) runs.set(this.#turn, message.run_id);
    }
    this.#endRun();
    this.#draw();
    for (const [turn, run] of runs) this.#close(turn, notes.get(run) ?? {});
  }

  /** What a person just sent. The run's own events of it take its place. Returns a function that removes it. */
  showSent(messages) {
    this.follows = true;
    this.#sent = messages.map((message) => {
      const sent = { ...message, id: "" };
      const part = this.#part(sent);
      part.update(sent);
      this.#parts.delete(sent);
      return part;
    });
    const turns = this.#sent.map((part) => part.element.parentElement);
    this.#turn = null;
    this.scrollToEnd();
    return () => turns.forEach((turn) => turn.remove());
  }
  #sent = []; // parts
  #warnings = []; // for the person, of the run that goes on

  /** Say whether an answer is read. While nothing of it comes, the page shows that it is worked on. */
  reads(isRead) {
    this.#isRead = isRead;
    this.#growing.clear();
    this.#isRunning = false;
    this.#wait();
  }

  #wait() {
    const wasShown = this.waiting.element.isConnected;
    this.waiting.show(this.#isRead && !this.#growing.size && !this.#isRunning && !this.question);
    if (wasShown && !this.waiting.element.isConnected) this.#follow(); // the page is shorter: see `on_confirmation_done`
  }

  /** Something of a message has come. */
  #grows(message) {
    if (this.#growing.has(message)) return;
    this.#growing.add(message);
    this.#wait();
  }

  on_message_created(message) {
    if (message.role === "computer") this.#grows(message); // what runs shows by itself that it does
    if (isHidden(message)) return;
    if (message.role === "user" && this.#sent.length) this.#parts.set(message, this.#sent.shift());
    this.#runParts.push(this.#part(message));
    this.#later(message);
  }

  on_message_delta(_, message) {
    this.#grows(message);
    this.#later(message);
  }

  on_message_done(message) {
    this.#growing.delete(message);
    this.#wait();
    this.#later(message);
  }

  on_warning({ code }) {
    if (code === "output-invalid") this.#answer().append(new NotePart(AGAIN_FOR_OUTPUT).element);
    if (code === "images") this.#warnings.push("The model takes no pictures: it reads only that there is one.");
  }

  on_annotation(_, message) {
    this.#later(message);
  }

  on_console_output(delta, message) {
    this.#part(message).wrote?.(delta, message.content.length);
  }

  on_active_line(line, console) {
    this.#isRunning = line !== null;
    this.#wait();
    const part = this.#calls.get(console?.call_id) ?? this.#newestCode;
    if (!part) return;
    this.#lines.set(part, line);
    this.#later();
  }

  on_confirmation(confirmation) {
    const subject = this.#parts.get(confirmation.subject);
    const part = this.#calls.get(confirmation.subject.call_id) ?? subject ?? this.#part(confirmation.subject);
    part.update(confirmation.subject);
    this.#newestCode = part;
    for (let fold = foldAround(part.element); fold; fold = foldAround(fold)) fold.open = true;
    this.#questions.set(confirmation, part.ask(confirmation));
    this.#showQueue();
    this.announce(`${confirmation.subject.type === "code" ? "Code" : "A tool"} waits for your yes. Alt+A runs it, Alt+X declines.`);
    this.#wait();
    this.#follow();
  }

  on_confirmation_done(confirmation) {
    const part = this.#calls.get(confirmation.subject.call_id) ?? this.#parts.get(confirmation.subject);
    part?.settle();
    this.#questions.delete(confirmation);
    this.#follow(); // before what comes next: the question is gone, so the page is shorter
    this.#showQueue();
    this.#wait();
    this.announce({ approved: "Approved.", declined: "Declined." }[confirmation.status] ?? "Not answered.");
  }

  /** Calls come one after the other: while one waits for a person, the others do not go on. */
  #showQueue() {
    for (const part of this.#runParts) {
      if (!part.ask) continue;
      part.isBehind = this.#questions.size > 0;
      part.showState();
    }
  }

  /** What the messages of a failed attempt have shown is taken away, and a line in its place says so. */
  on_retry({ withdrawn = [] }) {
    const places = withdrawn.map((id) => this.#withdraw(this.stream.message(id))).filter(Boolean);
    if (places.length) this.#sayAgain(places[0]);
    this.#showQueue();
    this.#wait();
    this.#follow();
  }

  /** Take a message away. Returns where it stood; null if a person has seen nothing of it. */
  #withdraw(message) {
    const part = this.#parts.get(message);
    if (!part) return null;
    const place = message.content && part.element.checkVisibility() ? part.element.parentElement : null;
    part.element.remove();
    for (const one of [this.#parts, this.#growing, this.#dirty]) one.delete(message);
    for (const one of this.#questions.keys()) if (one.subject === message) this.#questions.delete(one);
    this.#lines.delete(part);
    if (this.#newestCode === part) this.#newestCode = null;
    if (this.#calls.get(message.call_id ?? message.id) === part) this.#calls.delete(message.call_id ?? message.id);
    this.#calls.get(message.parent_id)?.unnest(message);
    this.#runParts = this.#runParts.filter((one) => one !== part);
    return place;
  }

  #sayAgain(place) {
    if (!place.lastElementChild?.matches(".again")) place.append(element("p", { class: "note again" }, "After an error, the answer began again."));
    this.announce("The answer begins again.");
  }

  on_run_step_done(step) {
    this.#draw(); // what is still to be shown of it
    for (const part of this.#runParts) part.end?.(step.status);
  }

  on_run_done({ status }) {
    if (status !== "requires_action") return;
    for (const part of this.#runParts) part.isUnanswered = true;
  }

  on_end() {
    this.#draw();
    this.#endRun();
  }

  #endRun() {
    for (const part of this.#parts.values()) part.end?.();
    this.#runParts = [];
    for (const { element } of this.#questions.values()) element.remove(); // nobody can answer them any more
    this.#questions.clear();
    this.#sent = [];
  }

  /** The part of a message, in its place. */
  #part(message) {
    const existing = this.#parts.get(message);
    if (existing) return existing;
    const part = partOf(message);
    this.#parts.set(message, part);
    const call = message.call_id ? this.#calls.get(message.call_id) : null;
    if (part instanceof NotePart) this.#place(message).append(part.element);
    else if (message.role === "user") this.#begin("user", "You").append(part.element, ...(part instanceof UserPart ? [this.#editButton(part)] : []));
    else if (part.ask) this.#addCall(message, part, call);
    else if (call && message.role === "computer") call.take(part, message);
    else if (message.type === "console" && this.#newestCode && !message.call_id) this.#newestCode.take(part, message);
    else this.#place(message).append(part.element);
    if (message.type === "code" && part.ask) this.#newestCode = part;
    return part;
  }

  #editButton(part) {
    const edit = () => {
      const message = [...this.#parts].find(([, one]) => one === part)?.[0];
      if (!message?.id) return; // it is on its way
      const beside = [...this.#parts.keys()].filter((one) => one !== message && one.role === "user" && one.run_id === message.run_id);
      part.edit((text) => this.resend(message, beside, text));
    };
    return button("Edit and send again", { name: "pen", class: "quiet edit", onclick: edit });
  }

  #addCall(message, part, before) {
    if (before) {
      before.isReplaced = true; // code, made of a call's argument, stands in the place of the call
      before.element.hidden = true;
    }
    this.#calls.set(message.call_id ?? message.id, part);
    this.#place(message).append(part.element);
  }

  /** Where a message is shown: in the answer, or in the call whose agent it is of. */
  #place(message) {
    const call = this.#calls.get(message.parent_id);
    return call?.nest ? call.nest(message) : this.#answer();
  }

  #answer() {
    return this.#turn ?? this.#begin("assistant", "Assistant");
  }

  #begin(kind, label) {
    const turn = element("article", { class: `turn ${kind}`, "aria-label": label }, element("h2", { class: "hidden-text" }, label));
    this.log.append(turn);
    this.#turn = kind === "user" ? null : turn;
    return turn;
  }

  // -- below an answer

  /** Close the newest turn with its tokens, and what a person can do with it. */
  footer(notes) {
    for (const old of this.log.querySelectorAll(".retry")) old.remove();
    this.#close(this.#answer(), notes);
    this.#warnings = [];
    this.#turn = null;
    this.#follow();
  }

  #close(turn, { usage, error, status, retry, model, seconds }) {
    turn.querySelector(":scope > footer")?.remove();
    if (error) turn.append(element("div", { class: "problem", role: "alert" }, element("strong", {}, "This answer failed. "), error));
    const texts = () => [...this.#parts].filter(([, part]) => part instanceof TextPart && part.element.parentElement === turn).map(([message]) => message.content).join("\n\n");
    const tokens = usage?.total_tokens ? `${(usage.input_tokens ?? 0).toLocaleString()} tokens in, ${(usage.output_tokens ?? 0).toLocaleString()} out` : null;
    const words = { cancelled: "Stopped", incomplete: "Cut short", requires_action: "Not answered" }[status];
    for (const warning of this.#warnings) turn.append(element("p", { class: "note" }, warning));
    const notes = [words, model, seconds >= 0.05 ? duration(seconds) : null, tokens].filter(Boolean).join(" \u00b7 ");
    turn.append(element("footer", {}, turn.querySelector(":scope > .text:not([hidden])") ? copyButton(texts, "Copy the answer") : null, retry, element("span", { class: "note" }, notes)));
  }

  // -- drawing

  #later(message) {
    if (message) this.#dirty.add(message);
    if (!this.#timer) this.#timer = setTimeout(() => requestAnimationFrame(() => this.#draw()), Math.min(LONGEST_WAIT, this.#cost * MOST_LOAD));
  }

  #draw() {
    const start = performance.now();
    clearTimeout(this.#timer);
    this.#timer = 0;
    if (!this.#dirty.size && !this.#lines.size) return;
    for (const message of this.#dirty) {
      this.#parts.get(message)?.update(message);
      this.#calls.get(message.call_id)?.showState(); // its outputs say how it ended
    }
    for (const [part, line] of this.#lines) part.runs(line);
    this.#dirty.clear();
    this.#lines.clear();
    this.#follow();
    this.#cost = performance.now() - start;
  }

  /** Whoever scrolls up stays there, however little it is; at the end, the page follows what comes. A page that got another
   * size was not scrolled by anybody. */
  #scrolled() {
    const { scrollTop, clientWidth, clientHeight, scrollHeight } = this.scroller;
    const before = this.#seen;
    this.#seen = { scrollTop, clientWidth, clientHeight };
    const left = scrollHeight - clientHeight - scrollTop;
    if (left <= 1 || (left <= 40 && scrollTop > before.scrollTop)) this.follows = true;
    else if (scrollTop < before.scrollTop && clientWidth === before.clientWidth && clientHeight === before.clientHeight) this.follows = false;
  }

  /** Whether the page follows what comes. */
  get follows() {
    return this.#follows;
  }
  set follows(value) {
    this.#follows = value;
    this.scroller.classList.toggle("follows", value);
    this.showFollowing(value);
  }

  #follow() {
    this.#scrolled(); // the event of a person's scrolling may be yet to come
    if (this.follows && !this.isEmpty) this.scrollToEnd();
  }

  scrollToEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.#seen.scrollTop = this.scroller.scrollTop;
  }
}

/** Whether a message is not for people. */
function isHidden(message) {
  return message.recipient === "assistant";
}

/** The fold that an element is in: that of a call whose agent asks. */
function foldAround(element) {
  return element.parentElement?.closest("details") ?? null;
}

function duration(seconds) {
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}
