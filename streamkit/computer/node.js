// What runs in node: this main thread evaluates code; `node_listener.js`, a second thread, reads commands.
//
// Each run has two pipes of its own. What it started, be it a timer, a promise or a child process, writes to the run's
// pipes for as long as it lives. Frames are JSON lines on a descriptor of their own: `ready`, `begin`, `sync` (waits for
// an acknowledgement), and `end` with the status `ok`, `error`, `interrupted`, or `unsettled` if a stopped run keeps running.
'use strict';

// Code may replace globals and what modules export. So all that is needed here is held by constants of its own.
const {
  Array, Atomics, Buffer, Int32Array, JSON, Number, Promise, Set, SharedArrayBuffer, String, Symbol, WeakMap, WeakSet,
  clearImmediate, clearTimeout, process, setImmediate, setTimeout,
} = globalThis;
const { stringify } = JSON;
const threads = require('node:worker_threads');
const { closeSync, openSync, writeSync } = require('node:fs');
const { AsyncLocalStorage, createHook } = require('node:async_hooks');
const { createRequire, syncBuiltinESMExports } = require('node:module');
const { inspect } = require('node:util');
const childProcesses = require('node:child_process');
const dgram = require('node:dgram');
const net = require('node:net');
const stream = require('node:stream');
const inspector = require('node:inspector');
const path = require('node:path');

const SETTLE_TIME = 300; // milliseconds that a stopped run has to come to rest
const BROKEN_EXIT = 70; // the exit status when this program itself cannot go on
// What the error of code says that tries to load a module as only modules can.
const NO_MODULE = /ERR_VM_DYNAMIC_IMPORT_CALLBACK_MISSING|Cannot use import statement outside a module/;
const { Worker } = threads;
const { ChildProcess } = childProcesses;
const TIMERS = ['Timeout', 'Immediate'];
// Objects that stand for something which goes on. As the value of a script they are not printed: they are long, and
// nobody wants to read them.
const GOING_ON = [ChildProcess, net.Server, dgram.Socket, stream.Stream, Worker];
const SHOW = Symbol.for('streamkit.show');

// The memory that both threads share: the newest acknowledgement; 1 while code is evaluated, 2 if that is to be
// terminated, else 0.
const layout = { ACKNOWLEDGED: 0, EVALUATING: 1 };
const shared = new Int32Array(new SharedArrayBuffer(8));

const FRAMES = ownDescriptor(Number(process.argv[2]), 'w');
const session = new inspector.Session();
session.connect();
const runOfContext = new AsyncLocalStorage();
let currentRun = null; // or the last one, between two runs
let runCount = 0;
let syncCount = 0;

// A descriptor that no child process inherits, in place of one that was inherited.
function ownDescriptor(descriptor, flags) {
  let opened = descriptor;
  try {
    opened = openSync(`/dev/fd/${descriptor}`, flags);
    closeSync(descriptor);
  } catch {} // the system has no such files: then children inherit it, but do not use it
  return opened;
}

function writeAll(descriptor, data) {
  for (let done = 0; done < data.length; ) {
    try {
      done += writeSync(descriptor, data, done);
    } catch (error) {
      if (error.code !== 'EAGAIN') return; // the reader is gone
    }
  }
}

function send(type, run, fields) {
  writeAll(FRAMES, Buffer.from(stringify({ type, run, ...fields }) + '\n'));
}

function findRun() {
  return runOfContext.getStore() ?? currentRun;
}

// -- output

// Wait until all that was written has been read, so that what is written next comes after it.
function sync(run) {
  send('sync', run.id, { ack: ++syncCount });
  for (let seen; (seen = Atomics.load(shared, layout.ACKNOWLEDGED)) < syncCount; ) {
    Atomics.wait(shared, layout.ACKNOWLEDGED, seen);
  }
}

