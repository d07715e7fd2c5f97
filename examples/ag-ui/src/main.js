// The AG-UI client on a streamkit server: messages as they grow, interrupts and their answers, Stop, and a reload.

import { HttpAgent } from "@ag-ui/client";
import "./chat.css";

// The thread's id, that of its newest run and the token stay in this tab, so that a reload goes on.
const fragment = new URLSearchParams(location.hash.slice(1));
if (fragment.has("token")) sessionStorage.token = fragment.get("token");
sessionStorage.thread ??= crypto.randomUUID();
history.replaceState(null, "", location.pathname);

const $ = (id) => document.getElementById(id);
const headers = { Authorization: `Bearer ${sessionStorage.token}` };
const { thread } = sessionStorage;
const agent = new HttpAgent({ url: "/api/agui", threadId: thread, headers });
let open = []; // the interrupts that nobody has answered

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
  const resume = [];
  const answer = (id, entry, box) => {
    resume.push({ interruptId: id, ...entry });
    box.remove();
    if (resume.length === interrupts.length) run({ resume });
  };
  for (const { id, message } of (open = interrupts)) {
    const box = element("div", `${message ?? "May this run?"} `);
    const yes = { status: "resolved", payload: { approved: true } };
    const no = { status: "resolved", payload: { approved: false, reason: "not now" } };
    box.append(element("button", "Run", { onclick: () => answer(id, yes, box) }), element("button", "Decline", { onclick: () => answer(id, no, box) }));
    $("questions").append(box);
  }
}

function setRunning(isRunning) {
  $("log").setAttribute("aria-busy", isRunning);
  $("send").hidden = isRunning;
  $("stop").hidden = !isRunning;
}

function fail(message) {
  Object.assign($("problem"), { textContent: message, hidden: false });
}

async function run(parameters) {
  open = [];
  $("questions").replaceChildren();
  $("problem").hidden = true;
  setRunning(true);
  try {
    await agent.runAgent(parameters, {
      onMessagesChanged: ({ messages }) => showMessages(messages),
      onTextMessageContentEvent: ({ messages }) => showMessages(messages),
      onRunErrorEvent: ({ event }) => fail(event.message),
      onRunFinishedEvent: ({ event }) => {
        if (event.outcome?.type === "interrupt") ask(event.outcome.interrupts);
      },
    });
  } catch (error) {
    fail(error.message);
  }
  setRunning(false);
}

$("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const content = $("text").value.trim();
  if (!content || $("send").hidden) return;
  $("text").value = "";
  // A run begins only where nothing is open: what was asked is not answered any more.
  if (open.length) await run({ resume: open.map(({ id }) => ({ interruptId: id, status: "cancelled" })) });
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content });
  showMessages(agent.messages);
  sessionStorage.run = crypto.randomUUID();
  run({ runId: sessionStorage.run });
});

// To abort the request would only leave the run, which goes on.
$("stop").addEventListener("click", () => fetch(`/api/chat/${thread}/stop`, { method: "POST", headers }));

// The same run again: the messages so far, and what is still to come.
if (sessionStorage.run && (await fetch(`/api/conversations/${thread}`, { headers })).ok) run({ runId: sessionStorage.run });
