// One part of a message. Everything is text: React makes no HTML of it.

export function Part({ part, answer }) {
  if (part.type === "text") return <p>{part.text}</p>;
  if (part.type === "reasoning") return <details><summary>Thought about it</summary>{part.text}</details>;
  if (part.type === "file" && part.url.startsWith("data:image/")) return <img src={part.url} alt="Picture" />;
  if (part.type === "dynamic-tool" || part.type.startsWith("tool-")) return <Call part={part} answer={answer} />;
  return null;
}

// What code printed, or what a tool gave: text, or any JSON value.
function outputText(output) {
  if (typeof output?.stdout === "string") return output.stdout + output.stderr;
  return typeof output === "string" ? output : JSON.stringify(output, null, 2);
}

function Call({ part, answer }) {
  const { state, input, output, errorText, approval } = part;
  return (
    <section className="call" data-state={state}>
      <header>{part.toolName ?? part.type.slice("tool-".length)}</header>
      <pre>{input?.code ?? JSON.stringify(input, null, 2)}</pre>
      {state === "approval-requested" && (
        <div>
          <button onClick={() => answer({ id: approval.id, approved: true })}>Run</button>
          <button onClick={() => answer({ id: approval.id, approved: false, reason: "not now" })}>Decline</button>
        </div>
      )}
      {state === "output-available" && <pre className="output">{outputText(output)}</pre>}
      {(state === "output-error" || state === "output-denied") && <pre className="output">{errorText ?? "Declined"}</pre>}
    </section>
  );
}
