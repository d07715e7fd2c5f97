// Reads streams with streamkit.js, over responses that are cut at random places, and says what went wrong.
//
//   argv:   the address of streamkit.js
//   stdin:  [{"name", "events": [JSON text], "messages": [flat], "hooks": [[name, id, text]], "fails": bool, "snapshots": [[number of events before it, JSON text]]}]
//   stdout: [{"name", "fault", "how"}]
//
// The server here is a function: a log of events with the cursors "1", "2" …, as the HTTP API serves it.

import assert from "node:assert/strict";

const { EventHandler, HOOKS, connect } = await import(process.argv[2]);
const encoder = new TextEncoder();
const RUN = { "x-streamkit-run": "run-1" };

function randomNumbers(seed) {
  return (below) => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return Math.floor((seed / 2147483648) * below);
  };
}

/** A response body of this text in pieces of random sizes. If it is cut, the connection breaks after the text. */
function body(text, random, largest, isCut) {
  const bytes = encoder.encode(text);
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      const end = Math.min(bytes.length, at + 1 + random(largest));
      if (at < bytes.length) controller.enqueue(bytes.slice(at, end));
      else if (isCut) controller.error(new TypeError("the connection was cut"));
      else controller.close();
      at = end;
    },
  });
}

/** A `fetch` that serves a log. Each entry of `cuts` is the number of events after which one response breaks off, in the middle
 * of the next. With a `snapshot`, a cursor before it gets the snapshot first. */
function server(job, { random, cuts = [], snapshot = null, largest = 40 }) {
  const left = [...cuts];
  let requests = 0;
  return async (url, { method, headers }) => {
    requests += 1;
    assert.ok(requests <= cuts.length + 2, `${requests} requests`);
    assert.equal(method, requests === 1 && !headers["last-event-id"] && url.endsWith("/runs") ? "POST" : "GET");
    const after = Number(headers["last-event-id"] ?? 0);
    if (after === job.events.length) return new Response(null, { status: 204, headers: RUN });
    const end = left.length ? left.shift() : null;
    let text = "retry: 0\n\n: hb\n\n";
    let next = after;
    if (snapshot && after < snapshot[0] && (requests > 1 || snapshot.first)) {
      text += `id: ${snapshot[0]}\ndata: ${snapshot[1]}\n\n`;
      next = snapshot[0];
    }
    for (; next < (end ?? job.events.length); next += 1) text += `id: ${next + 1}\ndata: ${job.events[next]}\n\n`;
    if (end !== null && next < job.events.length) text += `id: ${next + 1}\ndata: ${job.events[next].slice(0, random(200))}`;
    return new Response(body(text, random, largest, end !== null), { status: 200, headers: RUN });
  };
}

/** Checks that the hooks tell one story: created, deltas, done, for each message; the end once, last. */
class Story extends EventHandler {
  contents = new Map();
  done = new Set();
  ends = 0;
  hooks = []; // of each hook its name, what it is about, and the text of a delta

  constructor() {
    super();
    for (const name of HOOKS) {
      const own = this[name];
      this[name] = (...hookArguments) => {
        const [first, second] = hookArguments;
        const id = second?.id ?? first?.id ?? "";
        if (name !== "on_event" || first.type !== "snapshot") this.hooks.push([name, name === "on_event" ? first.type : id, second && typeof first?.value === "string" ? first.value : ""]);
        return own.apply(this, hookArguments);
      };
    }
  }

  on_event(event) {
    assert.equal(this.ends, 0, `${event.type} after the end`);
  }
  on_message_created(message) {
    assert.ok(!this.contents.has(message.id), `${message.id} is created twice`);
    this.contents.set(message.id, "");
  }
  on_message_delta(delta, snapshot) {
    assert.ok(!this.done.has(snapshot.id), `a delta after ${snapshot.id} was done`);
    this.contents.set(snapshot.id, delta.replace ? delta.value : this.contents.get(snapshot.id) + delta.value);
    assert.equal(this.contents.get(snapshot.id), snapshot.content);
  }
  on_message_done(message) {
    assert.ok(!this.done.has(message.id), `${message.id} is done twice`);
    assert.equal(this.contents.get(message.id), message.content);
    this.done.add(message.id);
  }
  on_retry({ withdrawn = [] }) {
    for (const id of withdrawn) {
      assert.equal(this.contents.has(id), this.done.has(id), `${id} is withdrawn before it is done`);
      this.done.delete(id);
    }
  }
  on_end() {
    this.ends += 1;
  }
}

