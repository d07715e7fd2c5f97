// Runs of a streamkit server, in a browser or in Node: one module without dependencies. Types: streamkit.d.ts.
//
//   import { EventHandler, connect } from "./streamkit.js";
//
//   class Page extends EventHandler {
//     on_text_delta(delta, snapshot) { output.append(delta.value); }
//     on_confirmation(confirmation) { if (confirm("Run it?")) confirmation.approve(); else confirmation.decline(); }
//   }
//   const client = connect({ url: "/api/", token });
//   const stream = client.run("How long is a sine?", { handler: new Page() });
//   await stream.untilDone();
//
// Events, hooks and the fields of messages have the names that they have in Python and on the wire, so that nothing is
// translated, and an application's own event has its hook here too. Methods of this module are in camelCase.

const STEP_BREAK = "\n\n"; // stands before the text of each further run step

/** The hooks of events whose hook is not `on_` and the event's type. */
const HOOK_OF = {
  annotation_added: "on_annotation",
  confirmation_created: "on_confirmation",
  console_delta: "on_console_output",
  raw_event: "",
  snapshot: "",
  stream_end: "on_end",
  stream_exception: "on_exception",
  stream_retry: "on_retry",
  stream_timeout: "on_timeout",
  stream_warning: "on_warning",
};

const FAMILIES = ["message", "text", "reasoning", "refusal", "code", "console", "tool_call", "tool_output"];

/** The name of every hook. */
export const HOOKS = [
  "on_event",
  ...FAMILIES.flatMap((family) => ["created", "delta", "done"].map((phase) => hookOf(`${family}_${phase}`))),
  "on_console_delta", // the same as on_console_output
  ...["image_file_done", "file_done", "run_created", "run_requires_action", "run_done"].map(hookOf),
  ...["run_step_created", "run_step_done", "confirmation_created", "confirmation_done", "active_line"].map(hookOf),
  ...["annotation_added", "usage", "stream_warning", "stream_retry"].map(hookOf),
  ...["stream_exception", "stream_timeout", "stream_end"].map(hookOf),
];

/** The base of handlers: override the hooks you care about. `this.stream` is the stream that calls them. */
export class EventHandler {
  stream = null;
}
for (const name of HOOKS) EventHandler.prototype[name] = function () {};

/** What a stream or a request failed with; `code` names it for programs, `status` is the HTTP status, if there is one. */
export class StreamkitError extends Error {
  constructor(message, { name = "StreamkitError", code = "", status = 0, details = {} } = {}) {
    super(message);
    Object.assign(this, { name, code, status, details });
  }
}

/** One message. It grows in place while `status` is `in_progress`, and is its own snapshot. */
export class Message {
  constructor(fields) {
    this.active_line = null; // of a console message: the line of its code that runs, counted from 1
    this.take(fields);
    this.content ??= "";
  }

  /** The parsed arguments of a tool call; {} as long as they are no JSON object. */
  get arguments() {
    try {
      const value = JSON.parse(this.content);
      return value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};
    } catch {
      return {};
    }
  }

  /** Set its fields to those of a static form. Its content stays if that has none. */
  take(fields) {
    for (const key of Object.keys(this)) if (!(key in fields) && key !== "active_line" && key !== "content") delete this[key];
    for (const key of Object.keys(fields)) if (key !== "__proto__") this[key] = fields[key];
    this.status = fields.status ?? "completed";
  }

  /** The static form, as Python's `Message.to_dict`. */
  toJSON() {
    const { active_line: _, ...fields } = this;
    if (fields.status === "completed") delete fields.status;
    if (this.status === "in_progress" && !this.content) delete fields.content;
    return fields;
  }
}

/** The question whether code or a tool call may run. */
export class Confirmation {
  #answer;

  constructor(fields, subject, answer) {
    Object.assign(this, { edited: null, reason: null, editable: false, ...fields, subject });
    this.#answer = answer;
  }

  /** Let it run; with `edited`, run that code instead. */
  approve(edited) {
    return this.#answer(this.id, edited == null ? { approved: true } : { approved: true, edited });
  }

  decline(reason) {
    return this.#answer(this.id, reason ? { approved: false, reason } : { approved: false });
  }
}

// -- the state of a run, which events build

/** The state of a run, which its events build. Streams have its fields. */
class RunState {
  messages = [];
  run = null;
  runSteps = [];
  confirmations = [];
  warnings = [];
  usage = null;
  status = "in_progress";
  error = null;
  #byId = new Map();
  #lines = new Map(); // active lines of console messages that have not begun
  #usageBefore = null; // of the steps before this one
  #step = null; // that is open
  #answer;

