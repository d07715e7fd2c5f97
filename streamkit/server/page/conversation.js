// A conversation on the page: turns of messages. It is a handler of streams, and shows finished messages in the same way.

import { copyButton, element } from "./dom.js";
import { partOf } from "./parts.js";
import { EventHandler } from "./streamkit.js";

const MOST_LOAD = 4; // a drawing that takes 10 ms is followed by 40 ms in which nothing is drawn

export class ConversationView extends EventHandler {
  #turn = null;
  #parts = new Map(); // by message
  #calls = new Map(); // the part that shows a call, by its call id
  #newestCode = null;
  #dirty = new Set();
  #timer = 0;
  #cost = 0;
  #runParts = []; // of the run that goes on
  #top = 0;

  /** `scroller` is what scrolls; `announce` is given what a screen reader says. */
  constructor(log, scroller, announce) {
    super();
    this.log = log;
    this.scroller = scroller;
    this.announce = announce;
    this.question = null;
    this.follows = true;
    scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    new ResizeObserver(() => this.#follow()).observe(log); // a picture gets its height after it was drawn
    document.addEventListener("visibilitychange", () => document.hidden || this.#draw());
  }

  clear() {
    this.log.replaceChildren();
    for (const map of [this.#parts, this.#calls, this.#dirty]) map.clear();
    [this.#turn, this.#newestCode, this.question, this.#runParts] = [null, null, null, []];
    this.follows = true;
  }

  get isEmpty() {
    return !this.log.childElementCount;
  }

  // -- messages

  /** Show messages that are complete. */
  show(messages) {
    for (const message of messages) this.#part(message).update(message);
    this.#endRun();
    this.#draw();
  }

  /** What a person just sent. The run's own event of it takes its place. */
  showSent(text) {
    this.follows = true;
    this.#sent = this.#part({ id: "", role: "user", type: "message", content: text });
    this.#sent.update({ content: text });
    this.#turn = null;
    this.scrollToEnd();
  }
  #sent = null;

  on_message_created(message) {
    if (message.role === "user" && this.#sent) {
      this.#parts.set(message, this.#sent);
      this.#sent = null;
    }
    this.#runParts.push(this.#part(message));
    this.#later(message);
  }

  on_message_delta(_, message) {
    this.#later(message);
  }

  on_message_done(message) {
    this.#later(message);
  }

  on_annotation(_, message) {
    this.#later(message);
  }

  on_active_line(line, console) {
    const part = this.#calls.get(console?.call_id) ?? this.#newestCode;
    part?.runs(line);
  }

  on_confirmation(confirmation) {
    const subject = this.#parts.get(confirmation.subject);
    const part = this.#calls.get(confirmation.subject.call_id) ?? subject ?? this.#part(confirmation.subject);
    part.update(confirmation.subject);
    this.#newestCode = part;
    this.question = part.ask(confirmation);
    this.announce(`${confirmation.subject.type === "code" ? "Code" : "A tool"} waits for your yes. Alt+A runs it, Alt+X declines.`);
    this.#follow();
  }

  on_confirmation_done(confirmation) {
    const part = this.#calls.get(confirmation.subject.call_id) ?? this.#parts.get(confirmation.subject);
    part?.settle();
    this.question = null;
    this.announce(confirmation.status === "approved" ? "Approved." : "Declined.");
  }

  on_run_step_done() {
    for (const part of this.#runParts) part.end?.();
  }

  on_end() {
    this.#draw();
    this.#endRun();
  }

  #endRun() {
    for (const part of this.#parts.values()) part.end?.();
    this.#runParts = [];
    this.question = null;
    this.#sent = null;
  }

  /** The part of a message, in its place. */
  #part(message) {
    const known = this.#parts.get(message);
    if (known) return known;
    const part = partOf(message);
    this.#parts.set(message, part);
    const call = message.call_id ? this.#calls.get(message.call_id) : null;
    if (message.role === "user") this.#begin("user", "You").append(part.element);
    else if (part.ask) this.#addCall(message, part, call);
    else if (call && message.role === "computer") call.take(part);
    else if (message.type === "console" && this.#newestCode && !message.call_id) this.#newestCode.take(part);
    else this.#answer().append(part.element);
    if (message.type === "code" && part.ask) this.#newestCode = part;
    return part;
  }

  #addCall(message, part, before) {
    if (before) {
      before.isReplaced = true; // code, made of a call's argument, stands in the place of the call
      before.element.hidden = true;
    }
    this.#calls.set(message.call_id ?? message.id, part);
    this.#answer().append(part.element);
  }

  #answer() {
    return this.#turn ?? this.#begin("assistant", "Assistant");
  }

  #begin(kind, label) {
    const turn = element("article", { class: `turn ${kind}`, "aria-label": label });
    this.log.append(turn);
    this.#turn = kind === "user" ? null : turn;
    return turn;
  }

  // -- below an answer

  /** Close the newest turn with its tokens, and what a person can do with it. */
  footer({ usage, error, status, retry }) {
    for (const old of this.log.querySelectorAll(".retry")) old.remove();
    const turn = this.#answer();
    turn.querySelector(":scope > footer")?.remove();
    if (error) turn.append(element("div", { class: "problem", role: "alert" }, element("strong", {}, "This answer failed. "), error));
    const texts = () => [...turn.querySelectorAll(".text > .prose")].map((prose) => prose.innerText).join("\n\n");
    const tokens = usage?.total_tokens ? `${(usage.input_tokens ?? 0).toLocaleString()} tokens in, ${(usage.output_tokens ?? 0).toLocaleString()} out` : null;
    const words = { cancelled: "Stopped", incomplete: "Cut short" }[status];
    const notes = [words, tokens].filter(Boolean).join(" \u00b7 ");
    turn.append(element("footer", {}, turn.querySelector(".text") ? copyButton(texts, "Copy the answer") : null, retry, element("span", { class: "note" }, notes)));
    this.#turn = null;
    this.#follow();
  }

  // -- drawing

  #later(message) {
    this.#dirty.add(message);
    if (!this.#timer) this.#timer = setTimeout(() => requestAnimationFrame(() => this.#draw()), Math.min(500, this.#cost * MOST_LOAD));
  }

  #draw() {
    const start = performance.now();
    clearTimeout(this.#timer);
    this.#timer = 0;
    for (const message of this.#dirty) this.#parts.get(message)?.update(message);
    if (!this.#dirty.size) return;
    this.#dirty.clear();
    this.#follow();
    this.#cost = performance.now() - start;
  }

  /** Whoever scrolls up stays there; at the end, the page follows what comes. */
  #scrolled() {
    const { scrollTop, clientHeight, scrollHeight } = this.scroller;
    if (scrollTop + clientHeight >= scrollHeight - 40) this.follows = true;
    else if (scrollTop < this.#top - 2) this.follows = false;
    this.#top = scrollTop;
  }

  #follow() {
    if (this.follows) this.scrollToEnd();
  }

  scrollToEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }
}
