"""Several handlers on one stream: one prints, one records, one shows progress but not too often.

    python examples/05_several_observers.py

Without OPENAI_API_KEY a scripted model answers, on this machine; with it, OpenAI does.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from _model import model

import streamkit as sk
from streamkit.testing import Reply

SCRIPT = Reply("Tea wakes gently, coffee knocks twice, and water keeps the two of them alive.", delay=0.02)


class Printer(sk.EventHandler):
    """Prints the text as it arrives."""

    def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        print(delta.value, end="", flush=True)

    def on_text_done(self, message: sk.TextMessage) -> None:
        print()


class Progress(sk.EventHandler):
    """Stands for a handler that is slow, so it gets few, larger updates."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        self.lengths.append(len(snapshot.content))


with model(SCRIPT) as (client, name), tempfile.TemporaryDirectory() as folder:
    recording = Path(folder) / "drinks.jsonl"
    progress = Progress()
    stream = sk.stream(
        lambda: client.responses.create(model=name, input="One line about drinks.", stream=True),
        Printer(),
        sk.Recorder(recording),
        sk.Throttled(progress, 0.1),
    )
    stream.until_done()
    print(f"progress: {len(progress.lengths)} updates for {stream.timing.deltas} deltas: {progress.lengths}")
    print("recorded:", sk.stream(recording).get_final_text())
