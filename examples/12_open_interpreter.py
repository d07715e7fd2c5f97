"""Open Interpreter's own interface, over any model: code written for it changes its import.

    python examples/12_open_interpreter.py

Without OPENAI_API_KEY a scripted model answers, on this machine; with it, OpenAI does. (It needs
`pip install "streamkit-sdk[computer]"`.) Before:

    from interpreter import interpreter
"""

from __future__ import annotations

from _model import model

from streamkit.compat.open_interpreter import interpreter  # was: from interpreter import interpreter
from streamkit.testing import Reply, Text, ToolCall

SCRIPT = (
    Reply(
        Text("Let me calculate that."), ToolCall("execute", {"language": "python", "code": "print(round(34 / 24, 3))"})
    ),
    Reply("34/24 is about 1.417."),
)

with model(*SCRIPT) as (client, name):
    interpreter.llm.client = client  # or interpreter.llm.api_base, interpreter.llm.api_key
    interpreter.llm.model = name
    for chunk in interpreter.chat("What is 34/24?", stream=True, display=False):
        if chunk.get("start"):
            print(f"\n[{chunk['type']}] ", end="")
        elif chunk["type"] == "confirmation":
            try:
                answer = input("\nRun this code? [y/N] ")
            except EOFError:  # stdin is closed
                answer = ""
            if answer != "y":
                break  # going on approves it
        elif chunk.get("format") != "active_line" and "content" in chunk:
            print(chunk["content"], end="", flush=True)
    print(f"\n({len(interpreter.messages)} messages)")
    interpreter.reset()