  constructor(answer) {
    this.#answer = answer;
  }

  /** The confirmations that wait for an answer, and the calls that the run requires one for, by id. A call that there is a
   * confirmation about is not among them: the agent runs it. */
  get pending() {
    const pending = new Map();
    for (const one of this.confirmations) if (one.status === "pending") pending.set(one.id, one);
    if (this.run?.status !== "requires_action") return pending;
    const answered = new Set(this.messages.filter((m) => m.role === "computer").map((m) => m.call_id));
    const confirmed = new Set(this.confirmations.map((one) => one.subject.id));
    for (const { parent_id } of this.messages) if (parent_id != null) answered.add(parent_id); // by an agent
    for (const call of this.messages) {
      const id = call.call_id ?? call.id;
      const waits = call.type === "tool_call" && call.status === "completed" && !call.provider_executed;
      if (waits && !answered.has(id) && !confirmed.has(call.id)) pending.set(id, call);
    }
    return pending;
  }

  message(id) {
    return this.#byId.get(id);
  }

  /** Apply an event. Yields [event, the hook's arguments] for it, and for events that were missing before it. */
  *complete(event) {
    const { type } = event;
    if (type === "snapshot") yield* this.#replace(event);
    else if (isAbout(event, "_created")) yield* this.#created(event, event.message);
    else if (isDelta(event)) yield* this.#delta(event);
    else if (isAbout(event, "_done")) yield* this.#done(event, event.message);
    else if (Object.hasOwn(RunState.#completions, type)) yield* RunState.#completions[type](this, event);
    else yield [event, [event]];
  }

  static #completions = {
    active_line: (state, event) => state.#activeLine(event),
    annotation_added: (state, event) => state.#annotation(event),
    run_created: (state, event) => state.#runCreated(event),
    run_requires_action: (state, event) => state.#runChanged(event),
    run_done: (state, event) => state.#runChanged(event),
    run_step_created: (state, event) => state.#stepCreated(event),
    run_step_done: (state, event) => state.#stepDone(event),
    usage: (state, event) => state.#count(event),
    confirmation_created: (state, event) => state.#confirmationCreated(event),
    confirmation_done: (state, event) => state.#confirmationDone(event),
    stream_warning: (state, event) => state.#warning(event),
    stream_retry: (state, event) => state.#retry(event),
    stream_exception: (state, event) => state.#exception(event),
    stream_timeout: (_, event) => [[event, []]],
    stream_end: (state, event) => state.#streamEnd(event),
  };

  /** Withdraw the messages of a failed attempt. Their ids stay in use. */
  #retry(event) {
    const withdrawn = new Set(event.withdrawn ?? []);
    this.messages = this.messages.filter((message) => !withdrawn.has(message.id));
    this.confirmations = this.confirmations.filter((one) => !withdrawn.has(one.subject.id));
    return [[event, [event]]];
  }

  // messages

  *#created(event, fields) {
    if (this.#byId.has(fields.id)) return;
    const message = this.#add({ ...fields, status: "in_progress" });
    yield [{ ...event, message }, [message]];
  }

