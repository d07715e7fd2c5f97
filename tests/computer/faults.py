"""The faults that code can have, in each language: the code, how its run has to end, and what the console has to say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["FAULTS", "Fault"]

LOST = "are lost"


class Fault(NamedTuple):
    """`stopped`: it is interrupted once it printed `ready`. `seconds`: how long that may take."""

    name: str
    language: str
    code: str
    status: str
    words: str
    stopped: bool = False
    state_lost: bool = False
    seconds: float = 20.0
    options: Mapping[str, Any] = {}


_FLOOD = {"output_limit": 100_000}
_MEMORY = {"memory_limit": 150_000_000}
_SMALL_MEMORY = {"memory_limit": 60_000_000}
_BOMB = {"process_limit": 60}
_STUBBORN = "bash -c 'trap \"\" INT; echo ready; while :; do sleep 0.05; done'"

FAULTS = [
    Fault("hang", "python", "print('ready')\nimport time\ntime.sleep(600)", "interrupted", "KeyboardInterrupt", True),
    Fault("hang", "shell", "echo ready\nsleep 600\necho on", "interrupted", "KeyboardInterrupt", True),
    Fault("hang", "javascript", "console.log('ready'); await new Promise(() => {})", "interrupted", "KeyboardInterrupt", True),
    Fault("busy", "python", "print('ready')\nwhile True: pass", "interrupted", "KeyboardInterrupt", True),
    Fault("busy", "shell", "echo ready\nwhile :; do :; done", "interrupted", "KeyboardInterrupt", True),
    Fault("busy", "javascript", "console.log('ready'); while (true) {}", "interrupted", "KeyboardInterrupt", True),
    Fault("waiting for a child", "python", "print('ready')\nimport os\nos.system('sleep 600')\nos.system('sleep 600')", "interrupted", "KeyboardInterrupt", True),
    Fault("waiting for a child", "javascript", "console.log('ready'); require('child_process').spawnSync('sleep', ['600'])", "interrupted", "KeyboardInterrupt", True),
    Fault("awaiting", "python", "import asyncio\nprint('ready')\nawait asyncio.sleep(600)", "interrupted", "KeyboardInterrupt", True),
    Fault(
        "swallowed interrupt",
        "python",
        "import time\nwhile True:\n    try:\n        print('ready')\n        time.sleep(600)\n    except KeyboardInterrupt:\n        pass",
        "interrupted", LOST, True, True, 10.0,
    ),
    Fault("swallowed interrupt", "shell", "trap '' INT; echo ready; while :; do read -t 0.1 <> <(:); done", "interrupted", LOST, True, True, 10.0),
    Fault(
        "swallowed interrupt",
        "javascript",
        f"require('child_process').execSync(`{_STUBBORN}`, {{ stdio: 'inherit' }})",
        "interrupted", LOST, True, True, 10.0,
    ),
    Fault("time", "python", "while True: pass", "timed_out", "timed out", options={"timeout": 0.4}),
    Fault("time", "shell", "sleep 600", "timed_out", "timed out", options={"timeout": 0.4}),
    Fault("time", "javascript", "while (true) {}", "timed_out", "timed out", options={"timeout": 0.4}),
    Fault("exit", "python", "import os\nprint('ready')\nos._exit(3)", "died", "exit status 3", state_lost=True),
    Fault("exit", "shell", "echo ready; exit 3", "failed", "exit status 3", state_lost=True),
    Fault("exit", "javascript", "console.log('ready'); process.exit(3)", "failed", "exit status 3", state_lost=True),
    Fault("death", "python", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "died", "signal 9", state_lost=True),
    Fault("death", "shell", "kill -9 $$", "died", "signal 9", state_lost=True),
    Fault("death", "javascript", "process.kill(process.pid, 'SIGKILL'); while (true) {}", "died", "signal 9", state_lost=True),
    Fault("flood", "python", "while True: print('ready' * 20)", "limit", "output limit", options=_FLOOD),
    Fault("flood", "shell", "yes ready", "limit", "output limit", options=_FLOOD),
    Fault("flood", "javascript", "while (true) console.log('ready')", "limit", "output limit", options=_FLOOD),
    Fault("memory", "python", "x = []\nwhile True: x.append(b'x' * 1_000_000)", "limit", "memory limit", state_lost=True, options=_MEMORY),
    Fault("memory", "shell", 'while :; do x+=("$(printf %01000000d 0)"); done', "limit", "memory limit", state_lost=True, options=_SMALL_MEMORY),
    Fault("memory", "javascript", "const x = []; while (true) x.push(Buffer.alloc(1e6, 1))", "limit", "memory limit", state_lost=True, options=_MEMORY),
    Fault("input", "python", "input('your name? ')", "failed", "EOFError"),
    Fault("input", "shell", 'read name; echo "ready [$name]"', "completed", "ready []"),
    Fault("input", "javascript", "JSON.stringify(require('fs').readFileSync(0, 'utf8'))", "completed", '""'),
    Fault(
        "children left behind",
        "python",
        "import subprocess, time\nsubprocess.Popen(['setsid', 'sleep', '600'])\n"
        "subprocess.run('(setsid setsid sleep 600 &) &', shell=True)\nprint('ready')\ntime.sleep(600)",
        "interrupted", "KeyboardInterrupt", True,
    ),
    Fault("children left behind", "shell", "(setsid sleep 600 &) & sleep 600 & echo ready; wait", "interrupted", "KeyboardInterrupt", True),
    Fault(
        "children left behind",
        "javascript",
        "const c = require('child_process'); c.spawn('sleep', ['600'], { detached: true, stdio: 'inherit' }).unref();"
        "console.log('ready'); while (true) {}",
        "interrupted", "KeyboardInterrupt", True,
    ),
    Fault(
        "fork bomb",
        "python",
        "import os, time\nfor _ in range(200):\n    if os.fork() == 0:\n        time.sleep(600)\ntime.sleep(600)",
        "limit", "process limit", state_lost=True, options=_BOMB,
    ),
    Fault("fork bomb", "shell", "for i in $(seq 200); do sleep 600 & done; wait", "limit", "process limit", state_lost=True, options=_BOMB),
    Fault(
        "fork bomb",
        "javascript",
        "const c = require('child_process'); for (let i = 0; i < 200; i++) c.spawn('sleep', ['600']); await new Promise(() => {})",
        "limit", "process limit", state_lost=True, options=_BOMB,
    ),
]  # fmt: skip
