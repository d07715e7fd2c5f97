"""Text and code out of a tool call's arguments, while they stream: `fields=`.

    python examples/08_text_inside_a_tool_call.py

Without OPENAI_API_KEY a scripted model answers, on this machine; with it, OpenAI does.
"""

from __future__ import annotations

from _model import model

import streamkit as sk
from streamkit.testing import Reply, ToolCall

ARGUMENTS = {"thoughts": "They want a plan.", "message": "Boil water, then\nwait four minutes."}
SCRIPT = Reply(ToolCall("send_message", ARGUMENTS), delay=0.02)
TOOL = {
    "type": "function",
    "function": {
        "name": "send_message",
        "description": "The only way to say something to the user.",
        "parameters": {
            "type": "object",
            "properties": {"thoughts": {"type": "string"}, "message": {"type": "string"}},
            "required": ["thoughts", "message"],
        },
    },
}


class Terminal(sk.EventHandler):
    """Prints thoughts and text; it need not know that they came in a tool call."""

    def on_reasoning_delta(self, delta: sk.ReasoningDelta, snapshot: sk.ReasoningMessage) -> None:
        print(delta.value, end="", flush=True)

    def on_text_created(self, message: sk.TextMessage) -> None:
        print("\n> ", end="")

    def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        print(delta.value, end="", flush=True)


with model(SCRIPT) as (client, name):
    stream = sk.stream(
        lambda: client.chat.completions.create(  # type: ignore[call-overload]
            model=name,
            messages=[{"role": "user", "content": "How do I boil an egg?"}],
            tools=[TOOL],
            stream=True,
        ),
        Terminal(),
        fields={"send_message.thoughts": "reasoning", "send_message.message": "text"},
    )
    text = stream.get_final_text()
print(f"\n({len(text)} characters, {len(stream.messages)} messages)")