  #add(fields) {
    const message = new Message(fields);
    message.active_line = this.#lines.get(message.id) ?? null;
    this.#byId.set(message.id, message);
    this.messages.push(message);
    return message;
  }

  *#delta(event) {
    let message = this.#byId.get(event.message_id);
    if (!message) {
      const family = event.type.slice(0, -"_delta".length);
      const fields = { id: event.message_id, ...FAMILY_FIELDS[family] };
      yield* this.#created({ type: `${family}_created`, cursor: event.cursor }, fields);
      message = this.#byId.get(event.message_id);
    }
    if (message.status !== "in_progress") return;
    message.content = event.replace ? event.value : message.content + event.value;
    event.snapshot = message;
    yield [event, [event, message]];
  }

  *#done(event, fields) {
    const family = event.type.slice(0, -"_done".length);
    if (!this.#byId.has(fields.id)) {
      const { content: _, ...header } = fields;
      yield* this.#created({ type: `${withPhases(family)}_created`, cursor: event.cursor }, header);
    }
    const message = this.#byId.get(fields.id);
    if (message.status !== "in_progress") return;
    yield* this.#extend(message, fields.content, event, family);
    message.take(fields);
    yield [{ ...event, message }, [message]];
  }

  /** The delta that brings a message to this content. */
  *#extend(message, content, cause, family) {
    if (content === undefined || message.content === content) return;
    const adds = content.startsWith(message.content);
    const value = adds ? content.slice(message.content.length) : content;
    yield* this.#delta({ type: `${withPhases(family)}_delta`, message_id: message.id, value, replace: !adds, cursor: cause.cursor });
  }

  *#activeLine(event) {
    const message = this.#byId.get(event.message_id);
    event.line ??= null;
    if (message) message.active_line = event.line;
    else this.#lines.set(event.message_id, event.line);
    yield [event, [event.line, message ?? null]];
  }

  *#annotation(event) {
    const message = this.#byId.get(event.message_id);
    if (!message || message.status !== "in_progress") return;
    (message.annotations ??= []).push(event.annotation);
    yield [event, [event.annotation, message]];
  }

  // the run and its steps

  *#runCreated(event) {
    const fields = { status: "in_progress", ...event.run };
    if (this.run) return void Object.assign(this.run, event.run);
    this.run = fields;
    yield [{ ...event, run: fields }, [fields]];
  }

  *#runChanged(event) {
    this.run = Object.assign(this.run ?? {}, { status: "in_progress" }, event.run);
    this.usage = this.run.usage ?? this.usage;
    yield [{ ...event, run: this.run }, [this.run]];
  }

  *#stepCreated(event) {
    if (this.runSteps.some((step) => step.id === event.run_step.id)) return;
    if (this.run?.status === "requires_action") this.run.status = "in_progress"; // it was answered
    this.#step = { ...event.run_step, status: "in_progress" };
    this.runSteps.push(this.#step);
    yield [{ ...event, run_step: this.#step }, [this.#step]];
  }

  *#stepDone(event) {
    const step = this.runSteps.find((one) => one.id === event.run_step.id);
    if (!step || step.status !== "in_progress") return;
    Object.assign(step, { status: "completed" }, event.run_step);
    this.#step = null;
    this.#usageBefore = this.usage;
    yield [{ ...event, run_step: step }, [step]];
  }

  *#count(event) {
    const counts = { input_tokens: 0, output_tokens: 0, total_tokens: 0, ...event };
    delete counts.cursor;
    const before = this.#usageBefore;
    this.usage = before ? { ...counts } : counts;
    for (const key of before ? TOKENS : []) this.usage[key] = before[key] + counts[key];
    if (this.#step) this.#step.usage = counts;
    if (this.run) this.run.usage = this.usage;
    yield [event, [counts]];
  }

  // questions, warnings and the end

  *#confirmationCreated(event) {
    const fields = event.confirmation;
    if (this.confirmations.some((one) => one.id === fields.id)) return;
    const confirmation = new Confirmation(fields, this.#byId.get(fields.subject.id) ?? new Message(fields.subject), this.#answer);
    this.confirmations.push(confirmation);
    yield [{ ...event, confirmation }, [confirmation]];
  }

  *#confirmationDone(event) {
    const { subject: _, ...fields } = event.confirmation;
    const confirmation = this.confirmations.find((one) => one.id === fields.id);
    if (!confirmation || confirmation.status !== "pending") return;
    Object.assign(confirmation, fields);
    yield [{ ...event, confirmation }, [confirmation]];
  }

  *#warning(event) {
    if (this.warnings.some((one) => one.fault === event.fault && one.index === event.index)) return;
    this.warnings.push(event);
    yield [event, [event]];
  }

  *#exception(event) {
    const { error: name, message = "", details = {} } = event;
    this.error = new StreamkitError(message, { name, code: details.code ?? "", details });
    yield [event, [this.error]];
  }

  *#streamEnd(event) {
    this.status = event.status ?? "completed";
    yield [event, []];
  }

  // snapshots

  /** A snapshot replaces the state. Hooks get what is new in it, so that they end with the same content; messages that it
   * lacks are gone, unless its log has dropped some. */
  *#replace(frame) {
    const fresh = new RunState(this.#answer);
    for (const event of frame.events) for (const _ of fresh.complete({ ...event })); // silently
    yield [frame, [frame]];
    for (const event of frame.events) if (event.type === "stream_retry") yield* this.#missedRetry({ ...event, cursor: frame.cursor });
    this.#forget(fresh, frame.dropped > 0);
    for (const message of this.messages) {
      if (fresh.message(message.id) || message.status !== "in_progress") continue;
      message.status = "incomplete"; // its end is not in the log any more
      yield [{ type: `${familyOf(message)}_done`, message, cursor: frame.cursor }, [message]];
    }
    for (const event of frame.events) yield* this.#catchUp({ ...event, cursor: frame.cursor }, fresh);
    for (const message of this.messages) yield* this.#extend(message, fresh.message(message.id)?.content, frame, familyOf(message));
    for (const [id, line] of fresh.#lines) this.#lines.set(id, line);
    [this.usage, this.#usageBefore] = [fresh.run?.usage ?? fresh.usage, fresh.#usageBefore];
    if (this.run) this.run.usage = this.usage;
    this.#step = this.runSteps.find((step) => step.id === fresh.#step?.id) ?? null;
  }

  /** A retry that was missed: whoever has none of its messages has nothing to take back. */
  *#missedRetry(event) {
    const withdrawn = this.messages.filter(({ id }) => event.withdrawn?.includes(id));
    for (const message of withdrawn) {
      if (message.status !== "in_progress") continue;
      message.status = "failed";
      yield [{ type: `${familyOf(message)}_done`, message, cursor: event.cursor }, [message]];
    }
    if (withdrawn.length) yield* this.#retry(event);
  }

  /** Drop messages, steps and questions that a snapshot lacks, and open again the messages that are open in it. */
  #forget(fresh, isTrimmed) {
    const stays = (message) => fresh.message(message.id) || isTrimmed;
    for (const message of this.messages) if (!stays(message)) this.#byId.delete(message.id);
    this.messages = this.messages.filter(stays);
    for (const message of this.messages) {
      const now = fresh.message(message.id);
      if (now && (now.status === "in_progress" || now.content !== message.content)) message.status = "in_progress";
    }
    if (isTrimmed) return;
    const ids = (things) => new Set(things.map((thing) => thing.id));
    const [steps, questions] = [ids(fresh.runSteps), ids(fresh.confirmations)];
    this.runSteps = this.runSteps.filter((step) => steps.has(step.id));
    this.confirmations = this.confirmations.filter((one) => questions.has(one.id));
  }

  *#catchUp(event, fresh) {
    const existing = isAbout(event, "_created") && this.#byId.get(event.message.id);
    if (existing) existing.take({ ...event.message, status: "in_progress", content: existing.content });
    else if (isDelta(event)) {
      const message = this.#byId.get(event.message_id);
      yield* this.#extend(message, fresh.message(event.message_id).content, event, event.type.slice(0, -"_delta".length));
    } else if (event.type === "annotation_added") {
      const message = this.#byId.get(event.message_id);
      const has = (message.annotations ?? []).length;
      if (has < (fresh.message(event.message_id).annotations ?? []).length) yield* this.#annotation(event);
    } else if (event.type === "usage") {
      yield [event, [event]]; // it is counted in `fresh`
    } else if (event.type !== "stream_retry") yield* this.complete(event);
  }
}
const TOKENS = ["input_tokens", "output_tokens", "total_tokens"];

