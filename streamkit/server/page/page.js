// The chat page: conversations, the message field, and the stream of the answer that is open.

import { ConversationView } from "./conversation.js";
import { button, element, icon } from "./dom.js";
import { showTheme } from "./theme.js";
import { StreamkitError, connect } from "./streamkit.js";

const SUGGESTIONS = ["What does one turn of a sine look like?", "Which primes are below 50? Compute them.", "What is in the folder that you run in?"];
const CONNECTION = { waiting: "Connection lost, trying again\u2026", reconnecting: "Connection lost, trying again\u2026" };

const $ = (id) => document.getElementById(id);
const client = connect({ url: new URL(".", import.meta.url) });
const others = "BroadcastChannel" in window ? new BroadcastChannel("streamkit") : null; // other tabs of this page
const view = new ConversationView($("log"), $("scroller"), (text) => ($("announcer").textContent = text));

let conversation = null; // its id
let stream = null; // of the open answer
let titles = new Map(); // by conversation
let turn = 0; // counts what is shown, so that what was left does not come back

// -- a session

async function openSession(token) {
  await connect({ url: new URL(".", import.meta.url), token }).openSession();
}

/** Take the token out of the address, which people copy. */
async function sessionFromAddress() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const token = fragment.get("token");
  if (!token) return;
  fragment.delete("token");
  history.replaceState(null, "", location.pathname + (fragment.size ? `#${fragment}` : ""));
  await openSession(token);
}

function askForToken() {
  const dialog = $("login");
  if (dialog.open) return;
  dialog.showModal();
  dialog.querySelector("form").onsubmit = async (event) => {
    event.preventDefault();
    try {
      await openSession($("token").value.trim());
      $("token").value = "";
      dialog.close();
      await start();
    } catch (error) {
      problem(error, $("login-problem"));
    }
  };
  dialog.oncancel = (event) => event.preventDefault();
}

/** Show what went wrong; "" when nothing does. */
function problem(error, place = $("problem")) {
  if (error?.status === 401 && place === $("problem")) return askForToken();
  const text = error === "" ? "" : error instanceof StreamkitError ? error.message : `The server cannot be reached (${error.message}).`;
  place.textContent = text;
  place.hidden = !text;
}

// -- conversations

async function list() {
  try {
    const { conversations } = await client.listConversations({ limit: 100 });
    $("conversations").replaceChildren(...conversations.map(entry));
    titles = new Map(conversations.map(({ id, title: text }) => [id, text]));
    if (titles.has(conversation)) title(titles.get(conversation));
  } catch (error) {
    problem(error);
  }
}

function entry({ id, title: text, run }) {
  const name = text || "Untitled";
  const open = element("button", { type: "button", class: "open", "aria-current": id === conversation ? "page" : null, title: name, onclick: () => go(id) }, name);
  const remove = button(`Delete \u201c${name}\u201d`, { name: "trash", class: "quiet", onclick: () => sure() });
  const item = element("li", { class: run ? "running" : null }, open, remove);
  const sure = () => {
    const back = () => item.replaceChildren(open, remove);
    const yes = button("Delete", { text: "Delete", class: "danger", onclick: () => removeConversation(id) });
    item.replaceChildren(element("span", { class: "open" }, "Delete it?"), yes, button("Keep", { text: "Keep", class: "quiet", onclick: back }));
    yes.focus();
  };
  return item;
}

async function removeConversation(id) {
  try {
    await client.deleteConversation(id);
    others?.postMessage({ changed: id });
    if (id === conversation) go(null);
    await list();
  } catch (error) {
    problem(error);
  }
}

function title(text) {
  $("title").textContent = text || "New chat";
  document.title = text ? `${text} \u00b7 streamkit` : "streamkit";
}

/** Go to a conversation; null is a new one. */
function go(id) {
  const hash = id ? `#c=${id}` : "";
  if (location.hash !== hash) history.pushState(null, "", location.pathname + hash);
  return open(id);
}

async function open(id) {
  const now = (turn += 1);
  stream?.close();
  stream = null;
  conversation = id;
  view.clear();
  problem("");
  tell();
  side(false);
  title(titles.get(id));
  showEmpty();
  for (const one of document.querySelectorAll("#conversations [aria-current]")) one.removeAttribute("aria-current");
  if (!id) return $("input").focus();
  try {
    const { messages, run } = await client.getMessages(id);
    if (now !== turn) return;
    view.show(messages);
    if (run) read(client.read(run.id, options()));
    else if (messages.length) view.footer({ retry: retryButton() });
    view.scrollToEnd();
  } catch (error) {
    if (error.status === 404) return go(null);
    problem(error);
  } finally {
    showEmpty();
    await list();
  }
}

function showEmpty() {
  $("empty").hidden = !view.isEmpty || conversation !== null;
}

// -- an answer

function options() {
  return { handler: view, onConnection: (state) => ($("connection").textContent = CONNECTION[state] ?? "") };
}

