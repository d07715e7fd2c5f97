// What users of streamkit.js see, checked by TypeScript: right uses pass, wrong ones are refused.

import { Confirmation, EventHandler, Message, StreamkitError, connect } from "STREAMKIT_JS";
import type { Client, Delta, RunStream, Usage } from "STREAMKIT_JS";

class Page extends EventHandler {
  text = "";
  on_text_delta(delta: Delta, snapshot: Message) {
    this.text = delta.replace ? delta.value : this.text + delta.value;
    const same: string = snapshot.content;
    void same;
  }
  async on_confirmation(confirmation: Confirmation) {
    await confirmation.approve("print(2)");
  }
  on_usage(usage: Usage) {
    const tokens: number = usage.total_tokens;
    void [tokens, this.stream.id];
  }
}

class Wrong extends EventHandler {
  // @ts-expect-error a delta is no number
  on_text_delta(delta: number) {}
}

export async function run(): Promise<string> {
  const client: Client = connect({ url: "/api/", token: "secret" });
  const stream: RunStream = client.run("Hello", { conversation: "c-1", handler: [new Page(), { on_end() {} }] });
  for await (const text of stream.textDeltas()) text.toUpperCase();
  for await (const event of stream) if (event.type === "stream_end") break;
  stream.pending.forEach((waiting, id) => (waiting instanceof Confirmation ? waiting.decline("no") : stream.answer(id, { ok: 1 })));
  const { messages, run } = await client.getMessages("c-1");
  if (run) await client.read(run.id, { after: run.cursor ?? undefined }).untilDone();
  // @ts-expect-error a message is changed by its stream alone
  messages[0].content = "";
  // @ts-expect-error there is no such option
  client.run("Hello", { conversationId: "c-1" });
  // @ts-expect-error an edit is text
  stream.approve("q", 3);
  try {
    return await stream.getFinalText();
  } catch (error) {
    if (error instanceof StreamkitError && error.code === "conversation-busy") return error.message;
    throw error;
  } finally {
    await stream.stop();
  }
}

void Wrong;