// stdout and stderr write to the pipes of the run that the writer belongs to, at once.
function replaceConsole() {
  for (const [name, key] of [['stdout', 'out'], ['stderr', 'err']]) {
    process[name].write = (data, encoding, done) => {
      const callback = typeof encoding === 'function' ? encoding : done;
      const run = findRun();
      const bytes = typeof data === 'string' ? Buffer.from(data, typeof encoding === 'string' ? encoding : 'utf8') : data;
      if (run !== null) {
        if (run.lastWritten !== key && run === currentRun && !run.ended) sync(run);
        run.lastWritten = key;
        writeAll(run[key], bytes);
      }
      if (typeof callback === 'function') process.nextTick(callback);
      return true;
    };
  }
}

// The `stdio` option for a child process: where it would inherit stdout or stderr it gets those of the run. Its output
// comes after what was written before, and before what is written next, to either of the two.
function childStdio(stdio) {
  const run = findRun();
  if (run === null || stdio === undefined || stdio === null) return stdio;
  const all = Array.isArray(stdio) ? stdio : [stdio, stdio, stdio];
  if (run === currentRun && !run.ended) sync(run);
  run.lastWritten = null;
  return all.map((one, position) => {
    const number = one === 'inherit' ? position : one === process.stdout ? 1 : one === process.stderr ? 2 : one;
    return number === 1 ? run.out : number === 2 ? run.err : number === 0 ? 'ignore' : number;
  });
}

function replaceChildProcesses() {
  const isOptions = (value, position) =>
    position > 0 && value !== null && typeof value === 'object' && !Array.isArray(value);
  for (const name of ['spawn', 'spawnSync', 'execSync', 'execFileSync', 'fork']) {
    const original = childProcesses[name];
    childProcesses[name] = (...values) => {
      const position = values.findIndex(isOptions);
      const options = values[position];
      if (options?.stdio) values[position] = { ...options, stdio: childStdio(options.stdio) };
      return original(...values);
    };
  }
  syncBuiltinESMExports();
}

// -- what a run opens

// Which run opened a handle or a request of node, and during which run, by the object that node reports for it.
const origins = new WeakMap();

// A run waits for what it opens, as a program does: timers, callbacks, child processes, files, connections, threads. Only
// what listens, and the intervals beside it, live on: they are there for later runs.
function trackResources() {
  createHook({
    init(id, type, trigger, resource) {
      const run = type === 'PROMISE' || type === 'TickObject' ? undefined : runOfContext.getStore();
      if (run === undefined) return;
      if (!TIMERS.includes(type)) origins.set(resource, { run, during: currentRun });
      else if (run.stopped) process.nextTick(clearTimer, resource); // a stopped run starts nothing any more
      else addTimer(run, resource);
    },
  }).enable();
  threads.Worker = class Worker extends threads.Worker {
    constructor(...values) {
      super(...values);
      const run = findRun();
      run?.workers.add(this);
      this.once('exit', () => run?.workers.delete(this));
    }
  };
  syncBuiltinESMExports();
}

function addTimer(run, timer) {
  if (run.timers.size >= run.mostTimers) {
    for (const one of run.timers) if (one._destroyed) run.timers.delete(one);
    run.mostTimers = 2 * run.timers.size + 1000;
  }
  run.timers.add(timer);
}

function clearTimer(timer) {
  clearTimeout(timer);
  clearImmediate(timer);
}

// What keeps node alive and was opened by the run, or is an idle connection of an earlier run that this one uses again.
function activeHandles(run) {
  return [...process._getActiveRequests(), ...process._getActiveHandles()].filter((one) => {
    const origin = one instanceof dgram.Socket ? undefined : origins.get(one._handle ?? one);
    if (origin === undefined) return false;
    const reused = one instanceof net.Socket && !isListening(one) && origin.during !== run && !run.activeBefore.has(one);
    return origin.run === run || reused;
  });
}

function isListening(handle) {
  return handle instanceof net.Server || (handle instanceof net.Socket && handle.server != null);
}

