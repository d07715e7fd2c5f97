"""A model's code runs here: output as it happens, what it ended as, and a loop that is stopped.

    python examples/10_computer.py

Without OPENAI_API_KEY a scripted model writes the code, on this machine; with it, OpenAI does. The model's code runs
only after a yes. (It needs `pip install "streamkit-sdk[computer]"`.)
"""

from __future__ import annotations

import sys

from _model import model

import streamkit as sk
from streamkit.computer import Computer
from streamkit.testing import Reply

CODE = """\
import time
for second in (3, 2, 1):
    print(second, flush=True)
    time.sleep(0.2)
print(round(34 / 24, 3))
"""


class Terminal(sk.EventHandler):
    """Shows a run."""

    def on_active_line(self, line: int | None, snapshot: sk.ConsoleMessage | None) -> None:
        if line is None:
            print("[nothing runs]")

    def on_console_output(self, delta: sk.ConsoleDelta, snapshot: sk.ConsoleMessage) -> None:
        print(delta.value, end="", flush=True)


with Computer(timeout=60) as computer, model(Reply(CODE)) as (client, name):
    computer.start("python")  # while the model still writes
    question = "Count down from 3, then print 34/24 in Python. Answer with the code alone."
    answer = sk.stream(
        lambda: client.chat.completions.create(
            model=name, messages=[{"role": "user", "content": question}], stream=True
        )
    )
    code = answer.get_final_text()
    print(code)
    print("Run this code? [y/N] ", end="", flush=True)
    if sys.stdin.readline().strip().lower() == "y":
        execution = computer.run("python", code)
        sk.stream(execution, Terminal()).until_done()
        print(f"({execution.status})")

    stopped = computer.run("python", "while True: pass", timeout=0.5)
    sk.stream(stopped, Terminal()).until_done()
    print(f"({stopped.status}; the state is {'lost' if stopped.state_lost else 'kept'})")