/** The fields of a message whose first event is a delta, by the family of that event. */
const FAMILY_FIELDS = {
  message: { role: "assistant", type: "message" },
  text: { role: "assistant", type: "message" },
  refusal: { role: "assistant", type: "message", format: "refusal" },
  reasoning: { role: "assistant", type: "reasoning" },
  code: { role: "assistant", type: "code" },
  console: { role: "computer", type: "console", format: "output" },
  tool_call: { role: "assistant", type: "tool_call" },
  tool_output: { role: "computer", type: "tool_output" },
};

function isAbout(event, phase) {
  return event.type.endsWith(phase) && typeof event.message?.id === "string";
}

/** Whether a message is of the assistant's answer (choice 0), and not of a sub-agent's. */
function isOfAnswer(message) {
  return message.role === "assistant" && (message.choice ?? 0) === 0 && message.parent_id == null;
}

function isDelta(event) {
  return event.type.endsWith("_delta") && typeof event.message_id === "string" && typeof event.value === "string";
}

/** The family whose created and delta events stand for one: images and files have a done event alone. */
function withPhases(family) {
  return family in FAMILY_FIELDS ? family : "message";
}

function familyOf({ type, format, role }) {
  if (type === "message") return format ? (format === "refusal" ? "refusal" : "message") : "text";
  return type in FAMILY_FIELDS && !(type === "code" && role === "computer") ? type : "message";
}

function hookOf(type) {
  return Object.hasOwn(HOOK_OF, type) ? HOOK_OF[type] : `on_${type}`;
}

/** The hooks that an event calls, in order: a message's own stand inside those of any message. */
export function hooksOf(event) {
  const own = hookOf(event.type);
  if (isAbout(event, "_created") && own !== "on_message_created") return ["on_event", "on_message_created", own];
  if (event.type === "console_delta") return ["on_event", own, "on_console_delta", "on_message_delta"];
  if (isDelta(event) && own !== "on_message_delta") return ["on_event", own, "on_message_delta"];
  if (isAbout(event, "_done") && own !== "on_message_done") return ["on_event", own, "on_message_done"];
  return own ? ["on_event", own] : ["on_event"];
}

