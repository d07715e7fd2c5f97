// Feeds response bodies to the real clients of both UI protocols, and prints what they made of them.
//
//   stdin:  [{"client": "ai-6", "bodies": ["data: …"], "answers": [[…] for each body but the last]}]
//   stdout: [{"messages": […], "faults": […], "requests": [the JSON that the client posted]}]
//
// An answer is {"approve": id}, {"decline": id, "reason"}, or {"output": toolCallId, "tool", "value"}. For AG-UI the
// answers of a body are the `resume` of the next request. Whatever a client warns about or throws is a fault.

import { createRequire } from "node:module";

// As bundlers do: in Node, the ESM build of 0.0.47 of AG-UI's client does not find the functions of its JSON Patch library.
const require = createRequire(import.meta.url);

/** A client, which is loaded when a job names it. */
const load = async (name) => (name.startsWith("ai-") ? await import(name) : require(name));

const encoder = new TextEncoder();
let faults = [];
console.warn = (...texts) => faults.push(texts.map(String).join(" "));
console.error = console.warn;

/** A `fetch` that answers with these bodies, a piece at a time, and keeps what was posted. */
function scripted(bodies, requests) {
  const left = [...bodies];
  return async (_, init) => {
    requests.push(JSON.parse(init.body));
    const bytes = encoder.encode(left.shift());
    const pieces = new ReadableStream({
      start(controller) {
        for (let at = 0; at < bytes.length; at += 1000) controller.enqueue(bytes.slice(at, at + 1000));
        controller.close();
      },
    });
    return new Response(pieces, { status: 200, headers: { "content-type": "text/event-stream" } });
  };
}

/** The state of a chat, as a framework keeps it. */
class State {
  status = "ready";
  error = undefined;
  messages = [];
  pushMessage = (message) => { this.messages = this.messages.concat(message); };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (index, message) => { this.messages = this.messages.with(index, message); };
  snapshot = (thing) => structuredClone(thing);
}

async function readWithAi(ai, { bodies, answers = [] }, requests) {
  const transport = new ai.DefaultChatTransport({ fetch: scripted(bodies, requests) });
  const chat = new (class extends ai.AbstractChat {})({
    id: "chat-1",
    state: new State(),
    transport,
    onError: (error) => faults.push(String(error.message ?? error)),
  });
  await chat.sendMessage({ text: "Go on.", metadata: { from: "a test" } });
  for (const [number, given] of answers.entries()) {
    for (const answer of given) {
      if ("output" in answer) {
        await chat.addToolResult({ tool: answer.tool, toolCallId: answer.output, output: answer.value });
      } else {
        const approved = "approve" in answer;
        await chat.addToolApprovalResponse({ id: answer.approve ?? answer.decline, approved, reason: answer.reason });
      }
    }
    if (number + 1 < bodies.length) await chat.sendMessage();
  }
  return chat.messages;
}

async function readWithAgUi(agui, { bodies, answers = [] }, requests) {
  const fetch = scripted(bodies, requests);
  globalThis.fetch = fetch;
  const agent = new agui.HttpAgent({ url: "http://127.0.0.1/agui", threadId: "thread-1", fetch });
  agent.addMessage({ id: "user-1", role: "user", content: "Go on." });
  const parameters = { tools: [], context: [{ description: "place", value: "Oslo" }], forwardedProps: { page: 3 } };
  await agent.runAgent(parameters);
  for (const given of answers) {
    const resume = [];
    for (const answer of given) {
      if ("output" in answer) {
        agent.addMessage({ id: `out-${answer.output}`, role: "tool", toolCallId: answer.output, content: answer.value });
      } else {
        resume.push(answer);
      }
    }
    await agent.runAgent({ ...parameters, ...(resume.length ? { resume } : {}) });
  }
  return agent.messages;
}

async function read(job) {
  const requests = [];
  faults = [];
  let messages = [];
  try {
    const client = await load(job.client);
    const readWith = job.client.startsWith("ai-") ? readWithAi : readWithAgUi;
    messages = await readWith(client, job, requests);
  } catch (error) {
    faults.push(String(error?.stack ?? error));
  }
  await new Promise((resolve) => setTimeout(resolve, 0)); // what subscribers do in the background
  return { messages, faults, requests };
}

let text = "";
for await (const piece of process.stdin) text += piece;
const results = [];
for (const job of JSON.parse(text)) results.push(await read(job));
process.stdout.write(JSON.stringify(results), () => process.exit(0));
