// Mathematics in TeX.

import { element } from "./dom.js";

/** The node of a formula with its delimiters. */
export function mathematics(source) {
  return element("span", { class: "math" }, source);
}
