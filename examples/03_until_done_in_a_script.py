"""In a script: the final text, the final messages, and what arrived before a stream failed.

    python examples/03_until_done_in_a_script.py

Without OPENAI_API_KEY a scripted model answers, on this machine, and breaks off in its third answer; with it, OpenAI
answers all three.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from _model import model

import streamkit as sk
from streamkit.testing import Reasoning, Reply

SCRIPT = (
    Reply("Canberra."),
    Reply(Reasoning("Not Sydney."), "Canberra, since 1913."),
    Reply("Canberra is the capital because Sydney and Melbourne both wanted to be.", cut_after=6),
)


def text_of(ask: Callable[[], object]) -> str:
    """The answer's text, or as much of it as arrived."""
    try:
        return sk.stream(ask).get_final_text()
    except sk.StreamkitError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        partial = "".join(message.content for message in error.messages if isinstance(message, sk.TextMessage))
        return f"{partial} … (incomplete)"


with model(*SCRIPT) as (client, name):

    def question(text: str) -> Callable[[], object]:
        return lambda: client.responses.create(model=name, input=text, stream=True)

    print("text:", text_of(question("What is the capital of Australia?")))

    stream = sk.stream(question("What is the capital of Australia, and since when?"))
    stream.until_done()
    for message in stream.get_final_messages():
        print("message:", message.type, message.status, repr(message.content))
    print("run:", stream.get_final_run().status, "in", f"{stream.timing.duration or 0:.2f} s")

    print("text:", text_of(question("Why is Canberra the capital of Australia?")))