// Whether the run has to wait for something.
function isWaiting(run) {
  const handles = activeHandles(run);
  if (run.workers.size > 0 || !handles.every(isListening)) return true;
  return [...run.timers].some((timer) => {
    const waitedFor = timer._repeat == null || handles.length === 0;
    return waitedFor && !timer._destroyed && timer.hasRef();
  });
}

let isIdle = () => {};
process.on('beforeExit', () => isIdle());

// Wait for what the run opened. Some of it, such as a compression, node reports nowhere; so where nothing else goes on
// the end has come when node would exit.
async function settle(run) {
  let idle = false;
  const exit = new Promise((done) => { isIdle = () => { idle = true; listener.ref(); done(); }; });
  listener.unref();
  while (!idle && !run.ended && !run.stopped && run.lateError === null) {
    if (!isWaiting(run) && process.getActiveResourcesInfo().length > 0) break;
    await Promise.race([exit, new Promise((done) => setTimeout(done, 5).unref())]);
  }
  if (run === currentRun) listener.ref(); // a run that was stopped may find the next one here
}

function pause(milliseconds) {
  return new Promise((done) => setTimeout(done, milliseconds));
}

// -- errors

// A stack without the frames of this program and of node.
function ownStack(text) {
  const lines = String(text).split('\n');
  const end = lines.findIndex((line) => /^\s+at .*(node:inspector|Session\.post|node:internal\/)/.test(line));
  return (end < 0 ? lines : lines.slice(0, end)).join('\n');
}

// The fields of an `end` frame for an error, from what the inspector reports of it.
function describeError(details) {
  const value = details.exception ?? {};
  const text = ownStack(value.description ?? (value.value !== undefined ? `Uncaught ${inspect(value.value)}` : details.text));
  const name = value.className ?? 'Error';
  const place = `\n    at cell-${runCount}.js:${details.lineNumber + 1}:${details.columnNumber + 1}`;
  const at = /\n\s+at /.test(text) ? '' : place;
  const hint = NO_MODULE.test(text) ? '\nModules are loaded with `require` here: `const fs = require("fs")`.' : '';
  return { ename: name, evalue: text.split('\n')[0].replace(`${name}: `, ''), traceback: text + at + hint };
}

// -- evaluating

// Call the inspector; resolves to its error or its result.
function post(method, parameters) {
  return new Promise((done) => session.post(method, parameters, (error, result) => done({ error, result })));
}

// Evaluate code that the second thread may terminate. A termination that comes too late hits an endless loop instead.
function evaluateTerminable(parameters) {
  return new Promise((done) => {
    let terminated = false;
    Atomics.store(shared, layout.EVALUATING, 1);
    session.post('Runtime.evaluate', parameters, (error, result) => {
      terminated = /Execution was terminated/.test(error?.message);
      done({ error, result });
    });
    if (Atomics.compareExchange(shared, layout.EVALUATING, 1, 0) === 1) return;
    if (!terminated) session.post('Runtime.evaluate', { expression: 'for (;;);' }, () => {});
    Atomics.store(shared, layout.EVALUATING, 0);
  });
}

// Print the value of a script, as node's own read-eval-print loop does; a promise's once it is there.
globalThis[SHOW] = async (value) => {
  const shown = await value;
  const goesOn = TIMERS.includes(shown?.constructor?.name) || GOING_ON.some((kind) => shown instanceof kind);
  if (shown !== undefined && !goesOn) process.stdout.write(inspect(shown) + '\n');
};

