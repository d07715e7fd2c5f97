// The conversation that the open one was branched from, and those that were branched from it.

import { button, element } from "./dom.js";

export class Branches {
  #shown = ""; // the ids and titles that are shown
  #count = 0; // of calls of `show`: an older one that takes longer shows nothing

  /** They are listed in `root`; `open(id)` is called for the one that a person chooses. */
  constructor(root, open) {
    this.root = root;
    this.open = open;
  }

  /** Show those of the conversation `current`, null for a new one. `conversations` are listed; others are requested. */
  async show(client, conversations, current) {
    const count = (this.#count += 1);
    const find = async (id) => id && (conversations.find((one) => one.id === id) ?? (await client.getConversation(id).catch(() => null)));
    const origin = await find((await find(current))?.branch_of);
    const after = conversations.filter(({ branch_of }) => current && branch_of === current).reverse();
    const links = [...(origin ? [["back", "Branched from", origin]] : []), ...after.map((one) => ["branch", "Branch", one])];
    const shown = JSON.stringify(links.map(([, , { id, title }]) => [id, title]));
    if (count !== this.#count || shown === this.#shown) return; // a button that has the focus stays
    this.#shown = shown;
    this.root.replaceChildren(...links.map((one) => this.#link(...one)));
    this.root.hidden = !links.length;
  }

  #link(name, what, { id, title }) {
    const shown = title || "Untitled";
    const made = button(what, { name, class: "quiet", onclick: () => this.open(id), title: shown, "aria-label": `${what} \u201c${shown}\u201d` });
    made.append(`${what} `, element("bdi", {}, shown));
    return made;
  }
}
