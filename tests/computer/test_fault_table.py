"""Faulty programs in every language, one after the other in the same computer.

After each: the run has ended as the table says, its console shows why, the next run works, and nothing of the faulty one
appears in it. The faults that need limits of their own, hang, or end their process are in `faults.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import streamkit as sk

from .running import HELLO, NEEDS, Ran, TracedComputer, run, traced_computer

pytestmark = pytest.mark.slow


class Row(NamedTuple):
    """A fault: the code in each language, and how the run ends. `how` is what is done once it printed `ready`."""

    name: str
    python: str | None
    shell: str | None
    javascript: str | None
    status: str = "failed"
    words: tuple[str, str, str] | str = ""
    how: str = ""
    state_lost: tuple[bool, bool, bool] | bool = False


TABLE = [
    Row("syntax error", "def f(:", "if then", "let x = ;", words=("SyntaxError", "syntax error", "SyntaxError")),
    Row("exception", "print('before')\n1/0", "echo before\nfalse", "console.log('before')\nnull.x", words=("ZeroDivisionError", "before", "TypeError")),
    Row("missing name", "missing", "missing-program", "missing", words=("NameError", "command not found", "ReferenceError")),
    Row("exit with an error", "import sys\nsys.exit(3)", "exit 3", "process.exit(3)", words=("SystemExit: 3", "exit status 3", "exit status 3"), state_lost=(False, True, True)),
    Row("exit at the first error", "assert False, 'first'", "set -e; echo first; false; echo never", "throw new Error('first')", words="first"),
    Row("exit in a thread", "import threading, os\nthreading.Thread(target=os._exit, args=[4]).start()\nthreading.Event().wait()", None, "setTimeout(() => process.exit(4), 5)", status="died|failed", words="exit status 4", state_lost=True),
    Row("terminate itself", "import os\nos.kill(os.getpid(), 15)\nwhile True: pass", None, "process.kill(process.pid, 15); await new Promise(() => {})", status="died", words="killed by signal 15", state_lost=True),
    Row("interrupt itself", "import os\nos.kill(os.getpid(), 2)\nwhile True: pass", "kill -2 $$; echo never", None),
    Row("deep recursion", "def f(): f()\nf()", "f() { f; }; FUNCNEST=500; f", "function f() { f() }; f()", words=("RecursionError", "maximum function nesting level exceeded", "RangeError")),
    Row("error in a callback", "import threading\nt = threading.Thread(target=lambda: 1/0)\nt.start(); t.join()", None, "setTimeout(() => { throw new Error('callback') }, 1); 0", status="completed|failed", words=("ZeroDivisionError", "", "Error: callback")),
    Row("error that nobody awaits", "import asyncio\nasync def f(): raise ValueError('lost')\nawait asyncio.gather(f())", None, "Promise.reject(new Error('lost')); 0", words="lost"),
    Row("bytes that are no text", "import sys\nsys.stdout.buffer.write(b'a\\xffb\\xc3\\n');", r"printf 'a\xffb\xc3\n'", "process.stdout.write(Buffer.from([97, 255, 98, 195, 10])); 0", status="completed", words="a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}\n"),
    Row("half a character at the end", "import os\nos.write(1, b'a\\xe2\\x82');", r"printf 'a\xe2\x82'", "require('fs').writeSync(1, Buffer.from([97])); process.stdout.write(Buffer.from([226, 130])); undefined", status="completed", words=("a\N{REPLACEMENT CHARACTER}", "a\N{REPLACEMENT CHARACTER}", "")),
    Row("no line end", "print('x', end='')", "printf x", "process.stdout.write('x'); undefined", status="completed", words="x"),
    Row("a huge line", "print('x' * 3_000_000)", "head -c 3000000 /dev/zero | tr '\\0' x", "console.log('x'.repeat(3e6))", status="completed", words="x" * 3_000_000),
    Row("closed stdout", "import sys, os\nsys.stdout.close()\nos.close(1)", "exec >&- 2>&-; echo never", "process.stdout.destroy(); 0", status="completed|failed"),
    Row("thread left behind", "import threading, time\ndef talk():\n    while True: print('leak'); time.sleep(0.001)\nthreading.Thread(target=talk, daemon=True).start()\nprint('ready')", "(while :; do echo leak; sleep 0.01; done) & echo ready", "const t = setInterval(() => console.log('leak'), 1); t.unref(); console.log('ready')", status="completed", words="ready"),
    Row("process left behind", "import subprocess\nsubprocess.Popen(['sh', '-c', 'while sleep 0.01; do echo leak; done'])\nprint('ready')", "setsid sh -c 'while sleep 0.01; do echo leak; done' & echo ready", "require('child_process').spawn('sh', ['-c', 'while sleep 0.01; do echo leak; done'], { stdio: 'inherit', detached: true }).unref(); console.log('ready')", status="completed", words="ready"),
    Row("working directory removed", "import os, tempfile\nd = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)\nprint('gone'); os.chdir('/')", "d=$(mktemp -d); cd $d; rmdir $d; echo gone; cd /", "const d = require('fs').mkdtempSync('/tmp/gone-'); process.chdir(d); require('fs').rmdirSync(d); console.log('gone'); process.chdir('/')", status="completed", words="gone"),
    Row("environment cleared", "import os\nos.environ.clear()\nprint('cleared')", "(unset $(compgen -e); echo cleared)", "const saved = { ...process.env }; for (const n in saved) delete process.env[n]; console.log('cleared'); Object.assign(process.env, saved); 0", status="completed", words="cleared"),
    Row("no more descriptors", "import os\nfiles = []\ntry:\n    while True: files.append(open('/dev/null'))\nexcept OSError as error:\n    print(error)\nfinally:\n    for file in files: file.close()", "(ulimit -n 5; cat <(echo a) <(echo b) <(echo c)); echo on", "const fs = require('fs'), open = []; try { for (let i = 0; i < 100; i++) open.push(fs.openSync('/nonexistent')) } catch (e) { console.log(e.code) }", status="completed", words=("Too many open files", "on", "ENOENT")),
    Row("interrupt ignored", None, None, "console.log('ready'); process.on('SIGINT', () => {}); while (true) {}", "interrupted", "KeyboardInterrupt", "interrupt"),
    Row("children ignore the interrupt", "import subprocess\nprint('ready')\nsubprocess.run(['sh', '-c', 'trap \"\" INT; sleep 600'])", "sh -c 'trap \"\" INT; echo ready; sleep 600'", "console.log('ready'); require('child_process').spawn('sh', ['-c', 'trap \"\" INT; sleep 600'])", "interrupted", "KeyboardInterrupt", "interrupt", (False, True, False)),
    Row("cut off while it prints", "while True: print('ready')", "yes ready", "while (true) console.log('ready')", "interrupted", how="close"),
    Row("cut off while it waits", "import asyncio\nprint('ready')\nawait asyncio.sleep(600)", "echo ready; read -t 600 <> <(:)", "console.log('ready'); await new Promise(() => {})", "interrupted", how="cancel"),
    Row("cut off in a finally", "try:\n    print('ready')\n    while True: pass\nfinally:\n    print('leak')", "trap 'echo leak' INT; echo ready; sleep 600", "try { console.log('ready'); while (true) {} } finally { console.log('leak') }", "interrupted", how="close"),
    Row("interrupted twice", "print('ready')\nwhile True: pass", "echo ready; sleep 600", "console.log('ready'); while (true) {}", "interrupted", "KeyboardInterrupt", "twice"),
]  # fmt: skip
LANGUAGES = ("python", "shell", "javascript")


@pytest.fixture(scope="module")
def computers() -> Iterator[dict[str, TracedComputer]]:
    with traced_computer(timeout=60, process_limit=200) as one:
        yield dict.fromkeys(LANGUAGES, one)


def of(value: Any, language: str) -> Any:
    return value[LANGUAGES.index(language)] if isinstance(value, tuple) else value


def stop(how: str, execution: Any) -> str:
    """Run it, and stop it in some way once it printed `ready`; returns its console."""
    if how == "cancel":

        class Cancel(sk.EventHandler):
            def on_console_output(self, delta: Any, snapshot: Any, /) -> None:
                self.stream.cancel()

        sk.stream(execution, Cancel()).until_done()
        return ""
    stopped = False

    def act(execution: Any, text: str) -> None:
        nonlocal stopped
        if "ready" in text and not stopped:
            stopped = True
            for _ in range(2 if how == "twice" else 1):
                execution.interrupt()

    if how == "close":
        for event in execution:
            if isinstance(event, sk.ConsoleDelta) and "ready" in event.value:
                break
        execution.close()
        return ""
    return Ran(execution, act).text


CASES = [
    pytest.param(
        language,
        row,
        id=f"{row.name}-{language}",
        marks=pytest.mark.skipif(not shutil.which(NEEDS[language] or "sh"), reason=f"needs {NEEDS[language]}"),
    )
    for language in LANGUAGES
    for row in TABLE
    if getattr(row, language) is not None
]


@pytest.mark.parametrize(("language", "row"), CASES)
def test_a_faulty_program_ends_visibly_and_affects_no_later_one(
    language: str, row: Row, computers: dict[str, TracedComputer]
) -> None:
    """How it ends, what the console says, and that the next run prints its own output alone."""
    computer = computers[language].computer
    execution = computer.run(language, getattr(row, language))
    text = stop(row.how, execution) if row.how else Ran(execution).text
    assert execution.status in row.status.split("|"), text[-2000:]
    assert of(row.words, language) in text, text[-2000:]
    lost = of(row.state_lost, language)
    assert (execution.state_lost, "are lost" in text) == (lost, lost and not row.how.startswith("c")), text[-2000:]
    for _ in range(2):
        again = run(computer, language, HELLO[language])
        assert (again.text, again.status) == ("hello\n", "completed")
