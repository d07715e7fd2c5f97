// What runs in node: the main thread evaluates code, a second one reads commands and breaks what does not stop.
//
// Each run has two pipes of its own. What a run started, be it a timer, a promise or a child process, writes to the
// run's pipes for as long as it lives. Frames are JSON lines on a descriptor of their own.
'use strict';

// Code may replace what is global, and what modules have: what is needed here is kept.
const {
  Array, Atomics, Buffer, Int32Array, JSON, Map, Number, Object, Promise, SharedArrayBuffer, String, Symbol, clearTimeout,
  process, setImmediate, setTimeout,
} = globalThis;
const { stringify } = JSON;
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');
const { closeSync, openSync, rmSync, writeSync } = require('node:fs');
const net = require('node:net');
const inspector = require('node:inspector');

// A descriptor that no child process inherits, in place of one that was inherited.
function own(descriptor, flags) {
  let opened = descriptor;
  try {
    opened = openSync(`/dev/fd/${descriptor}`, flags);
    closeSync(descriptor);
  } catch {} // the system has no such names: children have it, and do not know of it
  return opened;
}

const FRAMES = isMainThread ? own(Number(process.argv[2]), 'w') : workerData.frames;
const PATIENCE = 50; // milliseconds that the main thread has to end a run by itself
const SETTLING = 300; // … and what the run had begun, to come to its end
// What the two threads share: the newest ack; 1 while code is evaluated, 2 once that is to be terminated.
const [ACKNOWLEDGED, EVALUATING] = [0, 1];
// What is not possible in a script.
const NO_MODULE = /ERR_VM_DYNAMIC_IMPORT_CALLBACK_MISSING|Cannot use import statement outside a module/;
// What a stopped run may leave: its timers are cleared, its child processes killed.
const HARMLESS = ['Timeout', 'Immediate', 'ProcessWrap', 'PipeWrap'];

function writeAll(descriptor, data) {
  for (let done = 0; done < data.length; ) {
    try {
      done += writeSync(descriptor, data, done);
    } catch (error) {
      if (error.code !== 'EAGAIN') return; // nobody reads any more
    }
  }
}

const tell = (type, run, fields) => writeAll(FRAMES, Buffer.from(stringify({ type, run, ...fields }) + '\n'));

// -- the second thread

function listen() {
  const session = new inspector.Session();
  session.connectToMainThread();
  let stopping = null;
  parentPort.on('message', () => clearTimeout(stopping));
  // Only where the main thread will absorb it: anywhere else it would end the process.
  const terminate = () => {
    if (Atomics.compareExchange(workerData.shared, EVALUATING, 1, 2) === 1) session.post('Runtime.terminateExecution');
  };
  const take = (command) => {
    if (command.ack !== undefined) {
      Atomics.store(workerData.shared, ACKNOWLEDGED, command.ack);
      Atomics.notify(workerData.shared, ACKNOWLEDGED);
      return;
    }
    parentPort.postMessage(command);
    if (command.type === 'interrupt') stopping = setTimeout(terminate, PATIENCE);
  };
  let pending = '';
  const stream = new net.Socket({ fd: workerData.commands, readable: true, writable: false });
  stream.setEncoding('utf8');
  stream.on('data', (data) => {
    const lines = (pending + data).split('\n');
    pending = lines.pop();
    for (const line of lines) take(JSON.parse(line));
  });
  const leave = () => {
    try {
      rmSync(workerData.directory, { recursive: true, force: true });
      process.kill(-process.pid, 'SIGKILL');
    } finally { process.kill(process.pid, 'SIGKILL'); }
  };
  stream.on('end', leave); // whoever started this is gone
  stream.on('error', leave);
}

// -- the main thread

