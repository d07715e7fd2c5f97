// The chat page: conversations, the message field, and the stream of the answer that is open.

import { Attachments } from "./attachments.js";
import { Branches } from "./branches.js";
import { ConversationView } from "./conversation.js";
import { button, element, icon } from "./dom.js";
import { Draft } from "./draft.js";
import { download, markdownOf } from "./export.js";
import { ConversationList, conversationsUpTo } from "./list.js";
import { inWords, notesOf, reasonToWait } from "./problems.js";
import { connect } from "./streamkit.js";
import { showTheme } from "./theme.js";

const SUGGESTIONS = ["What does one turn of a sine look like?", "Which primes are below 50? Compute them.", "What is in the folder that you run in?"];
const MORE = 100; // conversations that are listed at first, and more at each request

const $ = (id) => document.getElementById(id);
const client = connect({ url: new URL(".", import.meta.url), maxDelay: 2000 });
const otherTabs = "BroadcastChannel" in window ? new BroadcastChannel("streamkit") : null;
const view = new ConversationView($("log"), $("scroller"), announce, (follows) => ($("to-end").hidden = follows), resend);
const attachments = new Attachments($("attached"), problem);
const draft = new Draft($("input"));
const branches = new Branches($("branches"), (id) => (focusField(), go(id)));
const sideList = new ConversationList($("conversations"), { open: (id) => go(id), remove: removeConversation, rename, after: $("new") });

let conversation = null; // its id
let stream = null; // of the open answer
let newestRun = null; // the id of the last run that was read here
let isOffline = false; // whether the stream waits for its connection
let isStopping = false;
let next = ""; // what is sent once the answer is complete
let shownUpdate = null; // when the conversation that is shown was updated last
let listed = MORE; // how many conversations are listed
let titles = new Map(); // by conversation
let listsAsked = 0; // how many lists were requested
let listShown = 0; // which of them is shown, so that an older one that comes late does not take its place
let turn = 0; // counts what is shown, so that what was left does not come back

function announce(text) {
  $("announcer").textContent = text;
}

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
      problem(error.status === 401 ? "This is not the token of this server." : error, $("login-problem"));
    }
  };
  dialog.oncancel = (event) => event.preventDefault();
}

/** Show what went wrong; "" when nothing does. */
function problem(error, place = $("problem")) {
  if (error?.status === 401 && place === $("problem")) return askForToken();
  const text = typeof error === "string" ? error : inWords(error);
  place.textContent = text;
  place.hidden = !text;
}

// -- conversations

/** List the conversations anew. After `isLookedAt`, what another device did to the one that is shown is shown. */
async function list({ isLookedAt = false } = {}) {
  const now = turn;
  const number = (listsAsked += 1);
  try {
    const { conversations, more } = await conversationsUpTo(client, listed);
    if (number < listShown) return isLookedAt ? await list({ isLookedAt }) : undefined; // a newer list came first
    listShown = number;
    titles = new Map(conversations.map(({ id, title: text }) => [id, text]));
    sideList.update(conversations, conversation);
    $("more").hidden = !more;
    if (now !== turn) return;
    branches.show(client, conversations, conversation);
    if (titles.has(conversation)) title(titles.get(conversation));
    const current = conversations.find(({ id }) => id === conversation);
    const isOld = isLookedAt && current && shownUpdate !== null && current.updated_at !== shownUpdate;
    shownUpdate = current?.updated_at ?? null;
    if (!stream && (isOld || (current?.run && current.run !== newestRun && isLookedAt))) await open(conversation);
  } catch (error) {
    problem(error);
  }
}

async function removeConversation(id) {
  try {
    await client.deleteConversation(id);
  } catch (error) {
    if (error.status !== 404) return problem(error); // 404: another tab was faster
  }
  otherTabs?.postMessage({ changed: id });
  if (id === conversation) go(null);
  await list();
}

async function rename(id, text) {
  try {
    await client.rename(id, text);
  } catch (error) {
    problem(error);
  }
  otherTabs?.postMessage({ changed: id, run: newestRun });
  shownUpdate = null; // its change is this page's own
  await list();
}

