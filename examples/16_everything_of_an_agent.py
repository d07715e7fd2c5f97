"""Everything of an agent: two tools, one slow and one that asks; another agent; typed output; limits; and the way on.

    python examples/16_everything_of_an_agent.py

Without OPENAI_API_KEY a scripted model answers, on this machine; with it, OpenAI does. The note is written only after a yes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from _model import model

import streamkit as sk
from streamkit.agent import ToolContext, progress
from streamkit.testing import Reply, ToolCall

SCRIPT = (
    Reply(ToolCall("geographer", {"input": "Where is Oslo?"}), ToolCall("temperatures", {"city": "Oslo"})),
    Reply("In Norway, by the sea."),
    Reply(ToolCall("note", {"text": "Oslo: 14.5 degrees"})),
    Reply('{"city": "Oslo", "degrees": [12.0, 17.5, 14.0], "advice": "Take a coat."}'),
    Reply("Oslo."),
)


@dataclass
class Report:
    city: str
    degrees: list[float]
    advice: str


@dataclass
class Diary:
    notes: list[str] = field(default_factory=list)


def temperatures(city: str, days: int = 3) -> list[float]:
    """The temperatures of the last days.

    Args:
        city: the city's name
        days: how many
    """
    for day in range(days):
        progress(f"day {day + 1} …")
        time.sleep(0.1)
    return [12.0, 17.5, 14.0][:days]


@sk.tool(confirm=True)
def note(text: str, context: ToolContext[Diary]) -> str:
    """Writes something into the user's diary."""
    context.deps.notes.append(text)
    return "written"


class Terminal(sk.EventHandler):
    def on_tool_call_done(self, call: sk.ToolCallMessage) -> None:
        print(f"\n{call.name}({call.content})", end=" ")

    def on_tool_output_delta(self, delta: sk.ToolOutputDelta, snapshot: sk.ToolOutputMessage) -> None:
        print(delta, end=" ", flush=True)

    def on_confirmation(self, confirmation: sk.Confirmation) -> None:
        answer = input("\nMay it? [y/N] ")
        confirmation.approve() if answer == "y" else confirmation.decline("the user said no")


with model(*SCRIPT) as (client, name), TemporaryDirectory() as folder:
    geographer = sk.Agent(client, model=name, name="geographer", instructions="You know where things are.")
    agent = sk.Agent(
        client,
        model=name,
        tools=[temperatures, note, geographer.as_tool(description="Answers questions of geography.")],
        output_type=Report,
        max_steps=8,
        max_total_tokens=50_000,
        timeouts=60,
    )
    diary = Diary()
    stream = agent.stream("How is Oslo? Note the average.", Terminal(), deps=diary)
    try:
        print(f"\n{stream.get_final_output()}\n{diary}, {stream.usage and stream.usage.total_tokens} tokens")
    except sk.OutputError as error:
        print(f"\nNo report: {error}")

    agent.save(Path(folder) / "conversation.json")
    another = sk.Agent(client, model=name)  # elsewhere, perhaps of another provider
    another.load(Path(folder) / "conversation.json")
    print(another.stream("Which city was that?").get_final_text())
