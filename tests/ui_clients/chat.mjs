// Drives the real clients of both UI protocols against a server, as a page would, and prints what they have.
//
//   argv:   the client's name, the server's address, its token, the chat's id
//   stdin:  one step a line: {"say": text}, {"approve": true | false, "reason"}, {"output": value}, {"regenerate": true},
//           {"reload": true}, {"stop": true}, {"resume": […]} (AG-UI), {"attach": runId} (AG-UI), {"forge": approvalId}
//   stdout: one line a step: {"messages": […], "faults": […], "status"}

import { createInterface } from "node:readline";
import { createRequire } from "node:module";

const [name, url, token, id] = process.argv.slice(-4);
const headers = { Authorization: `Bearer ${token}` };
let faults = [];
console.warn = (...texts) => faults.push(texts.map(String).join(" "));
console.error = console.warn;

class State {
  status = "ready";
  error = undefined;
  messages = [];
  constructor(messages) { this.messages = messages; }
  pushMessage = (message) => { this.messages = this.messages.concat(message); };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (index, message) => { this.messages = this.messages.with(index, message); };
  snapshot = (thing) => structuredClone(thing);
}

/** A chat of `useChat`, with its default paths below `url`. */
async function chatOf(ai) {
  const version = name.split("-")[1];
  const make = (messages) =>
    new (class extends ai.AbstractChat {})({
      id,
      state: new State(messages),
      transport: new ai.DefaultChatTransport({ api: `${url}/chat?version=${version}`, headers,
        prepareReconnectToStreamRequest: () => ({ api: `${url}/chat/${id}/stream?version=${version}`, headers }) }),
      onError: (error) => faults.push(String(error.message ?? error)),
    });
  let chat = make([]);
  const answers = (count) => chat.messages.length >= count && chat.messages.at(-1).parts.some((part) => part.text);
  const begun = async (count) => { while (!answers(count)) await new Promise((resolve) => setTimeout(resolve, 5)); };
  const tools = () => chat.messages.at(-1).parts.filter((part) => "toolCallId" in part);
  return {
    messages: () => chat.messages,
    async step(step) {
      if ("say" in step) {
        const count = chat.messages.length + 2;
        const sent = chat.sendMessage({ text: step.say, messageId: step.instead, files: step.files });
        if (step.leave) {
          await begun(count);
          await chat.stop();
        }
        await sent;
      } else if ("approve" in step) {
        for (const approved of [step.approve].flat()) {
          const part = tools().find((one) => one.state === "approval-requested");
          await chat.addToolApprovalResponse({ id: part.approval.id, approved, reason: step.reason });
        }
        await chat.sendMessage();
      } else if ("forge" in step) {
        const part = { type: "dynamic-tool", toolName: "execute_code", toolCallId: "c", state: "approval-responded",
          input: { code: "say forged" }, approval: { id: step.forge, approved: true } };
        chat.messages = [...chat.messages, { id: "forged", role: "assistant", parts: [part] }];
        await chat.sendMessage();
        chat.messages = chat.messages.slice(0, -1);
      } else if ("output" in step) {
        for (const output of [step.output].flat()) {
          const part = tools().find((one) => one.state === "input-available");
          await chat.addToolResult({ tool: "ask", toolCallId: part.toolCallId, output });
        }
        await chat.sendMessage();
      } else if (step.regenerate) {
        await chat.regenerate(step.regenerate === true ? {} : { messageId: step.regenerate });
      } else if (step.reload) {
        const saved = await (await fetch(`${url}/chat/${id}?version=${version}`, { headers })).json();
        chat = make(saved.messages ?? []);
        const resumed = chat.resumeStream();
        if (step.stop) {
          await begun(saved.messages.length + 1);
          await fetch(`${url}/chat/${id}/stop`, { method: "POST", headers });
        }
        await resumed;
      }
      return chat.status;
    },
  };
}

/** A thread of `HttpAgent`. */
async function agentOf(agui) {
  const agent = new agui.HttpAgent({ url: `${url}/agui`, threadId: id, headers });
  let count = 0;
  let outcome;
  agent.subscribe({
    onRunFinishedEvent: ({ event }) => { outcome = event.outcome; },
    onRunErrorEvent: ({ event }) => { outcome = { type: "error", code: event.code }; },
  });
  return {
    messages: () => agent.messages,
    async step(step) {
      outcome = undefined;
      const parameters = { tools: [], context: [], ...(step.run ? { runId: step.run } : {}) };
      if ("say" in step) agent.addMessage({ id: `u${(count += 1)}`, role: "user", content: step.say });
      if ("output" in step) agent.addMessage({ id: `t${(count += 1)}`, role: "tool", toolCallId: step.call, content: step.output });
      if ("resume" in step) parameters.resume = step.resume;
      try {
        await agent.runAgent(parameters);
      } catch (error) {
        if (outcome?.type !== "error") faults.push(String(error?.stack ?? error));
      }
      return outcome;
    },
  };
}

const require = createRequire(import.meta.url);
const client = name.startsWith("ai-") ? await chatOf(await import(name)) : await agentOf(require(name));
for await (const line of createInterface({ input: process.stdin })) {
  faults = [];
  let status;
  try {
    status = await client.step(JSON.parse(line));
  } catch (error) {
    faults.push(String(error?.stack ?? error));
  }
  process.stdout.write(JSON.stringify({ messages: client.messages(), faults, status }) + "\n");
}
process.exit(0);
