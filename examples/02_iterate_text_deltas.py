"""No handler at all: iterate over the text as it arrives, or over all events.

    python examples/02_iterate_text_deltas.py

Without OPENAI_API_KEY a scripted model answers, on this machine; with it, OpenAI does.
"""

from __future__ import annotations

from collections import Counter

from _model import model

import streamkit as sk
from streamkit.testing import Reply

SCRIPT = Reply("One, two, three, four, five.", delay=0.02)

with model(SCRIPT) as (client, name):

    def ask() -> object:
        return client.responses.create(model=name, input="Count to five in words.", stream=True)

    with sk.stream(ask) as stream:
        for text in stream.text_deltas:
            print(text, end="", flush=True)
    print()

    with sk.stream(ask) as stream:
        kinds = Counter(event.type for event in stream)
    print(", ".join(f"{kind} {count}" for kind, count in kinds.items()))
