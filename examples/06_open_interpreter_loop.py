"""Open Interpreter: its chunk loop, turned into a handler that decides whether code runs.

    python examples/06_open_interpreter_loop.py

Without OPENAI_API_KEY a small generator stands in for the interpreter and runs nothing; with it (and
`pip install open-interpreter`), the real one answers, and runs the code that you approve. Before:

    for chunk in interpreter.chat("What is 34/24?", stream=True, display=False):
        if chunk.get("type") == "message" and "content" in chunk:
            print(chunk["content"], end="")
        elif chunk.get("type") == "code" and "content" in chunk:
            print(chunk["content"], end="")
        elif chunk.get("type") == "console" and chunk.get("format") == "output" and "content" in chunk:
            print(chunk["content"], end="")
        elif chunk.get("type") == "confirmation":
            if input("Run this code? [y/N] ") != "y":
                break  # going on approves it
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import streamkit as sk


class Terminal(sk.EventHandler):
    """What the loop did, a hook for each of its branches."""

    def on_message_created(self, message: sk.Message) -> None:
        print(f"\n[{message.type}] ", end="")

    def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        print(delta.value, end="", flush=True)

    def on_code_delta(self, delta: sk.CodeDelta, snapshot: sk.CodeMessage) -> None:
        print(delta.value, end="", flush=True)

    def on_console_output(self, delta: sk.ConsoleDelta, snapshot: sk.ConsoleMessage) -> None:
        print(delta.value, end="", flush=True)

    def on_confirmation(self, confirmation: sk.Confirmation) -> None:
        try:
            answer = input("\nRun this code? [y/N] ")
        except EOFError:  # stdin is closed
            answer = ""
        confirmation.approve() if answer == "y" else confirmation.decline("the user said no")


def chat(question: str) -> Iterator[dict[str, Any]]:
    """The chunks of `interpreter.chat(question, stream=True, display=False)`."""
    if os.environ.get("OPENAI_API_KEY"):
        from interpreter import interpreter  # type: ignore  # pip install open-interpreter

        yield from interpreter.chat(question, stream=True, display=False)  # pyright: ignore
    else:
        yield from scripted()


def scripted() -> Iterator[dict[str, Any]]:
    """Chunks as Open Interpreter makes them. As there, pulling past the confirmation approves it."""
    text = {"role": "assistant", "type": "message"}
    code = {"role": "assistant", "type": "code", "format": "python"}
    console = {"role": "computer", "type": "console"}
    source = "print(round(34 / 24, 3))"
    yield {**text, "start": True}
    yield from ({**text, "content": piece} for piece in ("Let me ", "calculate ", "that."))
    yield {**text, "end": True}
    yield {**code, "start": True}
    yield from ({**code, "content": piece} for piece in ("print(", "round(", "34 / 24, ", "3))"))
    yield {**code, "end": True}
    question = {"type": "code", "format": "python", "content": source}
    yield {"role": "computer", "type": "confirmation", "format": "execution", "content": question}
    yield {**console, "start": True}
    yield {**console, "format": "active_line", "content": 1}
    yield {**console, "format": "output", "content": f"{round(34 / 24, 3)}\n"}  # what the code would print
    yield {**console, "format": "active_line", "content": None}
    yield {**console, "end": True}
    yield {**text, "start": True}
    yield from ({**text, "content": piece} for piece in ("34/24 is ", "about ", "1.417."))
    yield {**text, "end": True}


if __name__ == "__main__":
    stream = sk.stream(chat("What is 34/24?"), Terminal())
    messages = stream.get_final_messages()
    print(f"\n({len(messages)} messages; {', '.join(c.status for c in stream.confirmations) or 'no confirmation'})")
