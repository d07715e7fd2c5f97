// Mathematics in TeX, as MathML, which browsers set by themselves. A formula with anything else than what is below stays as written.

import { element } from "./dom.js";

const LONGEST = 5000; // characters
const DEEPEST = 40; // groups inside of each other
const DELIMITERS = [["\\(", "\\)"], ["\\[", "\\]"], ["$$", "$$"], ["$", "$"]];
const TOKENS = /\\([a-zA-Z]+\*?|[^])|[ \t\n]+|\d+(?:\.\d+)?|[^]/gu;

/** By command, its character: of each word the first character is what the command behind it shows. */
const table = (text) => Object.fromEntries(text.split(" ").map((pair) => [pair.slice(1), pair[0]]));
const LETTERS = table(
  "αalpha βbeta γgamma δdelta ϵepsilon εvarepsilon ζzeta ηeta θtheta ϑvartheta ιiota κkappa λlambda μmu νnu ξxi πpi ρrho σsigma τtau υupsilon " +
    "ϕphi φvarphi χchi ψpsi ωomega ΓGamma ΔDelta ΘTheta ΛLambda ΞXi ΠPi ΣSigma ΥUpsilon ΦPhi ΨPsi ΩOmega ∞infty ℓell ℏhbar ∅emptyset ∂partial ∇nabla",
);
const OPERATORS = table(
  "±pm ∓mp ×times ÷div ⋅cdot ∗ast ∘circ ≤le ≤leq ≥ge ≥geq ≠ne ≠neq ≈approx ≡equiv ∼sim ≃simeq ≅cong ∝propto ≪ll ≫gg ∈in ∉notin ⊂subset ⊆subseteq " +
    "⊃supset ⊇supseteq ∪cup ∩cap ∖setminus ∧land ∧wedge ∨lor ∨vee ¬neg ¬lnot ∀forall ∃exists →to →rightarrow ←leftarrow ↔leftrightarrow ⇒Rightarrow " +
    "⇐Leftarrow ⇔Leftrightarrow ⇒implies ⇔iff ↦mapsto …ldots …dots ⋯cdots ⋮vdots ⋱ddots ⊕oplus ⊗otimes ⊥perp ∥parallel ∣mid |vert ‖Vert ⟨langle " +
    "⟩rangle ⌊lfloor ⌋rfloor ⌈lceil ⌉rceil {{ }} %% ## && __ $$ ‖| ∑sum ∏prod ∐coprod ⋃bigcup ⋂bigcap ∫int ∬iint ∮oint",
);
const FUNCTIONS = new Set("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh exp log ln lg det dim ker deg gcd arg Pr lim max min sup inf limsup liminf argmax argmin".split(" "));
const LIMITS = new Set("lim max min sup inf limsup liminf argmax argmin sum prod coprod bigcup bigcap".split(" "));
const ACCENTS = table("^hat ~tilde ¯bar ¯overline →vec ˙dot ¨ddot _underline ^widehat ~widetilde");
const SPACES = { ",": 0.17, ":": 0.22, ";": 0.28, "!": -0.17, " ": 0.25, quad: 1, qquad: 2 };
const FENCES = { matrix: ["", ""], pmatrix: ["(", ")"], bmatrix: ["[", "]"], vmatrix: ["|", "|"], cases: ["{", ""], aligned: ["", ""], align: ["", ""], "align*": ["", ""], array: ["", ""] };
const ALPHABETS = { mathbf: [0x1d400, 0x1d41a], mathbb: [0x1d538, 0x1d552], mathcal: [0x1d49c, 0x1d4b6] };
const IGNORED = new Set("displaystyle limits nolimits big Big bigl bigr Bigl Bigr".split(" "));
// Letters that Unicode had before these alphabets, where there is nothing in their places.
const OLDER = { 0x1d53a: "ℂ", 0x1d53f: "ℍ", 0x1d545: "ℕ", 0x1d547: "ℙ", 0x1d548: "ℚ", 0x1d549: "ℝ", 0x1d551: "ℤ", 0x1d49d: "ℬ", 0x1d4a0: "ℰ", 0x1d4a1: "ℱ", 0x1d4a3: "ℋ", 0x1d4a4: "ℐ", 0x1d4a7: "ℒ", 0x1d4a8: "ℳ", 0x1d4ad: "ℛ" };

