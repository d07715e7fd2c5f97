// The list of conversations at the side. What a person does in it goes on while the list changes.

import { button, element } from "./dom.js";

export class ConversationList {
  #items = new Map(); // by conversation

  /** `open(id)`, `remove(id)` and `rename(id, title)` are called for what a person does; `after` gets the focus where nothing is left to have it. */
  constructor(root, { open, remove, rename, after }) {
    this.root = root;
    this.open = open;
    this.remove = remove;
    this.rename = rename;
    this.after = after;
  }

  /** Show these conversations; `current` is the id of the one that is open, null if it is a new one. */
  update(conversations, current) {
    const focused = document.activeElement;
    const ids = new Set(conversations.map(({ id }) => id));
    for (const [id, item] of this.#items) if (!ids.has(id)) this.#drop(id, item);
    for (const [place, { id, title, run }] of conversations.entries()) {
      if (!this.#items.has(id)) this.#items.set(id, new Item(id, this));
      const item = this.#items.get(id);
      item.show(title || "Untitled", Boolean(run), id === current);
      if (this.root.children[place] !== item.element) this.root.insertBefore(item.element, this.root.children[place] ?? null);
    }
    if (focused !== document.activeElement && this.root.contains(focused)) focused.focus({ preventScroll: true }); // it was moved
  }

  #drop(id, { element }) {
    this.#items.delete(id);
    const beside = (element.nextElementSibling ?? element.previousElementSibling)?.querySelector(".open") ?? this.after;
    const hadFocus = element.contains(document.activeElement);
    element.remove();
    if (hadFocus) beside.focus();
  }
}

/** The newest conversations of the server, `most` or a few more of them, and whether there are older ones. */
export async function conversationsUpTo(client, most) {
  const conversations = [];
  let next = "";
  while (next !== undefined && conversations.length < most) {
    const page = await client.listConversations({ limit: 100, ...(next && { before: next }) });
    conversations.push(...page.conversations);
    next = page.next;
  }
  return { conversations, more: next !== undefined };
}

class Item {
  constructor(id, list) {
    this.name = element("span", { dir: "auto" });
    this.running = element("span", { class: "hidden-text" }, "An answer goes on: ");
    this.opener = element("button", { type: "button", class: "open", onclick: () => list.open(id) }, this.running, this.name);
    this.trash = button("Delete", { name: "trash", class: "quiet", onclick: () => this.#askFirst(() => list.remove(id)) });
    this.pen = button("Rename", { name: "pen", class: "quiet", onclick: () => this.#write(list, id) });
    this.element = element("li", { onkeydown: (event) => this.#key(event) }, this.opener, this.pen, this.trash);
  }

  show(title, isRunning, isCurrent) {
    this.title = title;
    this.opener.title = this.name.textContent = title;
    for (const name of ["title", "aria-label"]) this.pen.setAttribute(name, `Rename \u201c${title}\u201d`);
    for (const name of ["title", "aria-label"]) this.trash.setAttribute(name, `Delete \u201c${title}\u201d`);
    this.running.hidden = !isRunning;
    this.element.classList.toggle("running", isRunning);
    if (isCurrent) this.opener.setAttribute("aria-current", "page");
    else this.opener.removeAttribute("aria-current");
  }

  #askFirst(remove) {
    const yes = button("Delete", { text: "Delete", class: "danger", onclick: remove });
    this.#ask(element("p", { dir: "auto" }, `Delete \u201c${this.title}\u201d?`), yes, this.trash);
    yes.setAttribute("aria-label", `Delete \u201c${this.title}\u201d for good`);
    yes.focus();
  }

  #write(list, id) {
    const field = element("input", { type: "text", maxlength: "200", dir: "auto", "aria-label": "Title" });
    field.value = this.title;
    const save = () => {
      const title = field.value.trim();
      this.#back();
      if (title && title !== this.title) list.rename(id, title);
    };
    field.addEventListener("keydown", (event) => event.key === "Enter" && !event.isComposing && save());
    this.#ask(field, button("Save", { text: "Save", class: "primary", onclick: save }), this.pen);
    field.select();
  }

  /** Show a question in its place; `asker` is the button that gets the focus back. */
  #ask(question, yes, asker) {
    this.asker = asker;
    this.element.classList.add("asks");
    const no = button("Cancel", { text: "Cancel", class: "quiet", onclick: () => this.#back() });
    this.element.replaceChildren(question, element("div", { class: "choices" }, yes, no));
  }

  #back() {
    this.element.classList.remove("asks");
    this.element.replaceChildren(this.opener, this.pen, this.trash);
    this.asker.focus();
    this.asker = null;
  }

  #key(event) {
    if (event.key !== "Escape" || !this.asker) return;
    event.stopPropagation(); // it would stop the answer
    this.#back();
  }
}
