// The AG-UI client on a streamkit server: messages as they grow, interrupts, and their answers.

import { HttpAgent } from "@ag-ui/client";
import "./chat.css";

// The thread's id and the token stay in this tab.
const fragment = new URLSearchParams(location.hash.slice(1));
if (fragment.has("token")) sessionStorage.token = fragment.get("token");
sessionStorage.thread ??= crypto.randomUUID();
history.replaceState(null, "", location.pathname);

const $ = (id) => document.getElementById(id);
const headers = { Authorization: `Bearer ${sessionStorage.token}` };
const agent = new HttpAgent({ url: "/api/agui", threadId: sessionStorage.thread, headers });

/** An element with a text: nothing is parsed as HTML. */
function element(tag, text = "", properties = {}) {
  return Object.assign(document.createElement(tag), { textContent: text, ...properties });
}

function showMessages(messages) {
  $("log").replaceChildren(...messages.map(messageElement));
}

function messageElement(message) {
  const made = element("article", "", { className: message.role });
  if (message.role === "tool") made.append(element("pre", message.content));
  else if (typeof message.content === "string" && message.content) made.append(element("p", message.content));
  for (const call of message.toolCalls ?? []) made.append(callElement(call.function));
  return made;
}

function callElement({ name, arguments: given }) {
  const made = element("section", "", { className: "call" });
  let code = given;
  try {
    code = JSON.parse(given).code ?? given;
  } catch {
    // it is still being written
  }
  made.append(element("header", name), element("pre", code));
  return made;
}

/** Ask about each interrupt; the run goes on once all are answered. */
function ask(interrupts) {
  const resume = new Map();
  const answer = (id, entry, box) => {
    resume.set(id, { interruptId: id, ...entry });
    box.remove();
    if (resume.size === interrupts.length) run({ resume: [...resume.values()] });
  };
  for (const { id, message } of interrupts) {
    const box = element("div", message ?? "May this run? ");
    const yes = { status: "resolved", payload: { approved: true } };
    const no = { status: "resolved", payload: { approved: false, reason: "not now" } };
    box.append(element("button", "Run", { onclick: () => answer(id, yes, box) }), element("button", "Decline", { onclick: () => answer(id, no, box) }));
    $("questions").append(box);
  }
}

async function run(parameters = {}) {
  $("log").setAttribute("aria-busy", "true");
  $("problem").hidden = true;
  try {
    await agent.runAgent(parameters, {
      onMessagesChanged: ({ messages }) => showMessages(messages),
      onTextMessageContentEvent: ({ messages }) => showMessages(messages),
      onRunFinishedEvent: ({ event }) => {
        if (event.outcome?.type === "interrupt") ask(event.outcome.interrupts);
      },
    });
  } catch (error) {
    Object.assign($("problem"), { textContent: error.message, hidden: false });
  }
  $("log").setAttribute("aria-busy", "false");
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("text").value.trim();
  if (!text) return;
  $("text").value = "";
  $("questions").replaceChildren(); // a new message declines what was asked
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: text });
  showMessages(agent.messages);
  run();
});
