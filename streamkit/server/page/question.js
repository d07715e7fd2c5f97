// The question whether something may run: run it, edit it first, or decline with a reason.

import { button, element } from "./dom.js";

export class QuestionView {
  #confirmation;
  #error = element("p", { class: "problem", role: "alert", hidden: true });

  /** `what` is what a yes does, such as "Run". */
  constructor(confirmation, what) {
    this.#confirmation = confirmation;
    this.what = what;
    this.element = element("div", { class: "question", role: "group", "aria-label": `May it ${what.toLowerCase()}?` });
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
    const before = this.#confirmation.subject.content;
    const area = element("textarea", { class: "editor", spellcheck: "false", autocapitalize: "off", "aria-label": "What runs", rows: Math.min(24, before.split("\n").length + 1) });
    area.value = before;
    const send = () => {
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
    const choices = element("div", { class: "choices" }, button(this.what, { text: `${this.what} this`, name: "check", class: "primary", onclick: send }), this.#backButton());
    this.#show(area, choices);
    area.focus();
    area.setSelectionRange(0, 0);
  }

  #decline() {
    const field = element("input", { type: "text", placeholder: "Why not? With a reason the model goes on", "aria-label": "Reason", maxlength: "2000" });
    const send = () => this.#send(() => this.#confirmation.decline(field.value.trim() || undefined));
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") send();
      else if (event.key === "Escape") this.#back(event);
    });
    const choices = element("div", { class: "choices" }, button("Decline", { text: "Decline", class: "danger", onclick: send }), this.#backButton());
    this.#show(field, choices);
    field.focus();
  }

  #backButton() {
    return button("Back", { text: "Back", class: "quiet", onclick: () => this.#back() });
  }

  #back(event) {
    event?.stopPropagation(); // Escape would stop the answer
    this.#choose();
    this.focus();
  }

  async #send(answer) {
    const controls = [...this.element.querySelectorAll("button, textarea, input")];
    for (const control of controls) control.disabled = true;
    try {
      await answer();
    } catch (error) {
      // Another reader's answer comes as an event.
      this.#error.textContent = error.code === "already-answered" ? "It was answered somewhere else." : error.message;
      this.#error.hidden = false;
      for (const control of controls) control.disabled = false;
    }
  }
}