function send(input) {
  conversation ??= newId();
  history.replaceState(null, "", `${location.pathname}#c=${conversation}`);
  problem("");
  const text = typeof input === "string" ? input : input.map((message) => message.content ?? "").join("\n");
  view.showSent(text);
  showEmpty();
  if ($("title").textContent === "New chat") title(text.slice(0, 80));
  return read(client.run(input, { conversation, ...options() }));
}

function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Read an answer to its end. */
async function read(reading) {
  const now = turn;
  stream = reading;
  tell();
  reading.started.then(() => changed(now), () => {});
  let failure = null;
  try {
    await reading.untilDone();
  } catch (error) {
    failure = error;
  }
  if (now !== turn) return; // another conversation is shown
  stream = null;
  tell();
  $("connection").textContent = "";
  if (failure?.status === 401) problem(failure);
  if (failure?.code === "conversation-busy") return open(conversation);
  view.footer({ usage: reading.usage, status: reading.status, error: failure ? failure.message : null, retry: retryButton() });
  $("announcer").textContent = failure ? "The answer failed." : reading.status === "cancelled" ? "Stopped." : "The answer is complete.";
  changed(now);
}

function changed(now) {
  others?.postMessage({ changed: conversation });
  if (now === turn) list();
}

function retryButton() {
  return button("Try again", { name: "retry", text: "Try again", class: "quiet retry", onclick: retry });
}

/** Take the last turn back, and run it again. */
async function retry() {
  if (stream) return;
  try {
    const { input } = await client.rollback(conversation);
    const { messages } = await client.getMessages(conversation);
    view.clear();
    view.show(messages);
    await send(input);
  } catch (error) {
    problem(error);
  }
}

async function stop() {
  if (!stream) return;
  $("stop").disabled = true;
  try {
    await stream.stop();
  } catch (error) {
    problem(error);
  } finally {
    $("stop").disabled = false;
  }
}

/** Tell whether an answer is open. */
function tell() {
  $("send").hidden = Boolean(stream);
  $("stop").hidden = !stream;
  $("log").setAttribute("aria-busy", String(Boolean(stream)));
}

// -- the field, the keyboard and the list

function grow() {
  const input = $("input");
  input.style.height = "auto";
  input.style.height = `${Math.min(input.scrollHeight, 240)}px`;
}

function submit() {
  const text = $("input").value.trim();
  if (!text || stream) return;
  $("input").value = "";
  grow();
  send(text);
}

function side(isOpen) {
  document.body.classList.toggle("side-open", isOpen);
  $("veil").hidden = !isOpen;
  $("open-side").setAttribute("aria-expanded", String(isOpen));
  if (isOpen) $("new").focus();
}

function onKey(event) {
  const isField = event.target.matches("textarea, input");
  if (event.key === "Escape") {
    if (document.body.classList.contains("side-open")) side(false);
    else if (!$("login").open) stop();
  } else if (event.altKey && !event.ctrlKey && !event.metaKey) {
    const action = { KeyA: () => view.question?.answer(true), KeyX: () => view.question?.answer(false), KeyN: () => go(null) }[event.code];
    if (!action) return;
    event.preventDefault();
    action();
  } else if (event.key === "/" && !isField) {
    event.preventDefault();
    $("input").focus();
  }
}

function listen() {
  $("form").addEventListener("submit", (event) => (event.preventDefault(), submit()));
  $("input").addEventListener("input", grow);
  $("input").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });
  $("stop").addEventListener("click", stop);
  $("new").addEventListener("click", () => go(null));
  $("open-side").addEventListener("click", () => side(true));
  $("close-side").addEventListener("click", () => (side(false), $("open-side").focus()));
  $("veil").addEventListener("click", () => side(false));
  $("to-end").addEventListener("click", () => view.scrollToEnd());
  $("scroller").addEventListener("scroll", () => ($("to-end").hidden = view.follows), { passive: true });
  document.addEventListener("keydown", onKey);
  window.addEventListener("popstate", () => open(idInAddress()));
  window.addEventListener("focus", list);
  others?.addEventListener("message", ({ data }) => {
    list();
    if (data.changed === conversation && !stream) open(conversation); // another tab goes on with it
  });
}

function idInAddress() {
  const id = new URLSearchParams(location.hash.slice(1)).get("c");
  return id && /^[\w-]{1,128}$/.test(id) ? id : null;
}

async function start() {
  await open(idInAddress());
  await list();
}

$("send").append(icon("up"));
$("stop").append(element("span", { class: "square" }));
$("new").prepend(icon("plus"));
$("to-end").prepend(icon("down"));
$("suggestions").append(...SUGGESTIONS.map((text) => element("button", { type: "button", onclick: () => send(text) }, text)));
showTheme($("theme"));
listen();
try {
  await sessionFromAddress();
  await start();
} catch (error) {
  problem(error);
}
