// The types of streamkit.js. Fields of events and messages have the names that they have on the wire and in Python.

export type MessageStatus = "in_progress" | "completed" | "incomplete" | "cancelled" | "failed";
export type RunStatus = MessageStatus | "requires_action" | "expired";
export type Role = "assistant" | "computer" | "user" | "system";

/** A citation in a text. */
export interface Annotation {
  type: string;
  url?: string;
  file_id?: string;
  title?: string;
  quote?: string;
  start?: number;
  end?: number;
  raw?: unknown;
}

/** A message in its static form, as on the wire: fields that are unset are absent. */
export interface FlatMessage {
  id?: string;
  role: Role;
  type: string;
  format?: string;
  recipient?: string;
  content?: string;
  name?: string;
  call_id?: string;
  /** The call id of the tool call whose sub-agent produced it. */
  parent_id?: string;
  status?: MessageStatus;
  created_at?: number;
  group?: string;
  index?: number;
  choice?: number;
  run_id?: string;
  step_id?: string;
  metadata?: Record<string, unknown>;
  annotations?: Annotation[];
  provider_executed?: boolean;
}

/** One message. It grows in place while `status` is `in_progress`, and is its own snapshot. */
export class Message implements FlatMessage {
  constructor(fields: FlatMessage);
  readonly id: string;
  readonly role: Role;
  /** `message`, `reasoning`, `code`, `console`, `image`, `file`, `audio`, `tool_call`, `tool_output`, or another. */
  readonly type: string;
  readonly format?: string;
  readonly recipient?: string;
  readonly content: string;
  readonly name?: string;
  readonly call_id?: string;
  readonly parent_id?: string;
  readonly status: MessageStatus;
  readonly created_at?: number;
  readonly group?: string;
  readonly index?: number;
  readonly choice?: number;
  readonly run_id?: string;
  readonly step_id?: string;
  readonly metadata?: Record<string, unknown>;
  readonly annotations?: Annotation[];
  readonly provider_executed?: boolean;
  /** Of a console message: the line of its code that runs, counted from 1. */
  readonly active_line: number | null;
  /** The parsed arguments of a tool call; {} as long as they are no JSON object. */
  readonly arguments: Record<string, unknown>;
  /** The static form: equal to Python's `Message.to_dict`. */
  toJSON(): FlatMessage;
}

/** The question whether code or a tool call may run. */
export class Confirmation {
  private constructor();
  readonly id: string;
  readonly subject: Message;
  /** `unanswered`: nobody decided, so nothing ran, and the run's status is `requires_action`. */
  readonly status: "pending" | "approved" | "declined" | "unanswered";
  readonly edited: string | null;
  readonly reason: string | null;
  /** Whether an approval may carry other code, or other arguments of a tool's call. */
  readonly editable: boolean;
  /** When no answer is taken any more, in Unix seconds. */
  readonly expires_at?: number;
  /** Let it run; with `edited`, run that code, or call the tool with that JSON text. Rejects if another answer came first. */
  approve(edited?: string): Promise<Question>;
  decline(reason?: string): Promise<Question>;
}

export interface Usage {
  input_tokens: number;
  output_tokens: number;
  total_tokens: number;
  details?: Record<string, unknown>;
}

interface RunFields {
  id: string;
  status: RunStatus;
  usage?: Usage;
  error?: { message?: string; code?: string; [key: string]: unknown };
  finish_reason?: string;
  created_at?: number;
  completed_at?: number;
  metadata?: Record<string, unknown>;
}

/** One complete answer of an agent. It is live until it is done. */
export interface Run extends RunFields {
  model?: string;
}

/** One model call, with the tool and code runs that it asks for. */
export interface RunStep extends RunFields {
  run_id?: string;
  type?: string;
}

/** Any event, in its wire form. Those that are about a message have it as `message` or `snapshot`. */
export interface StreamEvent {
  type: string;
  cursor?: string;
  [key: string]: unknown;
}

export interface Delta extends StreamEvent {
  message_id: string;
  value: string;
  /** Whether `value` replaces all content before it. */
  replace?: boolean;
  metadata?: Record<string, unknown>;
  snapshot: Message;
}

export interface Warning extends StreamEvent {
  code: string;
  fault: string;
  index?: number;
  kind?: string;
}

