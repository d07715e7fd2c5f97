// The sign that an answer is worked on while nothing of it comes, with the seconds that it takes.

import { element } from "./dom.js";

export class Waiting {
  #seconds = element("span");
  #timer = 0;

  /** `log` is where the sign is shown, below everything else. */
  constructor(log) {
    this.log = log;
    this.element = element("p", { class: "worked-on", "aria-hidden": "true" }, element("span", { class: "pulse" }), "Working ", this.#seconds);
  }

  show(isShown) {
    if (isShown) this.log.append(this.element);
    else this.element.remove();
    if (isShown === Boolean(this.#timer)) return;
    clearInterval(this.#timer);
    this.#timer = isShown ? setInterval(() => this.#count(), 1000) : 0;
    this.#began = Date.now();
    this.#count();
  }
  #began = 0;

  #count() {
    const seconds = Math.round((Date.now() - this.#began) / 1000);
    this.#seconds.textContent = seconds ? `${seconds} s` : "";
  }
}