async function check(job, how, random, options) {
  const story = new Story();
  const client = connect({ url: "http://127.0.0.1/", fetch: server(job, { random, ...options }) });
  const stream = options.reads ? client.read("run-1", { handler: story }) : client.run("Go on.", { handler: story });
  let error = null;
  await stream.untilDone().catch((one) => (error = one));
  // Without a snapshot each event comes once, also the one in which the connection broke.
  if (!options.snapshot) assert.deepEqual(story.hooks, job.hooks, how);
  const wanted = options.messages ?? job.messages;
  assert.deepEqual(JSON.parse(JSON.stringify(stream.messages)), wanted, how);
  assert.equal(story.done.size, wanted.length, how);
  assert.equal(story.ends, 1, how);
  assert.equal(error !== null, job.fails, `${how}: ${error?.stack}`);
  assert.equal(stream.status, job.status, how);
  assert.deepEqual(stream.usage && JSON.parse(JSON.stringify(stream.usage)), job.usage, how);
}

/** The last place before a snapshot where no message is open, and the messages that a reader has at the end which saw those
 * up to there, and the others from a snapshot that lacks the oldest. */
function quietCut(job, before, inSnapshot) {
  const open = new Set();
  const done = new Set();
  let cut = [0, new Set()];
  for (const [at, text] of job.events.slice(0, before).entries()) {
    const { type, message } = JSON.parse(text);
    if (message?.id && type.endsWith("_created")) open.add(message.id);
    if (message?.id && type.endsWith("_done")) open.delete(message.id), done.add(message.id);
    if (!open.size) cut = [at + 1, new Set(done)];
  }
  const ids = new Set([...cut[1], ...inSnapshot.map((message) => message.id)]);
  return [cut[0], job.messages.filter((message) => ids.has(message.id))];
}

async function checkAll(job, seed) {
  const random = randomNumbers(seed);
  const count = job.events.length;
  await check(job, "whole", random, { largest: 100_000 });
  await check(job, "by few bytes", random, { largest: 3 });
  for (let time = 0; time < 2; time += 1) await check(job, "cut at random", random, {});
  // After some events: the streams together have all kinds of them there.
  const step = Math.ceil(count / 12);
  for (let cut = 0; cut < count; cut += step) {
    await check(job, `resumed after event ${cut}`, random, { cuts: [cut], largest: 500, reads: cut % 2 });
  }
  const cuts = Array.from({ length: 5 }, () => random(count)).sort((a, b) => a - b);
  await check(job, `resumed after ${cuts}`, random, { cuts });
  for (const [number, text, messages] of job.snapshots) {
    const [cut, all] = messages.length < job.messages.length ? quietCut(job, number, messages) : [random(number + 1), job.messages];
    const resumed = { cuts: [cut], snapshot: [number, text], messages: all, largest: 900 };
    await check(job, `cut after ${cut}, snapshot at ${number}`, random, resumed);
    const first = Object.assign([number, text], { first: true });
    await check(job, `begun with the snapshot at ${number}`, random, { snapshot: first, messages, largest: 900, reads: true });
  }
}

let input = "";
for await (const piece of process.stdin) input += piece;
const faults = [];
for (const [number, job] of JSON.parse(input).entries()) {
  try {
    await checkAll(job, number + 1);
  } catch (error) {
    faults.push({ name: job.name, fault: String(error.stack).slice(0, 2000) });
  }
}
process.stdout.write(JSON.stringify(faults), () => process.exit(0));