type Hook<Arguments extends unknown[]> = (...hookArguments: Arguments) => void | Promise<void>;

/** The hooks. An application's own event calls `on_` and its type, with the event. */
export interface Hooks {
  on_event: Hook<[event: StreamEvent]>;
  on_message_created: Hook<[message: Message]>;
  on_message_delta: Hook<[delta: Delta, snapshot: Message]>;
  on_message_done: Hook<[message: Message]>;
  on_text_created: Hook<[message: Message]>;
  on_text_delta: Hook<[delta: Delta, snapshot: Message]>;
  on_text_done: Hook<[message: Message]>;
  on_reasoning_created: Hook<[message: Message]>;
  on_reasoning_delta: Hook<[delta: Delta, snapshot: Message]>;
  on_reasoning_done: Hook<[message: Message]>;
  on_refusal_created: Hook<[message: Message]>;
  on_refusal_delta: Hook<[delta: Delta, snapshot: Message]>;
  on_refusal_done: Hook<[message: Message]>;
  on_code_created: Hook<[message: Message]>;
  on_code_delta: Hook<[delta: Delta, snapshot: Message]>;
  on_code_done: Hook<[message: Message]>;
  on_console_created: Hook<[message: Message]>;
  on_console_output: Hook<[delta: Delta, snapshot: Message]>;
  on_console_delta: Hook<[delta: Delta, snapshot: Message]>;
  on_console_done: Hook<[message: Message]>;
  on_tool_call_created: Hook<[message: Message]>;
  on_tool_call_delta: Hook<[delta: Delta, snapshot: Message]>;
  on_tool_call_done: Hook<[message: Message]>;
  on_tool_output_created: Hook<[message: Message]>;
  on_tool_output_delta: Hook<[delta: Delta, snapshot: Message]>;
  on_tool_output_done: Hook<[message: Message]>;
  on_image_file_done: Hook<[message: Message]>;
  on_file_done: Hook<[message: Message]>;
  on_active_line: Hook<[line: number | null, snapshot: Message | null]>;
  on_annotation: Hook<[annotation: Annotation, snapshot: Message]>;
  on_confirmation: Hook<[confirmation: Confirmation]>;
  on_confirmation_done: Hook<[confirmation: Confirmation]>;
  on_run_created: Hook<[run: Run]>;
  on_run_requires_action: Hook<[run: Run]>;
  on_run_done: Hook<[run: Run]>;
  on_run_step_created: Hook<[runStep: RunStep]>;
  on_run_step_done: Hook<[runStep: RunStep]>;
  on_usage: Hook<[usage: Usage]>;
  on_warning: Hook<[warning: Warning]>;
  on_retry: Hook<[retry: Retry]>;
  on_timeout: Hook<[]>;
  on_exception: Hook<[error: Error]>;
  on_end: Hook<[]>;
}

/** The source has failed, and is asked again: the messages with the ids in `withdrawn` are taken back. */
export interface Retry {
  type: "stream_retry";
  attempt: number;
  error: string;
  message?: string;
  delay?: number;
  withdrawn?: string[];
}

