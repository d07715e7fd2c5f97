"""An agent as a tool of another one: an editor asks a researcher, whose work comes on the same stream.

    python examples/14_agent_as_a_tool.py

Without OPENAI_API_KEY a scripted model answers, on this machine; with it, OpenAI does.
"""

from __future__ import annotations

from _model import model

import streamkit as sk
from streamkit.testing import Reply, Text, ToolCall

SCRIPT = (
    Reply(Text("I ask the researcher."), ToolCall("research", {"input": "When was Oslo founded?"})),
    Reply(ToolCall("search", {"query": "Oslo history"})),
    Reply("Around the year 1040."),
    Reply("Oslo was founded around 1040."),
)


def search(query: str) -> str:
    """Search the library."""
    return "Oslo: founded around 1040 by Harald Hardrada."


class Terminal(sk.EventHandler):
    """Indents what the inner agent says and does."""

    def on_message_done(self, message: sk.Message) -> None:
        indent = "" if message.parent_id is None else "    "
        name = f"{message.name}: " if message.name else ""
        print(f"{indent}[{message.type}] {name}{message.content}")


def main() -> None:
    with model(*SCRIPT) as (client, name):
        researcher = sk.Agent(client, model=name, name="research", tools=[search], max_steps=5)
        tool = researcher.as_tool(description="Looks something up, and answers in a sentence.")
        editor = sk.Agent(client, model=name, tools=[tool])
        stream = editor.stream("Write a sentence about Oslo's age. Ask the researcher.", Terminal())
        text = stream.get_final_text()
    print(f"({len(stream.get_final_run_steps())} steps, the answer has {len(text.split())} words)")


if __name__ == "__main__":
    main()