/** The node of a formula with its delimiters. */
export function mathematics(source) {
  const [opening, closing] = DELIMITERS.find(([one]) => source.startsWith(one));
  const text = source.replace(/[ \t.,;]*$/, "");
  const inner = text.slice(opening.length, -closing.length);
  const isWhole = text.endsWith(closing) && inner.trim() && source.length <= LONGEST;
  const isBlock = opening === "\\[" || opening === "$$";
  const nodes = isWhole ? new Formula(inner, isBlock).nodes() : null;
  if (!nodes) return element("span", { class: "math" }, source);
  const after = source.slice(text.length); // its full stop, in a block
  return mathml("math", { display: isBlock ? "block" : null, alttext: source }, mathml("mrow", {}, nodes, after && mathml("mtext", {}, after)));
}

function mathml(tag, properties, ...children) {
  const made = document.createElementNS("http://www.w3.org/1998/Math/MathML", tag);
  for (const [name, value] of Object.entries(properties)) if (value !== null) made.setAttribute(name, value);
  made.append(...children.flat());
  return made;
}

const operator = (text, properties = {}) => mathml("mo", properties, text);
const row = (nodes) => (nodes.length === 1 ? nodes[0] : mathml("mrow", {}, nodes));

class Unknown extends Error {}

/** Reads one formula. */
class Formula {
  #tokens;
  #at = 0;
  #depth = 0;

  constructor(text, isBlock) {
    this.#tokens = [...text.matchAll(TOKENS)].map(([token]) => token);
    this.isBlock = isBlock;
  }

  /** Its nodes; null for one that is written in another way. */
  nodes() {
    try {
      const rows = this.#rows(() => this.#at >= this.#tokens.length);
      return rows.length === 1 && rows[0].length === 1 ? rows[0][0] : [tableOf(rows)];
    } catch (error) {
      if (error instanceof Unknown) return null;
      throw error;
    }
  }