/** The base of handlers: override the hooks you care about. `this.stream` is the stream that calls them. */
export class EventHandler implements Hooks {
  stream: RunStream;
  on_event(event: StreamEvent): void | Promise<void>;
  on_message_created(message: Message): void | Promise<void>;
  on_message_delta(delta: Delta, snapshot: Message): void | Promise<void>;
  on_message_done(message: Message): void | Promise<void>;
  on_text_created(message: Message): void | Promise<void>;
  on_text_delta(delta: Delta, snapshot: Message): void | Promise<void>;
  on_text_done(message: Message): void | Promise<void>;
  on_reasoning_created(message: Message): void | Promise<void>;
  on_reasoning_delta(delta: Delta, snapshot: Message): void | Promise<void>;
  on_reasoning_done(message: Message): void | Promise<void>;
  on_refusal_created(message: Message): void | Promise<void>;
  on_refusal_delta(delta: Delta, snapshot: Message): void | Promise<void>;
  on_refusal_done(message: Message): void | Promise<void>;
  on_code_created(message: Message): void | Promise<void>;
  on_code_delta(delta: Delta, snapshot: Message): void | Promise<void>;
  on_code_done(message: Message): void | Promise<void>;
  on_console_created(message: Message): void | Promise<void>;
  on_console_output(delta: Delta, snapshot: Message): void | Promise<void>;
  on_console_delta(delta: Delta, snapshot: Message): void | Promise<void>;
  on_console_done(message: Message): void | Promise<void>;
  on_tool_call_created(message: Message): void | Promise<void>;
  on_tool_call_delta(delta: Delta, snapshot: Message): void | Promise<void>;
  on_tool_call_done(message: Message): void | Promise<void>;
  on_tool_output_created(message: Message): void | Promise<void>;
  on_tool_output_delta(delta: Delta, snapshot: Message): void | Promise<void>;
  on_tool_output_done(message: Message): void | Promise<void>;
  on_image_file_done(message: Message): void | Promise<void>;
  on_file_done(message: Message): void | Promise<void>;
  on_active_line(line: number | null, snapshot: Message | null): void | Promise<void>;
  on_annotation(annotation: Annotation, snapshot: Message): void | Promise<void>;
  on_confirmation(confirmation: Confirmation): void | Promise<void>;
  on_confirmation_done(confirmation: Confirmation): void | Promise<void>;
  on_run_created(run: Run): void | Promise<void>;
  on_run_requires_action(run: Run): void | Promise<void>;
  on_run_done(run: Run): void | Promise<void>;
  on_run_step_created(runStep: RunStep): void | Promise<void>;
  on_run_step_done(runStep: RunStep): void | Promise<void>;
  on_usage(usage: Usage): void | Promise<void>;
  on_warning(warning: Warning): void | Promise<void>;
  on_retry(retry: Retry): void | Promise<void>;
  on_timeout(): void | Promise<void>;
  on_exception(error: Error): void | Promise<void>;
  on_end(): void | Promise<void>;
}

export type Handler = Partial<Hooks> & { stream?: RunStream | null };

/** The name of every hook. */
export const HOOKS: readonly (keyof Hooks)[];

/** The names of the hooks that an event calls, in order. */
export function hooksOf(event: StreamEvent): string[];

/** What a stream or a request failed with. `code` names it for programs, such as `already-answered`. */
export class StreamkitError extends Error {
  readonly code: string;
  /** The HTTP status; 0 if the error is not a response. */
  readonly status: number;
  readonly details: Record<string, unknown>;
}

/** What waits for an answer, as the server lists it. */
export interface Question {
  id: string;
  kind: "confirmation" | "tool_call";
  subject: FlatMessage;
  editable: boolean;
  status: "pending" | "approved" | "declined" | "answered" | "closed";
  asked_at: number;
  expires_at?: number;
  edited?: string;
  reason?: string;
  output?: unknown;
  error?: string;
  answered_at?: number;
}

/** A run's record on the server. */
export interface RunRecord {
  id: string;
  conversation: string;
  owner: string | null;
  status: "in_progress" | "paused" | "requires_action" | "completed" | "incomplete" | "cancelled" | "failed" | "expired" | "lost";
  created_at: number;
  ended_at: number | null;
  cursor: string | null;
  finish_reason: string | null;
  /** The model that the provider named, once it has ended. */
  model: string | null;
  usage: Usage | null;
  error: Record<string, unknown> | null;
  pending: Question[];
  metadata: Record<string, unknown>;
}

export interface Conversation {
  id: string;
  title: string;
  created_at: number;
  updated_at: number;
  messages: number;
  /** The id of the open run. */
  run: string | null;
  /** The id of the conversation that it was branched from. */
  branch_of: string | null;
}

export interface StreamOptions {
  /** One handler or several; they are called in order, and awaited. */
  handler?: Handler | Handler[];
  signal?: AbortSignal;
  /** Called when the connection changes; when it waits to connect again, with the error that it waits for. */
  onConnection?: (state: "connecting" | "reconnecting" | "open" | "waiting" | "closed", error?: StreamkitError) => void;
  /** Milliseconds without a byte, keepalive comments included, after which a connection counts as cut. Default 45,000. */
  silence?: number;
  /** Milliseconds for which it tries to connect again before the stream fails; a machine's sleep does not count. Default 300,000. */
  patience?: number;
  /** The longest wait between two attempts, in milliseconds. Default 15,000. */
  maxDelay?: number;
}