// Evaluate a script and print its value; resolves to its error, null without one.
async function evaluate(code) {
  const source = `${code}\n//# sourceURL=cell-${++runCount}.js`;
  const evaluated = await evaluateTerminable({ expression: source, replMode: true, awaitPromise: true });
  if (evaluated.error) {
    return { ename: 'Error', evalue: evaluated.error.message, traceback: evaluated.error.message };
  }
  if (evaluated.result.exceptionDetails) return describeError(evaluated.result.exceptionDetails);
  const { type, value, objectId, unserializableValue } = evaluated.result.result;
  if (type === 'undefined') return null;
  const argument = objectId ? { objectId } : unserializableValue ? { unserializableValue } : { value };
  const global = await post('Runtime.evaluate', { expression: 'globalThis' });
  const shown = await post('Runtime.callFunctionOn', {
    functionDeclaration: '(function (value) { return globalThis[Symbol.for("streamkit.show")](value); })',
    objectId: global.result.result.objectId,
    arguments: [argument],
    awaitPromise: true,
  });
  return shown.result?.exceptionDetails ? describeError(shown.result.exceptionDetails) : null;
}

// -- one run

function openRun(command) {
  return {
    id: command.run,
    out: openSync(command.out, 'w'),
    err: openSync(command.err, 'w'),
    lastWritten: 'out',
    timers: new Set(),
    mostTimers: 1000, // before those are forgotten that are over
    workers: new Set(),
    activeBefore: new WeakSet(process._getActiveHandles()),
    lateError: null, // of a callback or a promise, after the script itself
    stopped: false,
    ended: false,
  };
}

async function run(command) {
  const run = openRun(command);
  currentRun = run;
  listener.ref();
  globalThis.require = createRequire(path.join(process.cwd(), 'cell.js'));
  send('begin', run.id);
  const error = await runOfContext.run(run, () => evaluate(command.code));
  await new Promise((done) => setImmediate(done)); // node reports an unhandled rejection after all promises have run
  if (error === null) await settle(run);
  if (/Execution was terminated/.test(error?.evalue)) stop(run);
  if (!run.stopped) end(run, (error ?? run.lateError) === null ? 'ok' : 'error', error ?? run.lateError);
}

function end(run, status, error) {
  if (run.ended) return;
  if (error !== null && !run.stopped) runOfContext.run(run, () => process.stderr.write(error.traceback + '\n'));
  run.ended = true;
  send('end', run.id, { status, ...error });
}

async function stop(run) {
  if (run.ended || run.stopped) return;
  run.stopped = true;
  for (const timer of run.timers) clearTimer(timer);
  for (const worker of run.workers) worker.terminate();
  for (const handle of activeHandles(run)) (handle.destroy ?? handle.close)?.call(handle);
  for (let waited = 0; waited < SETTLE_TIME && isUnsettled(run); waited += 10) await pause(10);
  end(run, isUnsettled(run) ? 'unsettled' : 'interrupted', null);
}

// Whether a stopped run goes on. Its child processes are killed.
function isUnsettled(run) {
  return run.workers.size > 0 || activeHandles(run).some((handle) => !(handle instanceof ChildProcess));
}

// -- the program

const { reallyExit } = process;

// Code made this program unable to go on: it exits, and the runner reports that.
function exitBroken(error) {
  try { writeAll(2, Buffer.from(`${error?.stack}\n`)); } finally { reallyExit(BROKEN_EXIT); }
}

process.on('uncaughtException', (error) => {
  const run = findRun();
  if (run === null || run.ended) return;
  const text = ownStack(error?.stack ?? `Uncaught ${inspect(error)}`);
  run.lateError = { ename: error?.name ?? 'Error', evalue: String(error?.message ?? error), traceback: text };
});
process.on('SIGINT', () => {}); // the command interrupts; the signal is for child processes

replaceConsole();
replaceChildProcesses();
trackResources();
const commands = ownDescriptor(Number(process.argv[3]), 'r');
const listener = new Worker(path.join(__dirname, 'node_listener.js'), {
  workerData: { shared, layout, commands },
});
listener.on('message', (command) => {
  runOfContext.enterWith(undefined); // a termination may have left an earlier run here
  if (command.type === 'run') run(command).catch(exitBroken);
  else if (command.type === 'interrupt') {
    listener.postMessage('not blocked');
    if (currentRun !== null && currentRun.id === command.run) stop(currentRun);
  }
});
process.argv.splice(1);
send('ready', null);
