// The second thread of `node.js`: it reads commands, passes them to the main thread, and terminates code that does not
// stop by itself. An acknowledgement is noted in the shared memory, for the main thread may be blocked until it comes.
'use strict';

const { parentPort, workerData } = require('node:worker_threads');
const net = require('node:net');
const inspector = require('node:inspector');

const { shared, layout } = workerData;
const STOP_TIME = 50; // milliseconds that the main thread has to end a run by itself

const session = new inspector.Session();
session.connectToMainThread();
let termination = null;
parentPort.on('message', () => clearTimeout(termination)); // the main thread is not blocked

// Terminate only code that is being evaluated, for there the main thread absorbs it; anywhere else it would end the
// process.
function terminate() {
  if (Atomics.compareExchange(shared, layout.EVALUATING, 1, 2) === 1) session.post('Runtime.terminateExecution');
}

function handle(command) {
  if (command.ack !== undefined) {
    Atomics.store(shared, layout.ACKNOWLEDGED, command.ack);
    Atomics.notify(shared, layout.ACKNOWLEDGED);
    return;
  }
  parentPort.postMessage(command);
  if (command.type === 'interrupt') termination = setTimeout(terminate, STOP_TIME);
}

// The program that started this one is gone; its reaper ends everything else.
function leave() {
  process.kill(process.pid, 'SIGKILL');
}

let unfinished = '';
const stream = new net.Socket({ fd: workerData.commands, readable: true, writable: false });
stream.setEncoding('utf8');
stream.on('data', (data) => {
  const lines = (unfinished + data).split('\n');
  unfinished = lines.pop();
  for (const line of lines) handle(JSON.parse(line));
});
stream.on('end', leave);
stream.on('error', leave);