// -- server-sent events

/** Reads frames from pieces of text, however they are cut. */
export class SseParser {
  #text = "";
  #data = [];
  #id = null;
  lastId = ""; // of the newest frame that has one
  retry = null; // milliseconds, as the server asks

  /** The data of each frame that this piece completes. */
  *feed(piece) {
    // A CR at the end may be half of a CR LF.
    const text = this.#text + piece;
    const incomplete = text.endsWith("\r") ? 1 : 0;
    let start = 0;
    const ends = /\r\n|\r|\n/g;
    ends.lastIndex = Math.max(0, this.#text.length - 1);
    for (let end; (end = ends.exec(text)) && end.index < text.length - incomplete; start = ends.lastIndex) {
      const data = this.#line(text.slice(start, end.index));
      if (data !== null) yield data;
    }
    this.#text = text.slice(start);
  }

  #line(line) {
    if (line === "") return this.#frame();
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.#data.push(value);
    else if (name === "id" && !value.includes("\0")) this.#id = value;
    else if (name === "retry" && /^\d+$/.test(value)) this.retry = Number(value);
    return null;
  }

  #frame() {
    if (this.#id !== null) this.lastId = this.#id;
    const data = this.#data.length ? this.#data.join("\n") : null;
    [this.#data, this.#id] = [[], null];
    return data;
  }
}

// -- a stream

/** The events of one run. Iterate it, or call one of the methods that read it to its end; leaving a loop pauses it.
 *
 * It reads from the server while it is read. A cut connection is opened again, after the newest event that arrived. */
class RunStream extends RunState {
  #client;
  #source; // opens a response after a cursor, null for the beginning
  #handlers;
  #options;
  #queue = []; // [event, the hook's arguments]
  #items = []; // JSON that was received and not applied yet
  #reading = null; // the reader of the present response
  #parser = new SseParser();
  #turn = Promise.resolve();
  #abort = new AbortController();
  #failures = 0;
  #connection = new AbortController(); // of the present response
  #offline = 0; // milliseconds spent on connecting, since the last byte
  #failure = null;
  #isOver = false;
  #answerMessage = null;
  #resolveStarted;
  #rejectStarted;
  /** The run's id, as soon as the server gave one; a Promise for it is `started`. */
  id = null;
  cursor = null;

