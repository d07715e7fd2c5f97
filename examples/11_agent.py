"""An agent: a model that calls Python functions and runs code on this machine, as one stream.

    python examples/11_agent.py

Without OPENAI_API_KEY a scripted model answers, on this machine; with it, OpenAI does. Code runs only after a yes. (It
needs `pip install "streamkit-sdk[computer]"`.)
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from _model import model

import streamkit as sk
from streamkit.agent import progress
from streamkit.computer import Computer
from streamkit.testing import Reply, Text, ToolCall

CODE = "temperatures = [12, 17, 14]\nprint(sum(temperatures) / len(temperatures))"
SCRIPT = (
    Reply(ToolCall("get_temperatures", {"city": "Oslo"})),
    Reply(Text("Let me compute that."), ToolCall("execute", {"language": "python", "code": CODE})),
    Reply("On average it had 14.3 degrees."),
    Reply("You asked about Oslo."),
)


def get_temperatures(city: str, days: int = 3) -> list[int]:
    """The temperatures of the last days.

    Args:
        city: the city's name
        days: how many
    """
    progress(f"looking at {city} …")
    return [12, 17, 14][:days]


class Terminal(sk.EventHandler):
    """Shows what happens, and asks before code runs."""

    def on_message_created(self, message: sk.Message) -> None:
        if message.type != "tool_call" or message.name != "execute":  # its code is a message of its own
            print(f"\n[{message.type}] ", end="")

    def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        print(delta, end="", flush=True)

    def on_code_delta(self, delta: sk.CodeDelta, snapshot: sk.CodeMessage) -> None:
        print(delta, end="", flush=True)

    def on_console_output(self, delta: sk.ConsoleDelta, snapshot: sk.ConsoleMessage) -> None:
        print(delta, end="", flush=True)

    def on_tool_call_done(self, call: sk.ToolCallMessage) -> None:
        if call.name != "execute":
            print(f"{call.name}({call.content})", end="")

    def on_tool_output_delta(self, delta: sk.ToolOutputDelta, snapshot: sk.ToolOutputMessage) -> None:
        print(f"{delta} ", end="", flush=True)

    def on_confirmation(self, confirmation: sk.Confirmation) -> None:
        try:
            answer = input("\nRun this code? [y/N] ")
        except EOFError:  # stdin is closed
            answer = ""
        confirmation.approve() if answer == "y" else confirmation.decline("the user said no")


with model(*SCRIPT) as (client, name), Computer() as computer:
    agent = sk.Agent(client, model=name, tools=[get_temperatures], computer=computer)
    stream = agent.stream("How warm was it in Oslo, on average? Use Python.", Terminal())
    stream.until_done()
    print(f"\n({len(stream.get_final_run_steps())} steps, {stream.status})")

    # The conversation is a list of flat messages. It can be saved, and goes on elsewhere.
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "conversation.json"
        agent.save(path)
        another = sk.Agent(client, model=name)
        another.load(path)
        print(another.stream("Which city was that?").get_final_text())
