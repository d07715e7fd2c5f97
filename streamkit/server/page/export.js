// A conversation as a file of Markdown.

const NAMES = { user: "You", assistant: "Assistant", computer: "Computer", system: "System" };

/** The Markdown of messages. Reasoning is left out. */
export function markdownOf(title, messages) {
  const parts = [`# ${title.replace(/\s+/g, " ")}`];
  const shown = new Set(messages.filter(({ type }) => type === "code").map(({ call_id }) => call_id)); // calls whose code is shown
  let speaker = null;
  for (const message of messages) {
    const text = message.recipient === "assistant" || message.metadata?.output_retry || (message.type === "tool_call" && shown.has(message.call_id ?? message.id)) ? "" : partOf(message);
    if (!text) continue;
    const name = NAMES[message.role === "computer" ? "assistant" : message.role] ?? message.role;
    if (name !== speaker) parts.push(`## ${name}`);
    speaker = name;
    parts.push(text);
  }
  return `${parts.join("\n\n")}\n`;
}

function partOf({ type, role, format, name, content, call_id }) {
  switch (type) {
    case "reasoning":
      return "";
    case "message":
      return format && format !== "refusal" ? fenced(content, format) : content.trimEnd();
    case "code":
      return fenced(content, format ?? "");
    case "tool_call":
      return `Calls \`${name ?? "a tool"}\`:\n\n${fenced(content, "json")}`;
    case "console":
    case "tool_output":
      return fenced(content, role === "computer" ? "text" : "");
    case "image":
      return format?.startsWith("base64.") ? `![Picture](data:image/${format.slice(7)};base64,${content})` : `![Picture](${content})`;
    default:
      return `*${type}${name ? `: ${name}` : call_id ? "" : `: ${content.slice(0, 300)}`}*`;
  }
}

/** A text in a fence that nothing in it closes. */
export function fenced(text, language) {
  if (!text) return "";
  const longest = Math.max(2, ...(text.match(/`{3,}/g) ?? []).map((ticks) => ticks.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${text.replace(/\n?$/, "\n")}${fence}`;
}

/** Let the browser store a text as a file. */
export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/markdown" }));
  const link = Object.assign(document.createElement("a"), { href: url, download: `${name.replace(/[^\p{L}\p{N} _-]+/gu, "").trim().slice(0, 80) || "conversation"}.md` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
