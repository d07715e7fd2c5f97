"""A scripted model in a process of its own, so that what it remembers is not counted as the application's.

    python -m tests.endurance.model

It prints its address, and ends with its standard input.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator

from streamkit.testing import ModelServer, Reply, Request, ToolCall

__all__ = ["model", "reply_to"]

OUTPUTS = ('"tool_result"', '"function_call_output"', '"role": "tool"')
REPLIES = {
    "careful": Reply("I will.", ToolCall("careful", {"n": 1})),
    "weather": Reply(ToolCall("weather", {"city": "Oslo"}), ToolCall("weather", {"city": "Rome"})),
    "code": Reply(ToolCall("execute", {"language": "shell", "code": "echo 1"})),
    "hang": Reply("Once ", "upon ", "a time", never_ends=True),
    "slow": Reply(*(f"{number} " for number in range(20)), delay=0.02),
    "cut": Reply("Half of ", "it", "and more", cut_after=1),
    "error": Reply("Half of ", "it", "and more", error_after=1),
    "refused": Reply(status=500),
}


def reply_to(request: Request) -> Reply:
    """What the model answers to the last thing that the client sent, in whatever API."""
    items = request.body["messages"] if "messages" in request.body else request.body["input"]
    last = items if isinstance(items, str) else json.dumps(items[-1])
    if any(word in last for word in OUTPUTS):
        return Reply("It ", "did.")
    return next((reply for word, reply in REPLIES.items() if word in last), Reply("You said hello. " * 20))


@contextlib.contextmanager
def model() -> Iterator[str]:
    """The model, as a child process. Gives its address."""
    command = [sys.executable, "-m", __name__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


def main() -> None:
    """The command."""
    with ModelServer(reply_to) as server:
        print(server.root_url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