function main() {
  const { AsyncLocalStorage } = require('node:async_hooks');
  const { createRequire, syncBuiltinESMExports } = require('node:module');
  const { inspect } = require('node:util');
  const path = require('node:path');
  const session = new inspector.Session();
  session.connect();
  const storage = new AsyncLocalStorage();
  const post = (method, given) =>
    new Promise((done) => session.post(method, given, (error, result) => done({ error, result })));
  let current = null;
  let count = 0;
  const runOf = () => storage.getStore() ?? current;

  // What one stream has is read before the other gets more.
  const shared = new Int32Array(new SharedArrayBuffer(8));
  let asked = 0;
  const sync = (run) => {
    tell('sync', run.id, { ack: ++asked });
    for (let seen; (seen = Atomics.load(shared, ACKNOWLEDGED)) < asked; ) Atomics.wait(shared, ACKNOWLEDGED, seen);
  };

  // Output.
  for (const [name, key] of [['stdout', 'out'], ['stderr', 'err']]) {
    process[name].write = (data, encoding, done) => {
      const callback = typeof encoding === 'function' ? encoding : done;
      const run = runOf();
      const bytes = typeof data === 'string' ? Buffer.from(data, typeof encoding === 'string' ? encoding : 'utf8') : data;
      if (run !== null) {
        if (run.newest !== key && run === current && !run.ended) sync(run);
        run.newest = key;
        writeAll(run[key], bytes);
      }
      if (typeof callback === 'function') process.nextTick(callback);
      return true;
    };
  }

  // Child processes that inherit stdout or stderr inherit the run's. What was written before comes before what they
  // write, and that before what is written next, whichever of the two it is written to.
  const inherited = (stdio) => {
    const run = runOf();
    if (run === null || stdio === undefined || stdio === null) return stdio;
    const all = Array.isArray(stdio) ? stdio : [stdio, stdio, stdio];
    if (run === current && !run.ended) sync(run);
    run.newest = null;
    return all.map((one, place) => {
      const number = one === 'inherit' ? place : one === process.stdout ? 1 : one === process.stderr ? 2 : one;
      return number === 1 ? run.out : number === 2 ? run.err : number === 0 ? 'ignore' : number;
    });
  };
  const children = require('node:child_process');
  for (const name of ['spawn', 'spawnSync', 'execSync', 'execFileSync', 'fork']) {
    const original = children[name];
    children[name] = (...given) => {
      const place = given.findIndex((one, at) => at > 0 && one !== null && typeof one === 'object' && !Array.isArray(one));
      if (place > 0 && given[place].stdio) given[place] = { ...given[place], stdio: inherited(given[place].stdio) };
      return original(...given);
    };
  }
  syncBuiltinESMExports();

  // Timers are the run's that set them: it waits for timeouts, and when it is stopped all of them go.
  for (const [name, waits] of [['setTimeout', true], ['setImmediate', true], ['setInterval', false]]) {
    const original = globalThis[name];
    const clear = globalThis[name.replace('set', 'clear')];
    globalThis[name] = Object.assign((callback, ...given) => {
      const run = runOf();
      if (run === null || typeof callback !== 'function') return original(callback, ...given);
      if (run.stopped) return original(() => {}, 0); // nothing of it goes on
      const timer = original((...values) => {
        if (waits) run.timers.delete(timer);
        callback(...values);
      }, ...given);
      run.timers.set(timer, { waits, clear });
      return timer;
    }, original);
  }
  const waited = (run) =>
    [...run.timers].some(([timer, { waits }]) => waits && !timer._destroyed && (timer.hasRef?.() ?? true));

  const resources = () => process.getActiveResourcesInfo().filter((name) => !HARMLESS.includes(name));
  const pause = (time) => new Promise((done) => setTimeout(done, time));

  const trimmed = (text) => {
    const lines = String(text).split('\n');
    const cut = lines.findIndex((line) => /^\s+at .*(node:inspector|Session\.post|node:internal\/)/.test(line));
    return (cut < 0 ? lines : lines.slice(0, cut)).join('\n');
  };
  const described = (details) => {
    const value = details.exception ?? {};
    const text = trimmed(value.description ?? (value.value !== undefined ? `Uncaught ${inspect(value.value)}` : details.text));
    const name = value.className ?? 'Error';
    const at = /\n\s+at /.test(text) ? '' : `\n    at cell-${count}.js:${details.lineNumber + 1}:${details.columnNumber + 1}`;
    const hint = NO_MODULE.test(text) ? '\nHere modules are loaded with `require`: `const fs = require("fs")`.' : '';
    return { ename: name, evalue: text.split('\n')[0].replace(`${name}: `, ''), traceback: text + at + hint };
  };

  const end = (run, status, fault) => {
    if (run.ended) return;
    if (fault !== null && !run.stopped) storage.run(run, () => process.stderr.write(fault.traceback + '\n'));
    run.ended = true;
    tell('end', run.id, { status, ...fault });
  };

  globalThis[Symbol.for('streamkit.show')] = async (value) => {
    const shown = await value;
    const handle = /^(Timeout|Immediate)$/.test(shown?.constructor?.name);
    if (shown !== undefined && !handle) process.stdout.write(inspect(shown) + '\n');
  };

  // Evaluate what the second thread may terminate. A termination that comes too late is absorbed by a loop for it.
  function terminable(given) {
    return new Promise((done) => {
      let terminated = false;
      Atomics.store(shared, EVALUATING, 1);
      session.post('Runtime.evaluate', given, (error, result) => {
        terminated = /Execution was terminated/.test(error?.message);
        done({ error, result });
      });
      if (Atomics.compareExchange(shared, EVALUATING, 1, 0) === 1) return;
      if (!terminated) session.post('Runtime.evaluate', { expression: 'for (;;);' }, () => {});
      Atomics.store(shared, EVALUATING, 0);
    });
  }

  async function evaluate(run, code) {
    const source = `${code}\n//# sourceURL=cell-${++count}.js`;
    const asked = await terminable({ expression: source, replMode: true, awaitPromise: true });
    if (asked.error) return { ename: 'Error', evalue: asked.error.message, traceback: asked.error.message };
    if (asked.result.exceptionDetails) return described(asked.result.exceptionDetails);
    const { type, value, objectId, unserializableValue } = asked.result.result;
    if (type === 'undefined') return null;
    const given = objectId ? { objectId } : unserializableValue ? { unserializableValue } : { value };
    const show = '(function (value) { return globalThis[Symbol.for("streamkit.show")](value); })';
    const holder = await post('Runtime.evaluate', { expression: 'globalThis' });
    const shown = await post('Runtime.callFunctionOn', {
      functionDeclaration: show, objectId: holder.result.result.objectId, arguments: [given], awaitPromise: true,
    });
    return shown.result?.exceptionDetails ? described(shown.result.exceptionDetails) : null;
  }

  async function runCode(command) {
    const run = { id: command.run, ended: false, fault: null, newest: 'out', timers: new Map(), before: resources() };
    run.out = openSync(command.out, 'w');
    run.err = openSync(command.err, 'w');
    current = run;
    globalThis.require = createRequire(path.join(process.cwd(), 'cell.js'));
    tell('begin', run.id);
    const fault = await storage.run(run, () => evaluate(run, command.code));
    await new Promise((done) => setImmediate(done)); // node tells of a rejection that nobody handles after all promises
    while (!run.ended && fault === null && run.fault === null && waited(run)) await pause(5);
    if (/Execution was terminated/.test(fault?.evalue)) stop(run);
    if (!run.stopped) end(run, (fault ?? run.fault) === null ? 'ok' : 'error', fault ?? run.fault);
  }

  function unsettled(run) {
    const left = resources();
    for (const name of run.before) {
      const place = left.indexOf(name);
      if (place >= 0) left.splice(place, 1);
    }
    return left.length > 0;
  }

  async function stop(run) {
    if (run.ended || run.stopped) return;
    run.stopped = true;
    for (const [timer, { clear }] of run.timers) clear(timer);
    for (let waited = 0; waited < SETTLING && unsettled(run); waited += 10) await pause(10);
    end(run, unsettled(run) ? 'unsettled' : 'interrupted', null);
  }

  process.on('uncaughtException', (error) => {
    const run = runOf();
    if (run === null || run.ended) return;
    const text = trimmed(error?.stack ?? `Uncaught ${inspect(error)}`);
    run.fault = { ename: error?.name ?? 'Error', evalue: String(error?.message ?? error), traceback: text };
  });
  // Code made the runner itself unable to go on: it ends, which is told in its place.
  const { reallyExit } = process;
  const broken = (error) => {
    try { writeAll(2, Buffer.from(`${error?.stack}\n`)); } finally { reallyExit(70); }
  };
  process.on('SIGINT', () => {});

  const commands = own(Number(process.argv[3]), 'r');
  const worker = new Worker(__filename, { workerData: { shared, frames: FRAMES, commands, directory: process.argv[4] } });
  worker.on('message', (command) => {
    if (command.type === 'run') runCode(command).catch(broken);
    else if (command.type === 'interrupt') {
      worker.postMessage('here');
      if (current !== null && current.id === command.run) stop(current);
    }
  });
  process.argv.splice(1);
  tell('ready', null);
}

if (isMainThread) main();
else listen();