  constructor(client, source, { handler = [], id = null, after = null, ...options }) {
    super((question, answer) => this.#post(`answers/${encodeURIComponent(question)}`, answer));
    this.#client = client;
    this.#source = source;
    this.#options = options;
    this.#handlers = [handler].flat();
    this.cursor = after;
    this.started = new Promise((resolve, reject) => ([this.#resolveStarted, this.#rejectStarted] = [resolve, reject]));
    this.started.catch(() => {}); // who reads the stream gets the error
    if (id) this.#setId(id);
    for (const one of this.#handlers) prepare(one, this);
    options.signal?.addEventListener("abort", () => this.close());
    if (options.signal?.aborted) this.close();
  }

  [Symbol.asyncIterator]() {
    return { next: () => this.#next() }; // without `return`: a loop that is left pauses the stream
  }

  /** The pieces of the assistant's text (choice 0), with a break before the text of each further run step. */
  async *textDeltas() {
    for await (const event of this) {
      const message = event.snapshot;
      if (event.type !== "text_delta" || event.replace || !isOfAnswer(message)) continue;
      const before = this.#answerMessage;
      this.#answerMessage = message;
      yield before && before.step_id !== message.step_id ? STEP_BREAK + event.value : event.value;
    }
  }

  /** Read to the end. Rejects with what the run, or the connection, failed with. */
  async untilDone() {
    while (!(await this.#next()).done);
  }

  async getFinalMessages() {
    await this.untilDone();
    return this.messages;
  }

  /** The assistant's last answer: its text (choice 0) in the last run step that has one. */
  async getFinalText() {
    await this.untilDone();
    const isAnswer = (m) => m.type === "message" && !m.format && isOfAnswer(m) && m.content;
    const texts = this.messages.filter(isAnswer);
    return texts.filter((m) => m.step_id === texts.at(-1).step_id).map((m) => m.content).join("");
  }

  async getFinalRun() {
    await this.untilDone();
    return this.run;
  }

  /** Stop the run: code that runs ends. The stream goes on until its end arrives. */
  stop(reason) {
    return this.#post("cancel", reason ? { reason } : {}); // where the run has no id yet, as soon as it has one
  }

  /** Approve a confirmation; with `edited`, that code runs instead. */
  approve(id, edited) {
    return this.#confirmation(id).approve(edited);
  }

  decline(id, reason) {
    return this.#confirmation(id).decline(reason);
  }

  /** Answer a tool call that the run waits for. `output` is any JSON value. */
  answer(callId, output) {
    return this.#post(`answers/${encodeURIComponent(callId)}`, { output });
  }

  /** Answer a tool call with the error that its tool failed with. */
  answerError(callId, error) {
    return this.#post(`answers/${encodeURIComponent(callId)}`, { error: String(error) });
  }

  /** Stop reading. The run goes on: `stop` ends that. */
  close() {
    this.#isOver = true;
    this.#abort.abort();
    this.#connection.abort();
    this.#rejectStarted(new StreamkitError("the stream was closed before the server named its run", { name: "UsageError" }));
  }

  #confirmation(id) {
    const found = this.confirmations.find((one) => one.id === id);
    if (!found) throw new StreamkitError(`there is no confirmation ${JSON.stringify(id)}`, { name: "UsageError" });
    return found;
  }

  async #post(path, body) {
    return this.#client.request("POST", `runs/${await this.started}/${path}`, body);
  }

  #setId(id) {
    this.id = id;
    this.#resolveStarted(id);
  }

  // -- reading

  /** The next event. Calls wait for each other, so that several may read the stream. */
  #next() {
    const next = this.#turn.then(() => this.#step());
    this.#turn = next.catch(() => {});
    return next;
  }

  async #step() {
    try {
      const item = await this.#take();
      if (item) {
        const [event, hookArguments] = item;
        await this.#deliver(event, hookArguments);
        return { value: event, done: false };
      }
    } catch (error) {
      await this.#fail(error);
    }
    if (this.#failure ?? this.error) throw this.#failure ?? this.error;
    return { value: undefined, done: true };
  }

  /** The next event with its hook's arguments; null at the end. */
  async #take() {
    while (!this.#queue.length) {
      if (this.#items.length) {
        const [text, cursor] = this.#items.shift();
        const event = parseEvent(text);
        if (cursor) event.cursor = this.cursor = cursor;
        for (const item of this.complete(event)) this.#queue.push(item);
        if (event.type === "stream_end") {
          this.#isOver = true;
          this.#items.length = 0;
        }
      } else if (this.#isOver || !(await this.#receive())) {
        await this.#end();
        return this.#queue.shift() ?? null;
      }
    }
    return this.#queue.shift();
  }

  /** Receive more items; false if the server has no more. */
  async #receive() {
    try {
      if (!this.#reading && !(await this.#open())) return false;
      const { value, done } = await this.#unlessSilent(this.#reading.read());
      if (!done) {
        this.#offline = 0;
        for (const data of this.#parser.feed(value)) this.#items.push([data, this.#parser.lastId]);
        if (this.#items.length) this.#failures = 0;
        return true;
      }
      this.#drop();
      if (this.#isOver) return false;
    } catch (error) {
      this.#drop();
      if (this.#isOver) return false;
      if (error instanceof StreamkitError && !RETRIED.has(error.status)) throw error;
      await this.#wait(error);
      return true;
    }
    await this.#wait(new StreamkitError("the server closed the stream before its end", { name: "SourceError" }));
    return true;
  }

  async #open() {
    this.#changed(this.#failures ? "reconnecting" : "connecting");
    this.#connection = new AbortController();
    const response = await this.#unlessSilent(this.#source(this.cursor, this.id, this.#connection.signal));
    const id = response.headers.get("x-streamkit-run") ?? /runs\/([\w-]+)$/.exec(response.headers.get("location") ?? "")?.[1];
    if (!this.id && id) this.#setId(id);
    if (response.status === 204) return false;
    if (!this.id) throw new StreamkitError("the response names no run", { name: "ProtocolError" });
    const retry = this.#parser.retry;
    this.#parser = Object.assign(new SseParser(), { retry });
    this.#reading = response.body.pipeThrough(new TextDecoderStream()).getReader();
    this.#changed("open");
    return true;
  }

  /** What the server sends. A connection may be lost without an error, as when a laptop slept: it counts as cut when not even keepalive comments come. */
  async #unlessSilent(promise) {
    const { silence = 45_000 } = this.#options;
    const elapsed = stopwatch();
    const look = () => {
      if (elapsed() <= silence) return;
      this.#connection.abort(new Error("the server was silent for too long"));
      this.#reading?.cancel().catch(() => {});
    };
    const watch = setInterval(look, Math.min(5000, silence / 4));
    try {
      return await promise;
    } catch (error) {
      if (!this.#reading) this.#offline += Math.min(elapsed(), silence);
      throw error;
    } finally {
      clearInterval(watch);
    }
  }

  #drop() {
    this.#reading?.cancel().catch(() => {});
    this.#reading = null;
  }

  /** Wait before the connection is opened again: longer after each failure, and not when the network is back. */
  async #wait(cause) {
    const { patience = 300_000, maxDelay = 15_000 } = this.#options;
    const base = cause.retryAfter ?? Math.min(maxDelay, (this.#parser.retry ?? 1000) * 2 ** this.#failures++);
    const delay = base * (cause.retryAfter ? 1 + Math.random() / 2 : 0.5 + Math.random() / 2);
    if (this.#offline + delay > patience) throw unreachable(cause);
    this.#offline += delay; // not by a clock, which goes on while the machine sleeps
    this.#changed("waiting", unreachable(cause));
    const over = new AbortController();
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, delay);
      const now = () => (clearTimeout(timer), resolve());
      this.#abort.signal.addEventListener("abort", now, { signal: over.signal });
      globalThis.addEventListener?.("online", now, { signal: over.signal });
    });
    over.abort();
  }

  #changed(state, error) {
    this.#options.onConnection?.(state, error);
  }

  // -- delivering

  async #deliver(event, hookArguments) {
    for (const handler of this.#handlers) {
      for (const name of hooksOf(event)) {
        const result = handler[name]?.(...(name === "on_event" ? [event] : hookArguments));
        if (result instanceof Promise) await result;
      }
    }
  }

  /** The source is at its end: `on_end` comes, if it has not. */
  async #end() {
    if (this.status !== "in_progress") return;
    this.#drop();
    this.#changed("closed");
    this.#queue.push(...this.complete({ type: "stream_end", status: this.#abort.signal.aborted ? "incomplete" : this.run?.status }));
  }

  /** Reading, or a hook, failed: the stream is over for all handlers. */
  async #fail(error) {
    if (this.#failure) return;
    this.#failure = error;
    this.#isOver = true;
    this.#rejectStarted(error);
    this.#drop();
    this.#queue.length = this.#items.length = 0;
    if (this.status !== "in_progress") return; // `on_end` itself failed
    this.status = "failed";
    for (const event of [{ type: "stream_exception" }, { type: "stream_end", status: "failed" }]) {
      await this.#deliver(event, event.type === "stream_end" ? [] : [error]).catch(() => {}); // the first error is the cause
    }
  }
}

const RETRIED = new Set([408, 425, 429, 502, 503, 504]);

/** A function that gives the milliseconds since now, by two clocks: one may be set back, one may stop while a machine sleeps. */
function stopwatch() {
  const [clock, timer] = [Date.now(), performance.now()];
  return () => Math.max(Date.now() - clock, performance.now() - timer);
}

/** The error of a stream whose connection could not be opened again. */
function unreachable(cause) {
  if (cause instanceof StreamkitError) return cause;
  const why = [cause.message, cause.cause?.message].filter(Boolean).join(": "); // of Node's `fetch failed`
  return Object.assign(new StreamkitError(`the server cannot be reached: ${why}`, { name: "SourceError" }), { cause });
}

/** Give a handler its stream. Throws for hooks that would never be called. */
function prepare(handler, stream) {
  if (handler === null || typeof handler !== "object") {
    const name = typeof handler === "function" ? `new ${handler.name || "Page"}()` : "an object";
    throw new StreamkitError(`a handler is an object with hooks: pass ${name}`, { name: "UsageError" });
  }
  for (let from = handler; from && from !== Object.prototype; from = Object.getPrototypeOf(from)) {
    for (const name of Object.getOwnPropertyNames(from)) {
      if (!/^on[A-Z]/.test(name)) continue;
      const hook = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
      throw new StreamkitError(`hooks have the names that they have in Python: ${hook}, not ${name}`, { name: "UsageError" });
    }
  }
  handler.stream = stream;
}

function parseEvent(text) {
  let event;
  try {
    event = JSON.parse(text);
  } catch {
    event = null;
  }
  if (typeof event?.type === "string") return event;
  throw new StreamkitError(`the server sent what is no event: ${text.slice(0, 100)}`, { name: "ProtocolError" });
}

// -- a server

/** A streamkit server: runs, conversations, answers. */
class Client {
  #url;
  #token;
  #fetch;
  #options;

