"""Typed output: the answer is JSON, which is shown while it arrives, and is a value of your own type in the end.

    python examples/15_typed_output.py

Without OPENAI_API_KEY a scripted model answers, on this machine; with it, OpenAI does.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from _model import model

import streamkit as sk
from streamkit.testing import Reply


@dataclass
class Step:
    minutes: int
    text: str


@dataclass
class Recipe:
    title: str
    steps: list[Step]


EGG = Recipe("A boiled egg", [Step(4, "Boil the egg."), Step(1, "Peel it.")])
SCRIPT = (
    Reply(json.dumps(asdict(EGG))),
    Reply('{"title": "Tea"}'),  # not a recipe: the agent asks again
    Reply('{"title": "Tea", "steps": [{"minutes": 3, "text": "Let it draw."}]}'),
    Reply(json.dumps({"value": [asdict(step) for step in EGG.steps]})),
)


class Form(sk.EventHandler):
    """Shows the recipe while it is written."""

    def __init__(self) -> None:
        self.shown = 0

    def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        partial = self.stream.partial_output
        steps = partial.get("steps", []) if isinstance(partial, dict) else []
        if len(steps) > self.shown:
            self.shown = len(steps)
            print(f"step {self.shown} begins …")

    def on_warning(self, warning: sk.StreamWarning) -> None:
        print(f"({warning.code})")


with model(*SCRIPT) as (client, name):
    agent = sk.Agent(client, model=name, output_type=Recipe)
    try:
        recipe = agent.stream("How do I boil an egg?", Form()).get_final_output()
        print(f"{recipe.title}: {sum(step.minutes for step in recipe.steps)} minutes")

        print(agent.stream("And tea?", Form()).get_final_output().title)

        with agent.stream("The steps of the first, one by one.", output_type=list[Step]) as stream:
            for step in stream.output_items():
                print(f"- {step.text} ({step.minutes} min)")
    except sk.OutputError as error:
        print(f"no output ({error.reason}): {error.text}")
