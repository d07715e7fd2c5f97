"""Chat Completions, as vLLM, Ollama, llama.cpp, OpenRouter and many others serve it: the same handler, one call changed.

    python examples/07_compatible_server.py

Without OPENAI_API_KEY a scripted model answers, on this machine; with it, OpenAI does, or the server that
OPENAI_BASE_URL names, e.g. http://localhost:11434/v1 (its OPENAI_MODEL; most take any key).
"""

from __future__ import annotations

from _model import model

import streamkit as sk
from streamkit.testing import Reasoning, Reply

SCRIPT = Reply(Reasoning("They want a number."), "Forty-two.", delay=0.02)


class Terminal(sk.EventHandler):
    """Prints the text; reasoning (`reasoning_content`, where the server sends it) in brackets before it."""

    def on_reasoning_done(self, message: sk.ReasoningMessage) -> None:
        print(f"({message.content})")

    def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        print(delta.value, end="", flush=True)

    def on_usage(self, usage: sk.Usage) -> None:
        print(f"\n{usage.input_tokens} tokens in, {usage.output_tokens} out")


with model(SCRIPT) as (client, name):
    sk.stream(
        lambda: client.chat.completions.create(
            model=name,
            messages=[{"role": "user", "content": "What is six times seven?"}],
            stream=True,
            stream_options={"include_usage": True},
        ),
        Terminal(),
    ).until_done()
