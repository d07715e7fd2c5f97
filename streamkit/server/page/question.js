// The question whether something may run: run it, edit it first, or decline with a reason.

import { button, element } from "./dom.js";
import { inWords } from "./problems.js";

export class QuestionView {
  #confirmation;
  #error = element("p", { class: "problem", role: "alert", hidden: true });

  #read;
  #fault;

  /** `what` is what a yes does, such as "Run". `read` makes the text to edit of the subject's content; `fault` says in words
   * why an edited text cannot be sent, or "". */
  constructor(confirmation, what, { read = (text) => text, fault = () => "" } = {}) {
    this.#confirmation = confirmation;
    this.#read = read;
    this.#fault = fault;
    this.what = what;
    this.element = element("div", { class: "question", role: "group", tabindex: "-1", "aria-label": `May it ${what.toLowerCase()}?` });
    this.#choose();
  }

  get isOpen() {
    return this.#confirmation.status === "pending";
  }

  /** Approve, or decline without a reason: for the keyboard. */
  answer(isApproved) {
    return isApproved ? this.#send(() => this.#confirmation.approve()) : this.#send(() => this.#confirmation.decline());
  }

  focus() {
    this.element.querySelector("button")?.focus();
  }

  #showProblem(text) {
    this.#error.textContent = text;
    this.#error.hidden = false;
  }

  #show(...children) {
    this.#error.hidden = true;
    this.element.replaceChildren(...children, this.#error);
  }

  #choose() {
    const approve = button(this.what, { text: this.what, name: "check", class: "primary", onclick: () => this.answer(true), title: "Alt+A" });
    const edit = button("Edit", { text: "Edit", name: "pen", onclick: () => this.#edit() });
    const decline = button("Decline", { text: "Decline", onclick: () => this.#decline(), title: "Alt+X declines without a reason" });
    this.#show(element("div", { class: "choices" }, approve, this.#confirmation.editable ? edit : null, decline));
  }

  #edit() {
    const content = this.#read(this.#confirmation.subject.content);
    const attributes = { class: "editor", spellcheck: "false", autocapitalize: "off", dir: "ltr", rows: Math.min(24, content.split("\n").length + 1) };
    const area = element("textarea", { ...attributes, "aria-label": `What ${this.what === "Run" ? "runs" : "it is called with"}` });
    area.value = content;
    const before = area.value; // which has the line breaks of a text area
    const send = () => {
      const fault = this.#fault(area.value);
      if (fault) return this.#showProblem(fault);
      if (area.value.trim()) this.#send(() => this.#confirmation.approve(area.value === before ? undefined : area.value));
    };
    area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
      else if (event.key === "Escape") this.#back(event);
      else if (event.key === "Tab" && !event.shiftKey) {
        event.preventDefault();
        area.setRangeText("    ", area.selectionStart, area.selectionEnd, "end");
      }
    });
    const choices = element("div", { class: "choices" }, button(this.what, { text: `${this.what} this`, name: "check", class: "primary", onclick: send }), this.#cancelButton());
    this.#show(area, choices);
    area.focus();
    area.setSelectionRange(0, 0);
    area.scrollTop = 0;
  }

  #decline() {
    const field = element("input", { type: "text", placeholder: "Reason (optional)", "aria-label": "Reason, optional", dir: "auto", maxlength: "2000" });
    const send = () => this.#send(() => this.#confirmation.decline(field.value.trim() || undefined));
    field.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Enter") send();
      else if (event.key === "Escape") this.#back(event);
    });
    const choices = element("div", { class: "choices" }, button("Decline", { text: "Decline", class: "danger", onclick: send }), this.#cancelButton());
    this.#show(field, element("p", { class: "note" }, "With a reason the model goes on; without one the answer ends here."), choices);
    field.focus();
  }

  #cancelButton() {
    return button("Cancel", { text: "Cancel", class: "quiet", onclick: () => this.#back() });
  }

  #back(event) {
    event?.stopPropagation(); // Escape would stop the answer
    this.#choose();
    this.focus();
  }

  async #send(answer) {
    const controls = [...this.element.querySelectorAll("button, textarea, input")];
    if (this.element.contains(document.activeElement)) this.element.focus({ preventScroll: true }); // what is disabled loses it
    for (const control of controls) control.disabled = true;
    try {
      await answer();
    } catch (error) {
      // Another reader's answer comes as an event.
      this.#showProblem(inWords(error));
      for (const control of controls) control.disabled = false;
    }
  }
}
