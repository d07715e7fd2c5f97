// Making elements. Text is always text: nothing in this page is parsed as HTML.

/** An element with these properties and children, which may stand in lists. A `class`, `data-…` and `aria-…` are attributes, `on…` are listeners. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  // One by one: a call takes some 100,000 arguments and no more.
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) made.append(child);
  return made;
}

const ICONS = {
  back: "M13 8H3M7.5 3.5L3 8l4.5 4.5",
  branch: "M4 2.5v11M4 10c0-3 8-2 8-5.5M9.5 5.5L12 3l2.5 2.5",
  check: "M3 8.5l3.2 3L13 4.5",
  clip: "M10.5 4.5l-5 5a1.4 1.4 0 0 0 2 2l5-5a2.8 2.8 0 0 0-4-4l-5 5a4.2 4.2 0 0 0 6 6l4-4",
  cross: "M4 4l8 8M12 4l-8 8",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  down: "M8 3v10M3.5 8.5L8 13l4.5-4.5",
  pen: "M10.5 3l2.5 2.5L6 12.5l-3.2.7.7-3.2z",
  plus: "M8 3v10M3 8h10",
  retry: "M13 8a5 5 0 1 1-1.5-3.5M13 2v3h-3",
  up: "M8 13V3M3.5 7.5L8 3l4.5 4.5",
  trash: "M3 4.5h10M6.5 4V2.5h3V4M4.5 4.5l.6 9h5.8l.6-9",
};

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [key, value] of Object.entries({ viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" })) svg.setAttribute(key, value);
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** A button with an icon alone, or with an icon and a text. */
export function button(label, { name, text, ...properties } = {}) {
  const named = text ? {} : { "aria-label": label, title: label };
  return element("button", { type: "button", ...named, ...properties }, name ? icon(name) : null, text ?? null);
}

/** A button that copies the text that `read` gives. */
export function copyButton(read, label = "Copy") {
  const made = button(label, { name: "copy", class: "quiet", onclick: copy });
  async function copy() {
    const done = await copyText(read());
    made.replaceChildren(icon(done ? "check" : "copy"));
    made.setAttribute("aria-label", done ? "Copied" : "It could not be copied");
    setTimeout(() => {
      made.replaceChildren(icon("copy"));
      made.setAttribute("aria-label", label);
    }, 1500);
  }
  return made;
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Only pages from https or this machine have the clipboard; the selection works everywhere.
    const area = element("textarea", { class: "hidden-text", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** An address that may be a link: http, https or mailto. Null for any other, such as `javascript:`. */
export function safeUrl(text) {
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/** A link that opens a page of its own; text alone, where the address may be no link. */
export function link(address, ...children) {
  const href = safeUrl(address);
  if (!href) return element("span", {}, children);
  return element("a", { href, target: "_blank", rel: "noopener noreferrer nofollow", title: href }, children);
}