  constructor({ url, token = null, fetch = globalThis.fetch.bind(globalThis), ...options }) {
    this.#url = serverUrl(url);
    this.#token = token;
    this.#fetch = fetch;
    this.#options = options;
  }

  /** Begin a run. `input` is a text, or flat messages of role `user`. */
  run(input, { conversation, metadata, onDisconnect, idempotencyKey = newKey(), ...options } = {}) {
    const body = { input, conversation, metadata, stream: true, on_disconnect: onDisconnect };
    const source = (cursor, id, signal) => {
      if (id) return this.#events(cursor, id, signal);
      // The key makes it safe to send the request again where the response was lost.
      return this.#send("POST", "runs", body, { signal, headers: { "idempotency-key": idempotencyKey } });
    };
    return new RunStream(this, source, { ...this.#options, ...options });
  }

  /** Read a run from its beginning, or after a cursor. */
  read(id, options = {}) {
    return new RunStream(this, (cursor, run, signal) => this.#events(cursor, run, signal), { ...this.#options, ...options, id });
  }

  #events(cursor, id, signal) {
    return this.#send("GET", `runs/${id}/events`, undefined, { signal, headers: cursor ? { "last-event-id": cursor } : {} });
  }

  getRun(id) {
    return this.request("GET", `runs/${id}`);
  }

  listRuns(query = {}) {
    return this.request("GET", `runs?${new URLSearchParams(query)}`);
  }

  listConversations(query = {}) {
    return this.request("GET", `conversations?${new URLSearchParams(query)}`);
  }

  getConversation(id) {
    return this.request("GET", `conversations/${id}`);
  }

  /** The messages of a conversation's runs that have ended, and its open run: read that from its beginning. */
  async getMessages(conversation) {
    const { messages, run } = await this.request("GET", `conversations/${conversation}/messages`);
    return { messages: messages.map((fields) => new Message(fields)), run };
  }

  /** Take the last turn back, or all from a user message on. Its `input` can be run again. */
  rollback(conversation, before) {
    return this.request("POST", `conversations/${conversation}/rollback`, before ? { before } : {});
  }

  /** Create a conversation with the messages before one of the user's; the one that has it stays as it is. */
  branch(conversation, before) {
    return this.request("POST", `conversations/${conversation}/branch`, { before });
  }

  rename(conversation, title) {
    return this.request("POST", `conversations/${conversation}/rename`, { title });
  }

  deleteConversation(id) {
    return this.request("DELETE", `conversations/${id}`);
  }

  /** Give the browser a cookie in place of the token, for a page of the same origin. */
  async openSession() {
    await this.request("POST", "session");
    this.#token = null;
  }

  /** Any request; resolves to the response's JSON. Rejects with a `StreamkitError` for what the server refused. */
  async request(method, path, body) {
    const response = await this.#send(method, path, body, {});
    return response.status === 204 ? null : response.json();
  }

  async #send(method, path, body, { signal, headers = {} }) {
    const all = { ...headers, ...(this.#token ? { authorization: `Bearer ${this.#token}` } : {}) };
    if (body !== undefined) all["content-type"] = "application/json";
    const content = body === undefined ? undefined : JSON.stringify(body);
    const response = await this.#fetch(this.#url + path, { method, headers: all, body: content, signal });
    if (response.ok) return response;
    throw await refusal(response);
  }
}

/** The error of a response that refuses a request: problem+json, or what a proxy sent. */
async function refusal(response) {
  const problem = await response.json().catch(() => ({}));
  const { type = "", title, detail, status: _, ...details } = problem ?? {};
  const text = [title ?? response.statusText ?? "", detail].filter(Boolean).join(": ") || `HTTP ${response.status}`;
  const error = new StreamkitError(text, { name: "SourceError", code: type.split(":").at(-1), status: response.status, details });
  const seconds = Number(response.headers.get("retry-after") || NaN);
  if (seconds >= 0) error.retryAfter = seconds * 1000;
  return error;
}

/** The address of a server, with a slash at its end; in a page it may be relative to the page's. */
function serverUrl(url) {
  try {
    const whole = new URL(String(url).replace(/\/?$/, "/"), globalThis.location?.href);
    if (url != null && /^https?:$/.test(whole.protocol)) return whole.href;
  } catch {
    // the error below says more
  }
  const fault = `${url === undefined ? "connect() without a url" : `the url ${JSON.stringify(url)}`} leads to no server`;
  throw new StreamkitError(`${fault}: pass one like "http://localhost:8000/", or in a page "/api/"`, { name: "UsageError" });
}

function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A client of the server at `url`; with a `token`, or in a page that has the server's cookie without one. */
export function connect(options) {
  return new Client(typeof options === "string" ? { url: options } : options);
}
