"""Subclass a handler, override the hooks you care about, and run it over a stream.

    python examples/01_subclass_a_handler.py

Without OPENAI_API_KEY a scripted model answers, on this machine; with it, OpenAI does.
"""

from __future__ import annotations

from _model import model

import streamkit as sk
from streamkit.testing import Reasoning, Reply

SCRIPT = Reply(Reasoning("Short and true."), "Rivers remember mountains.", delay=0.02)


class Terminal(sk.EventHandler):
    """Prints reasoning and text as they arrive."""

    def on_reasoning_delta(self, delta: sk.ReasoningDelta, snapshot: sk.ReasoningMessage) -> None:
        print(delta.value, end="", flush=True)

    def on_reasoning_done(self, message: sk.ReasoningMessage) -> None:
        print("\n---")

    def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        print(delta.value, end="", flush=True)

    def on_end(self) -> None:
        print(f"\n({len(self.stream.messages)} messages, {self.stream.status})")


with model(SCRIPT) as (client, name):
    sk.stream(
        lambda: client.responses.create(model=name, input="Three words about rivers.", stream=True), Terminal()
    ).until_done()
