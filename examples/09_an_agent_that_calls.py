"""An agent that calls rather than yields, in a thread of its own; two readers, one of which comes late.

    python examples/09_an_agent_that_calls.py

Without OPENAI_API_KEY a scripted model answers, on this machine; with it, OpenAI does.
"""

from __future__ import annotations

import threading

import openai
from _model import model

import streamkit as sk
from streamkit.testing import Reply

SCRIPT = Reply("About ", "1.417.", delay=0.02)


def agent(emitter: sk.Emitter, client: openai.OpenAI, name: str) -> None:
    """Calls the emitter as it goes along. An exception in here would fail the streams of its readers."""
    with emitter:
        emitter.reasoning("A division.")
        emitter.code("print(round(34 / 24, 3))", "python")
        if emitter.confirm():
            emitter.console("1.417\n")
        for chunk in client.chat.completions.create(
            model=name, messages=[{"role": "user", "content": "34/24, roughly?"}], stream=True
        ):
            emitter.feed(chunk)


class Reader(sk.EventHandler):
    """Prints each finished message, and approves what wants to run."""

    def on_message_done(self, message: sk.Message) -> None:
        print(f"[{message.type}] {message.content.strip()}")

    def on_confirmation(self, confirmation: sk.Confirmation) -> None:
        confirmation.approve()


with model(SCRIPT) as (client, name):
    emitter = sk.Emitter()
    thread = threading.Thread(target=agent, args=(emitter, client, name))
    thread.start()
    first = sk.stream(emitter, Reader())
    first.until_done()
    thread.join()

late = sk.stream(emitter)
print(f"the late reader has the same: {late.get_final_messages() == first.get_final_messages()}")
