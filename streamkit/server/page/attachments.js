// Pictures and text files that are sent with a message: chosen, dropped or pasted.

import { button, element } from "./dom.js";
import { fenced } from "./export.js";

const PICTURES = { "image/png": "base64.png", "image/jpeg": "base64.jpeg", "image/gif": "base64.gif", "image/webp": "base64.webp" };
const LONGEST = 3 * 2 ** 20; // bytes of a file: in base64 it is a third longer, and a server takes 4 MiB

export class Attachments {
  #attached = []; // [the name of a file, its message]

  /** They are listed in `root`; `refuse` is called with the reason why a file is not taken, in words. */
  constructor(root, refuse) {
    this.root = root;
    this.refuse = refuse;
  }

  /** Read files, and add those that are pictures or text. */
  async add(files) {
    for (const file of files) {
      try {
        const name = file.name || "picture";
        this.#attached.push([name, await messageOf(file, name)]);
      } catch (error) {
        this.refuse(error.message);
      }
    }
    this.#show();
  }

  /** The messages, which are then attached no more. */
  take() {
    const taken = this.#attached.map(([, message]) => message);
    this.#attached = [];
    this.#show();
    return taken;
  }

  #show() {
    this.root.hidden = !this.#attached.length;
    this.root.replaceChildren(...this.#attached.map((one) => this.#item(one)));
  }

  #item(attached) {
    const [name] = attached;
    const remove = () => {
      this.#attached = this.#attached.filter((one) => one !== attached);
      this.#show();
    };
    return element("span", { class: "chip" }, name, button(`Remove ${name}`, { name: "cross", class: "quiet", onclick: remove }));
  }
}

/** The message of a file. Throws, in words, for one that is neither a picture nor text. */
async function messageOf(file, name) {
  if (file.size > LONGEST) throw new Error(`${name} is too large: ${LONGEST / 2 ** 20} MB is the most.`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (file.type in PICTURES) return { role: "user", type: "image", format: PICTURES[file.type], content: base64(bytes) };
  const text = textOf(bytes);
  if (text === null) throw new Error(`${name} is neither a text nor a picture (PNG, JPEG, GIF, WebP).`);
  return { role: "user", type: "message", content: `${name}:\n\n${fenced(text, /\.(\w+)$/.exec(name)?.[1] ?? "")}` };
}

function textOf(bytes) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}

function base64(bytes) {
  const parts = [];
  for (let at = 0; at < bytes.length; at += 8190) parts.push(btoa(String.fromCharCode(...bytes.subarray(at, at + 8190)))); // a multiple of 3
  return parts.join("");
}