async function exportMarkdown() {
  const text = $("title").textContent;
  try {
    const { messages } = await client.getMessages(conversation);
    download(text, markdownOf(text, messages));
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

/** Leave a conversation that is not there any more. Going back does not lead to it again. */
function leave() {
  history.replaceState(null, "", location.pathname);
  return open(null);
}

async function open(id) {
  const now = (turn += 1);
  takeNextBack();
  stream?.close();
  stream = null;
  conversation = id;
  shownUpdate = null;
  view.clear();
  problem("");
  $("connection").textContent = "";
  showBusy();
  showSide(false);
  title(titles.get(id));
  $("export").hidden = !id;
  showEmpty();
  for (const one of document.querySelectorAll("#conversations [aria-current]")) one.removeAttribute("aria-current");
  if (!id) {
    $("input").focus();
    return list();
  }
  try {
    const { messages, run } = await client.getMessages(id);
    if (now !== turn) return;
    const notes = messages.length ? await notesOf(client, id) : new Map();
    if (now !== turn) return;
    view.show(messages, notes);
    if (run) read(client.read(run.id, options()));
    else if (messages.length) view.footer({ retry: retryWith(retry), ...notes.get(messages.at(-1).run_id) });
    view.scrollToEnd();
  } catch (error) {
    if (now !== turn) return;
    if (error.status === 404) return leave();
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
  const now = turn;
  const onConnection = (state, error) => {
    if (now !== turn || state === "reconnecting") return;
    isOffline = state === "waiting";
    $("connection").textContent = isOffline ? reasonToWait(error) : "";
  };
  return { handler: view, onConnection };
}

function send(input) {
  conversation ??= newId();
  history.replaceState(null, "", `${location.pathname}#c=${conversation}`);
  problem("");
  const messages = typeof input === "string" ? [{ role: "user", type: "message", content: input }] : input;
  const text = messages.map((message) => (message.type === "message" ? message.content : "")).join("\n");
  const takeBack = view.showSent(messages);
  $("export").hidden = false;
  showEmpty();
  if ($("title").textContent === "New chat") title(messages.findLast(({ type }) => type === "message")?.content.slice(0, 80));
  return read(client.run(input, { conversation, ...options() }), { input, text, takeBack });
}

function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Read an answer to its end. `sent` is what a person sent for it, just now. */
async function read(reading, sent = null) {
  const now = turn;
  stream = reading;
  view.reads(true);
  showBusy();
  reading.started.then(
    (id) => {
      draft.clear();
      if (now !== turn) return;
      newestRun = id;
      changed(now);
    },
    () => {},
  );
  let failure = null;
  try {
    await reading.untilDone();
  } catch (error) {
    failure = error;
  }
  if (now !== turn) return; // another conversation is shown
  stream = null;
  isOffline = isStopping = false;
  view.reads(false);
  showBusy();
  $("connection").textContent = "";
  if (sent && !reading.id) return takeNextBack(), notSent(sent, failure);
  if (failure?.status === 401) problem(failure);
  const retryButton = retryWith(retry);
  const { model, created_at, completed_at } = reading.run ?? {};
  const seconds = completed_at - created_at;
  view.footer({ usage: reading.usage, status: reading.status, model, seconds, error: failure ? inWords(failure) : null, retry: retryButton });
  announce(failure ? "The answer failed." : reading.status === "cancelled" ? "Stopped." : "The answer is complete.");
  changed(now);
  if (failure || reading.status !== "completed") return takeNextBack();
  const text = next;
  showNext("");
  if (text) send(text);
}

/** No run began for what a person sent: nothing of it is lost. */
function notSent({ input, text, takeBack }, failure) {
  if (failure && failure.status !== 401 && failure.code !== "conversation-busy") {
    view.footer({ error: inWords(failure), retry: retryWith((made) => (made.closest(".turn").remove(), takeBack(), send(input))) });
    return announce("The message was not sent.");
  }
  $("input").value = [text, $("input").value].filter(Boolean).join("\n");
  draft.save();
  grow();
  takeBack();
  if (!failure) return list().then(() => titles.has(conversation) || leave()); // it was stopped before it began
  if (failure.status === 401) return problem(failure);
  return open(conversation).then(() => problem(failure)); // the answer that goes on
}

function changed(now) {
  otherTabs?.postMessage({ changed: conversation, run: newestRun });
  if (now === turn) list();
}

function retryWith(action) {
  const made = button("Try again", { name: "retry", text: "Try again", class: "quiet retry", onclick: () => ((made.disabled = true), focusField(), action(made)) });
  return made;
}

/** Take the last turn back, and run it again. */
async function retry(retryButton) {
  if (stream) return;
  const [now, id] = [turn, conversation];
  try {
    const { input } = await client.rollback(id);
    if (now !== turn) return void (await client.request("POST", "runs", { input, conversation: id })); // it goes on out of sight
    const { messages } = await client.getMessages(id);
    if (now !== turn) return void (await client.request("POST", "runs", { input, conversation: id }));
    view.clear();
    view.show(messages);
    await send(input);
  } catch (error) {
    retryButton.disabled = false;
    problem(error);
  }
}

/** Send a message of the person's anew, with another text, in a conversation that has what was before it. */
async function resend(message, beside, text) {
  try {
    const branch = await client.branch(conversation, message.id);
    await go(branch.id);
    const fields = ({ type, format, content }) => ({ role: "user", type, format, content });
    await send(beside.length ? [...beside.map(fields), { role: "user", type: "message", content: text }] : text);
  } catch (error) {
    problem(error);
  }
}

async function stop() {
  if (!stream || isStopping) return;
  if (!stream.id && isOffline) return stream.close(); // there is nothing to stop that the server could tell of
  isStopping = true;
  showBusy();
  try {
    await stream.stop();
  } catch (error) {
    if (stream) problem(error);
  } finally {
    isStopping = false;
    showBusy();
  }
}

/** Show whether an answer is open. */
function showBusy() {
  const [shown, hidden] = stream ? [$("stop"), $("send")] : [$("send"), $("stop")];
  const hadFocus = document.activeElement === hidden;
  shown.hidden = false;
  hidden.hidden = true;
  if (hadFocus) shown.focus();
  $("stop").classList.toggle("working", isStopping);
  $("stop").setAttribute("aria-label", isStopping ? "Stopping" : "Stop");
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
  if (!text && (stream || $("attached").hidden)) return;
  $("input").value = "";
  grow();
  if (!stream) {
    const files = attachments.take();
    const written = text ? [{ role: "user", type: "message", content: text }] : [];
    return send(files.length ? [...files, ...written] : text);
  }
  showNext([next, text].filter(Boolean).join("\n"));
  announce("It is sent once the answer is complete.");
}

function showNext(text) {
  next = text;
  $("next").hidden = !text;
  $("next-text").textContent = text;
}

/** What was to be sent next is in the field again. */
function takeNextBack() {
  if (!next) return;
  $("input").value = [next, $("input").value].filter(Boolean).join("\n");
  showNext("");
  draft.save();
  grow();
}

/** Where the focus goes when what had it is gone. On a touch screen the field would open the keyboard. */
function focusField() {
  $(matchMedia("(pointer: coarse)").matches ? "scroller" : "input").focus({ preventScroll: true });
}

function showSide(isOpen) {
  const wasOpen = document.body.classList.contains("side-open");
  document.body.classList.toggle("side-open", isOpen);
  $("veil").hidden = !isOpen;
  $("open-side").setAttribute("aria-expanded", String(isOpen));
  document.querySelector("main").inert = isOpen; // the list lies over it
  if (isOpen) $("new").focus();
  else if (wasOpen) $("open-side").focus();
}

function onKey(event) {
  if (event.isComposing) return; // the key belongs to what is composed
  const isField = event.target.matches("textarea, input");
  if (event.key === "Escape") {
    if (document.body.classList.contains("side-open")) showSide(false);
    else if (!$("login").open) stop();
  } else if (event.altKey && !event.ctrlKey && !event.metaKey) {
    // By the letter, as keyboards differ; by its place where Alt makes another character of it.
    const letter = /^[a-z]$/i.test(event.key) ? event.key.toLowerCase() : event.code.replace("Key", "").toLowerCase();
    const action = { a: () => view.question?.answer(true), x: () => view.question?.answer(false), n: () => go(null) }[letter];
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
  $("input").addEventListener("input", () => (grow(), draft.save()));
  $("input").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return; // 229: composing, in Safari
    event.preventDefault();
    submit();
  });
  $("stop").addEventListener("click", stop);
  $("export").addEventListener("click", exportMarkdown);
  $("attach").addEventListener("click", () => $("files").click());
  $("files").addEventListener("change", async () => (await attachments.add([...$("files").files]), ($("files").value = ""), focusField()));
  $("input").addEventListener("paste", (event) => takeFiles(event, event.clipboardData));
  document.addEventListener("dragover", (event) => event.dataTransfer.types.includes("Files") && event.preventDefault());
  document.addEventListener("drop", (event) => takeFiles(event, event.dataTransfer));
  $("new").addEventListener("click", () => go(null));
  $("next-back").addEventListener("click", () => (takeNextBack(), focusField()));
  $("more").addEventListener("click", () => ((listed += MORE), list()));
  $("open-side").addEventListener("click", () => showSide(true));
  $("close-side").addEventListener("click", () => showSide(false));
  $("veil").addEventListener("click", () => showSide(false));
  $("to-end").addEventListener("click", () => (view.scrollToEnd(), (view.follows = true), focusField()));
  document.querySelector(".skip").addEventListener("click", (event) => (event.preventDefault(), $("input").focus())); // the address is the conversation's
  document.addEventListener("keydown", onKey);
  window.addEventListener("popstate", () => open(idInAddress()));
  window.addEventListener("focus", () => list({ isLookedAt: true }));
  otherTabs?.addEventListener("message", ({ data }) => {
    list();
    if (data.changed === conversation && !stream && data.run !== newestRun) open(conversation); // another tab goes on with it
  });
}

/** Attach the files that were dropped or pasted; a text that was pasted is the field's. */
function takeFiles(event, { files, types }) {
  if (!files.length || types.includes("text/plain")) return;
  event.preventDefault();
  problem("");
  attachments.add([...files]);
}

function idInAddress() {
  const id = new URLSearchParams(location.hash.slice(1)).get("c");
  return id && /^[\w-]{1,128}$/.test(id) ? id : null;
}

async function start() {
  await open(idInAddress());
  if (!stream) draft.restore();
  grow();
}

$("send").append(icon("up"));
$("attach").append(icon("clip"));
$("export").append(icon("down"));
$("stop").append(element("span", { class: "square" }));
$("new").prepend(icon("plus"));
$("to-end").prepend(icon("down"));
$("suggestions").append(...SUGGESTIONS.map((text) => element("button", { type: "button", onclick: () => stream || send(text) }, text)));
showTheme($("theme"));
listen();
try {
  await sessionFromAddress();
  await start();
} catch (error) {
  problem(error);
}
