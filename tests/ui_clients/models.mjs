// Asks a server in the place of a model, through the real clients of model APIs, with a tool of the client's own.
//
//   argv:   the client and its API, the server's address, how, and a JSON list of requests, each the key and what the user says. How: "stream",
//           "whole", "leave" (after the beginning of a stream), "background" (a stream of Responses that is left, and resumed after its first
//           events), or "twice" (a second message of the user's, "think", after the answer)
//   stdout: a list of {"text", "reasoning", "tokens"}, {"events", "text"} of a stream that was resumed, or {"error"}, one for each request

const [name, url, how, requests] = process.argv.slice(-4);
let key, said; // of the request that is made
const streams = how === "stream";
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const weather = ({ city }) => `sunny in ${city}`;
globalThis.AI_SDK_LOG_WARNINGS = false;
console.warn = () => {};
console.error = () => {};

async function leave(stream) {
  for await (const _ of stream) return { text: "" }; // ends the stream
}

async function background(client) {
  const stream = await client.responses.create({ model: "agent", input: said, stream: true, background: true });
  let first = [], events = [], text;
  for await (const event of stream) if (first.push(event) === 4) break;
  const rest = { stream: true, starting_after: first.at(-1).sequence_number };
  for await (const event of await client.responses.retrieve(first[0].response.id, rest)) {
    events.push(event.sequence_number);
    text = event.response?.output.flatMap((item) => item.content).map((part) => part.text).join("");
  }
  return { events: [...first.map((event) => event.sequence_number), ...events], text };
}

async function chat(client) {
  if (how === "leave")
    return leave(await client.chat.completions.create({ model: "agent", messages: [{ role: "user", content: said }], stream: true }));
  const tools = [{ type: "function", function: { name: "weather", parameters } }];
  const messages = [{ role: "user", content: said }];
  let tokens = 0;
  for (;;) {
    const body = { model: "agent", messages, tools };
    const answer = streams
      ? await client.chat.completions.stream({ ...body, stream_options: { include_usage: true } }).finalChatCompletion()
      : await client.chat.completions.create(body);
    const message = answer.choices[0].message;
    tokens += answer.usage.total_tokens;
    messages.push(message);
    if (!message.tool_calls?.length) return { text: message.content, reasoning: message.reasoning_content ?? "", tokens };
    for (const call of message.tool_calls)
      messages.push({ role: "tool", tool_call_id: call.id, content: weather(JSON.parse(call.function.arguments)) });
  }
}

async function responses(client) {
  if (how === "background") return background(client);
  if (how === "leave") return leave(await client.responses.create({ model: "agent", input: said, stream: true }));
  const tools = [{ type: "function", name: "weather", parameters, strict: false }];
  let input = [{ role: "user", content: said }], previous_response_id, tokens = 0;
  for (;;) {
    const body = { model: "agent", input, tools, previous_response_id };
    const answer = streams ? await client.responses.stream(body).finalResponse() : await client.responses.create(body);
    if (answer.error) throw new Error(answer.error.message);
    tokens += answer.usage.total_tokens;
    const calls = answer.output.filter((item) => item.type === "function_call");
    const thought = answer.output.filter((item) => item.type === "reasoning").flatMap((item) => item.summary);
    if (!calls.length) return { text: answer.output_text, reasoning: thought.map((part) => part.text).join(""), tokens };
    previous_response_id = answer.id;
    input = calls.map((call) => ({ type: "function_call_output", call_id: call.call_id, output: weather(JSON.parse(call.arguments)) }));
  }
}

async function ai(api) {
  const { generateText, streamText, stepCountIs, tool, jsonSchema } = await import("ai-6");
  const { createOpenAI } = await import("@ai-sdk/openai-6");
  const { createAnthropic } = await import("@ai-sdk/anthropic-6");
  const options = { baseURL: `${url}/v1`, apiKey: key };
  const model = { chat: () => createOpenAI(options).chat("agent"), responses: () => createOpenAI(options)("agent"),
    messages: () => createAnthropic(options)("agent") }[api]();
  const tools = { weather: tool({ inputSchema: jsonSchema(parameters), execute: async (input) => weather(input) }) };
  let failure;
  const request = { model, tools, prompt: said, stopWhen: stepCountIs(4), maxRetries: 0, onError: ({ error }) => { failure = error; } };
  if (how === "leave") {
    const abort = new AbortController();
    for await (const _ of streamText({ ...request, abortSignal: abort.signal }).textStream) abort.abort();
    return { text: "" };
  }
  if (how === "twice") {
    const messages = [{ role: "user", content: said }];
    messages.push(...(await generateText({ ...request, prompt: undefined, messages })).response.messages);
    messages.push({ role: "user", content: "think" });
    return { text: (await generateText({ ...request, prompt: undefined, messages })).text };
  }
  const result = streams ? streamText(request) : await generateText(request);
  if (streams) await result.consumeStream();
  if (failure) throw failure;
  const usage = await result.totalUsage;
  return { text: await result.text, reasoning: (await result.reasoningText) ?? "", tokens: usage.totalTokens };
}

async function openai(api) {
  const { OpenAI } = await import("openai");
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key });
  return api === "chat" ? chat(client) : responses(client);
}

const [client, api] = name.split(" ");
const answers = [];
for ([key, said] of JSON.parse(requests)) {
  const run = { ai, openai }[client](api);
  answers.push(await run.catch((error) => ({ error: `${error.message} ${error.responseBody ?? ""}` })));
}
console.log(JSON.stringify(answers));
