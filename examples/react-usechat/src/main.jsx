// useChat on a streamkit server: its default paths are the app's, mounted at /api.

import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, isToolUIPart } from "ai";
import { useState } from "react";
import { createRoot } from "react-dom/client";
import { Part } from "./Part.jsx";
import "./chat.css";

// The chat's id and the token stay in this tab, so that a reload goes on.
const fragment = new URLSearchParams(location.hash.slice(1));
if (fragment.has("token")) sessionStorage.token = fragment.get("token");
sessionStorage.chat ??= crypto.randomUUID();
history.replaceState(null, "", location.pathname);
const id = sessionStorage.chat;
const headers = { authorization: `Bearer ${sessionStorage.token}` };

// An agent asks about one call after the other. So other calls of the step may wait for their turn, for which the function
// `lastAssistantMessageIsCompleteWithApprovalResponses` of `ai` waits as well: it would never send.
function isAnswered({ messages }) {
  const states = messages.at(-1).parts.filter(isToolUIPart).map((part) => part.state);
  return states.includes("approval-responded") && !states.includes("approval-requested");
}

function Chat({ saved }) {
  const [text, setText] = useState("");
  const { messages, sendMessage, addToolApprovalResponse, regenerate, status, error } = useChat({
    id,
    messages: saved,
    resume: true, // an answer that is open goes on here
    transport: new DefaultChatTransport({ headers }),
    sendAutomaticallyWhen: isAnswered,
  });
  const isOpen = status === "submitted" || status === "streaming";
  // `stop` of useChat only leaves the stream: the run goes on without readers.
  const stop = () => fetch(`/api/chat/${id}/stop`, { method: "POST", headers });
  const send = (event) => {
    event.preventDefault();
    if (!text.trim() || isOpen) return;
    sendMessage({ text });
    setText("");
  };
  return (
    <main>
      <div role="log" aria-busy={isOpen}>
        {messages.map((message) => (
          <article key={message.id} className={message.role}>
            {message.parts.map((part, number) => (
              <Part key={number} part={part} answer={addToolApprovalResponse} />
            ))}
          </article>
        ))}
      </div>
      {error && <p role="alert">{error.message}</p>}
      <form onSubmit={send}>
        <input aria-label="Message" value={text} onChange={(event) => setText(event.target.value)} placeholder="Write a message" />
        {isOpen ? <button type="button" onClick={stop}>Stop</button> : <button>Send</button>}
        <button type="button" disabled={isOpen || !messages.length} onClick={() => regenerate()}>Again</button>
      </form>
    </main>
  );
}

const response = await fetch(`/api/chat/${id}`, { headers });
const saved = response.ok ? (await response.json()).messages : []; // a new chat is not known yet
createRoot(document.getElementById("root")).render(<Chat saved={saved} />);
