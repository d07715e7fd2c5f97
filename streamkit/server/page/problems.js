// What went wrong, in words that say what to do.

import { StreamkitError } from "./streamkit.js";

const WORDS = {
  unauthorized: "The session is over: the token is needed again.",
  "already-answered": "It was answered somewhere else.",
  "question-closed": "It is too late: the question timed out, or the answer has ended.",
  "question-not-found": "It is too late: the question timed out, or the answer has ended.",
  "run-not-found": "The server does not have this answer any more; it may have been started anew. \u201cTry again\u201d asks once more.",
  "conversation-busy": "An answer to this conversation goes on. Wait for its end, or stop it.",
  "body-too-large": "This is more than the server takes at once. Send less.",
  "too-many-runs": "The server writes as many answers as it can. Try again when one of them has ended.",
  "too-many-readers": "The server has as many readers as it can take. Close other tabs, or try again later.",
  "relay-unavailable": "The server has lost its store of answers for the moment. Try again in a minute.",
  forbidden: "You may not do this.",
};

/** An error in words. */
export function inWords(error) {
  if (Object.hasOwn(WORDS, error.code ?? "")) return WORDS[error.code];
  if (error instanceof StreamkitError) return error.message;
  return `The server cannot be reached: is it running? (${error.message})`;
}

/** What a stream that waits for its connection waits for. */
export function reasonToWait(error) {
  if (error?.status === 429) return "The server is busy, trying again\u2026";
  if (error?.status >= 500) return "The server has a fault, trying again\u2026";
  return "Connection lost, trying again\u2026";
}

/** What to say below the answers of a conversation, by the ids of their runs: the server knows for some time how these ended. */
export async function notesOf(client, conversation) {
  const { runs } = await client.listRuns({ conversation, limit: 200 });
  return new Map(runs.map((run) => [run.id, noteOf(run)]));
}

function noteOf({ status, usage, model, error, created_at, ended_at }) {
  const errors = { lost: "The server lost it: it was started anew.", failed: "The run failed." };
  const found = status === "lost" ? null : (error?.detail ?? error?.title);
  return { usage, status, model, seconds: ended_at === null ? 0 : ended_at - created_at, error: found ?? errors[status] ?? null };
}