export interface RunOptions extends StreamOptions {
  /** The id of the conversation to continue; without one, or with an unknown one, a new conversation begins. */
  conversation?: string;
  metadata?: Record<string, unknown>;
  /** Whether the run ends when this response is dropped. Default `continue`. */
  onDisconnect?: "continue" | "cancel";
  idempotencyKey?: string;
}

/** The events of one run: iterate it, or call one of the methods that read it to its end. Leaving a loop pauses it. */
export interface RunStream extends AsyncIterable<StreamEvent> {
  /** The run's id on the server, null until the server named it. */
  readonly id: string | null;
  /** Resolves to the run's id. */
  readonly started: Promise<string>;
  readonly cursor: string | null;
  readonly messages: Message[];
  readonly run: Run | null;
  readonly runSteps: RunStep[];
  readonly confirmations: Confirmation[];
  readonly pending: Map<string, Confirmation | Message>;
  readonly warnings: Warning[];
  readonly usage: Usage | null;
  readonly status: RunStatus;
  readonly error: StreamkitError | null;
  message(id: string): Message | undefined;
  /** The pieces of the assistant's text, with a break before the text of each further run step. */
  textDeltas(): AsyncGenerator<string, void, void>;
  /** Read to the end. Rejects with what the run, or the connection, failed with. */
  untilDone(): Promise<void>;
  getFinalMessages(): Promise<Message[]>;
  /** The assistant's last answer. */
  getFinalText(): Promise<string>;
  getFinalRun(): Promise<Run | null>;
  /** Stop the run: code that runs ends. The stream goes on until its end arrives. */
  stop(reason?: string): Promise<RunRecord>;
  approve(id: string, edited?: string): Promise<Question>;
  decline(id: string, reason?: string): Promise<Question>;
  /** Answer a tool call that the run waits for. */
  answer(callId: string, output: unknown): Promise<Question>;
  answerError(callId: string, error: unknown): Promise<Question>;
  /** Stop reading. The run goes on. */
  close(): void;
}

export interface ConnectOptions extends Omit<StreamOptions, "handler" | "signal"> {
  /** Where the server's app is mounted. */
  url: string | URL;
  /** The server's token; not needed in a page that has the server's cookie. */
  token?: string | null;
  fetch?: typeof globalThis.fetch;
}

/** A streamkit server. Its methods reject with a `StreamkitError` for what the server refuses. */
export interface Client {
  /** Begin a run. `input` is a text, or flat messages of role `user`. The request is sent when the stream is read. */
  run(input: string | FlatMessage[], options?: RunOptions): RunStream;
  /** Read a run from its beginning, or after a cursor. */
  read(id: string, options?: StreamOptions & { after?: string }): RunStream;
  getRun(id: string): Promise<RunRecord>;
  listRuns(query?: Record<string, string | number>): Promise<{ runs: RunRecord[]; more: boolean; next?: string }>;
  listConversations(query?: Record<string, string | number>): Promise<{ conversations: Conversation[]; more: boolean; next?: string }>;
  getConversation(id: string): Promise<Conversation>;
  /** The messages of a conversation's runs that have ended, and its open run: read that from its beginning. */
  getMessages(conversation: string): Promise<{ messages: Message[]; run: { id: string; cursor: string | null } | null }>;
  /** Take the last turn back, or all from a user message on. Its `input` can be run again. */
  rollback(conversation: string, before?: string): Promise<{ removed: string[]; input: FlatMessage[] }>;
  /** Create a conversation with the messages before one of the user's; the one that has it stays as it is. */
  branch(conversation: string, before: string): Promise<Conversation>;
  rename(conversation: string, title: string): Promise<Conversation>;
  deleteConversation(id: string): Promise<null>;
  /** Give the browser a cookie in place of the token, for a page of the same origin. */
  openSession(): Promise<void>;
  request(method: string, path: string, body?: unknown): Promise<any>;
}

export function connect(options: string | ConnectOptions): Client;

/** Reads frames of server-sent events from pieces of text, however they are cut. */
export class SseParser {
  readonly lastId: string;
  readonly retry: number | null;
  feed(piece: string): Generator<string, void, void>;
}