  get #token() {
    return this.#tokens[this.#at];
  }

  #take() {
    if (this.#at >= this.#tokens.length) throw new Unknown();
    return this.#tokens[this.#at++];
  }

  #skip() {
    while (/^\s/.test(this.#token ?? "")) this.#at += 1;
  }

  /** Rows of cells, up to where `isOver`. */
  #rows(isOver) {
    const rows = [[[]]];
    while (!isOver()) {
      const token = this.#token;
      if (token === undefined) throw new Unknown();
      if (token === "&") rows.at(-1).push([]);
      else if (token === "\\\\") rows.push([[]]);
      else {
        this.#term(rows.at(-1).at(-1));
        continue;
      }
      this.#at += 1;
    }
    if (rows.length > 1 && rows.at(-1).every((cell) => !cell.length)) rows.pop();
    return rows;
  }

  /** Add the next term, with its indices. */
  #term(nodes) {
    this.#skip();
    if (this.#token === undefined) return;
    if (this.#token === "^" || this.#token === "_" || this.#token === "'") return nodes.push(this.#indexed(nodes.pop() ?? mathml("mrow", {}), ""));
    const name = this.#token.slice(1);
    const base = this.#atom();
    if (base) nodes.push(this.#indexed(base, name));
  }

  #indexed(base, name) {
    let [under, over, primes] = [null, null, ""];
    for (this.#skip(); ; this.#skip()) {
      if (this.#token === "'") primes += "\u2032", (this.#at += 1);
      else if (this.#token === "^" && !over) (this.#at += 1), (over = this.#argument());
      else if (this.#token === "_" && !under) (this.#at += 1), (under = this.#argument());
      else if (IGNORED.has(this.#token?.slice(1))) this.#at += 1;
      else break;
    }
    if (primes) over = over ? mathml("mrow", {}, operator(primes), over) : operator(primes);
    const [both, below, above] = LIMITS.has(name) && this.isBlock ? ["munderover", "munder", "mover"] : ["msubsup", "msub", "msup"];
    if (under && over) return mathml(both, {}, base, under, over);
    if (under) return mathml(below, {}, base, under);
    return over ? mathml(above, {}, base, over) : base;
  }

  /** The node of an argument: of a group, or of one token. */
  #argument() {
    this.#skip();
    const node = this.#atom();
    if (!node) throw new Unknown();
    return node;
  }

  /** The nodes up to a token, which is passed. */
  #upTo(end) {
    if ((this.#depth += 1) > DEEPEST) throw new Unknown();
    const nodes = [];
    for (this.#skip(); this.#token !== end; this.#skip()) {
      if ([undefined, "}", "&", "\\\\", "\\right"].includes(this.#token)) throw new Unknown();
      this.#term(nodes);
    }
    this.#at += 1;
    this.#depth -= 1;
    return nodes;
  }

  /** The text in the braces that follow. */
  #text() {
    this.#skip();
    if (this.#take() !== "{") throw new Unknown();
    let text = "";
    for (let token; (token = this.#take()) !== "}"; text += token) if (token === "{" || (token[0] === "\\" && /\w/.test(token[1]))) throw new Unknown();
    return text.replace(/\\(.)/g, "$1");
  }

  #atom() {
    const token = this.#take();
    if (token === "{") return row(this.#upTo("}"));
    if (token === "}" || token === "&" || token === "#" || token === "%" || token === "$") throw new Unknown();
    if (token[0] === "\\") return this.#command(token.slice(1));
    if (/^\d/.test(token)) return mathml("mn", {}, token);
    if (/^\p{L}/u.test(token)) return mathml("mi", {}, token);
    return operator(token === "-" ? "\u2212" : token === "*" ? "\u2217" : token, "()[]|".includes(token) ? { stretchy: "false" } : {});
  }

  #command(name) {
    const of = (entries) => Object.hasOwn(entries, name);
    if (of(LETTERS)) return mathml("mi", /^[A-Z]/.test(name) ? { mathvariant: "normal" } : {}, LETTERS[name]);
    if (of(OPERATORS)) return operator(OPERATORS[name], "{}|".includes(name) ? { stretchy: "false" } : {});
    if (FUNCTIONS.has(name)) return mathml("mi", {}, name);
    if (of(SPACES)) return mathml("mspace", { width: `${SPACES[name]}em` });
    if (of(ACCENTS)) return mathml(name === "underline" ? "munder" : "mover", { accent: "true" }, this.#argument(), operator(ACCENTS[name], { stretchy: String(/over|under|wide/.test(name)) }));
    if (IGNORED.has(name)) return null;
    if (of(ALPHABETS)) return mathml("mi", {}, [...this.#text()].map((letter) => inAlphabet(letter, ALPHABETS[name])).join(""));
    return this.#structure(name);
  }

  #structure(name) {
    switch (name.replace(/^[dt](?=frac$)/, "")) {
      case "frac":
        return mathml("mfrac", {}, this.#argument(), this.#argument());
      case "sqrt":
        return this.#root();
      case "text":
      case "mathrm":
        return mathml("mtext", {}, this.#text().replace(/^ | $/g, "\u00a0"));
      case "left":
        return this.#fenced();
      case "begin":
        return this.#environment();
      default:
        throw new Unknown();
    }
  }

  #root() {
    this.#skip();
    if (this.#token !== "[") return mathml("msqrt", {}, this.#argument());
    this.#at += 1;
    const index = row(this.#upTo("]"));
    return mathml("mroot", {}, this.#argument(), index);
  }

  #fence() {
    this.#skip();
    const token = this.#take();
    return token === "." ? "" : token[0] === "\\" ? OPERATORS[token.slice(1)] ?? "" : token;
  }

  #fenced() {
    const begin = this.#fence();
    const nodes = this.#upTo("\\right");
    return fenced(begin, nodes, this.#fence());
  }

  #environment() {
    if ((this.#depth += 1) > DEEPEST) throw new Unknown();
    const name = this.#text();
    if (!Object.hasOwn(FENCES, name)) throw new Unknown();
    if (name === "array") this.#text();
    const rows = this.#rows(() => (this.#skip(), this.#token === "\\end"));
    this.#at += 1;
    if (this.#text() !== name) throw new Unknown();
    this.#depth -= 1;
    return fenced(FENCES[name][0], [tableOf(rows)], FENCES[name][1]);
  }
}

function fenced(begin, nodes, end) {
  const fence = (text) => (text ? [operator(text, { fence: "true" })] : []);
  return row([...fence(begin), ...nodes, ...fence(end)]);
}

function tableOf(rows) {
  return mathml("mtable", {}, rows.map((one) => mathml("mtr", {}, one.map((cell) => mathml("mtd", {}, cell)))));
}

function inAlphabet(letter, [upper, lower]) {
  const code = letter.codePointAt(0);
  if (!/^[A-Za-z]$/.test(letter)) return letter;
  const found = code < 97 ? upper + code - 65 : lower + code - 97;
  return OLDER[found] ?? String.fromCodePoint(found);
}
