"""The answers of the scripted model of `streamkit demo` and `streamkit serve`, one for each question that the page offers."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

from ..protocols.values import as_list
from ..testing import Reasoning, Reply, Text, ToolCall
from ..testing.requests import Request

__all__ = ["CHART", "QUESTIONS", "reply_to"]

QUESTIONS = (
    "What does one turn of a sine look like?",
    "Which primes are below 50? Compute them.",
    "What is in the folder that you run in?",
)
"""What the page offers to ask (`server/page/page.js` has the same)."""

CHART = """\
import math, time

for step in range(16):
    height = math.sin(2 * math.pi * step / 16)
    print(f"{step / 16:6.4f}  {height:+.2f}  {' ' * round(10 + 10 * height)}*")
    time.sleep(0.05)
"""
"""A sine, drawn with characters: it needs no plotting library."""

_PLOT = """\
import math
import matplotlib.pyplot as plt

turns = [step / 100 for step in range(101)]
plt.figure(figsize=(6.4, 2.8))
plt.plot(turns, [math.sin(2 * math.pi * turn) for turn in turns], label="sine")
plt.plot(turns, [math.cos(2 * math.pi * turn) for turn in turns], "--", label="cosine")
plt.xlabel("turns")
plt.grid(alpha=0.3)
plt.legend()
plt.show()
"""
_WRONG_PRIMES = """\
primes = [n for n in range(2, 50) if all(n % p for p in primes)]
print(primes)
"""
_PRIMES = """\
primes = []
for n in range(2, 50):
    if all(n % p for p in primes):
        primes.append(n)
print(*primes)
"""
_FILES = """\
from pathlib import Path

for path in sorted(Path.cwd().iterdir()):
    size = path.stat().st_size if path.is_file() else ""
    print(path.name, "folder" if path.is_dir() else "file", size, sep="\\t")
"""
_ROWS = 20  # of the table of files

_NOTE = (
    "\n> I am a scripted model with three answers. For a real one, start `streamkit serve` with `OPENAI_API_KEY` set, or with "
    "`--base-url`.\n"
)
_SINE_ANSWER = """\
A sine **rises from 0 to 1** in its first quarter, falls through 0 to -1, and comes back:

| Turn | 0 | 1/4 | 1/2 | 3/4 | 1 |
|---|--:|--:|--:|--:|--:|
| `sin` | 0 | 1 | 0 | -1 | 0 |

- It is the height of a point that goes around a circle.
- Shifted by a quarter, it is a *cosine*.
"""
_PRIMES_ANSWER = """\
There are **15 primes** below 50: the output has them.

A number is prime if no smaller prime divides it, so each number is tried with the list that is being made:

1. begin with an empty list;
2. try each number with the primes found so far;
3. keep it if none divides it.
"""


class _Script(NamedTuple):
    """An answer: the reasoning and the first text, the pieces of code in their order, and the texts between them."""

    thought: str
    begin: str
    codes: Sequence[str]
    after_failure: str
    declined: str


def reply_to(request: Request, pause: float) -> Reply:
    """Return the reply to a request of the Responses API. It waits `pause` seconds between two pieces."""
    question, outputs = _question_and_outputs(as_list(request.body.get("input")))
    script = _script(question)
    if outputs and "user declined" in outputs[-1]:
        return Reply(script.declined, delay=pause)
    if len(outputs) == len(script.codes):
        return Reply(_answer(script, outputs[-1]) + _NOTE, delay=pause)
    code = ToolCall("execute", {"language": "python", "code": script.codes[len(outputs)]})
    if outputs:
        return Reply(Text(script.after_failure), code, delay=pause)
    return Reply(Reasoning(script.thought), Text(script.begin), code, delay=pause)


def _script(question: str) -> _Script:
    """The script for this question; the one about a sine for all others."""
    if "prime" in question:
        return _Script(
            "A number is prime if no smaller prime divides it.",
            "Let me compute them.",
            (_WRONG_PRIMES, _PRIMES),
            "My list was used before it was there. Once more, step by step.",
            "Then I will not compute them. From memory: 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47.",
        )
    if "folder" in question:
        return _Script(
            "I need to look.",
            "Let me look.",
            (_FILES,),
            "",
            "Then I will not look. Without running code I cannot see your files.",
        )
    return _Script(
        "I can compute this, and draw it. A few lines of Python will do.",
        "Let me measure it, and draw it.",
        (_PLOT if find_spec("matplotlib") else CHART,),
        "",
        "Then I will not run it. In words: a sine rises from 0 to 1, falls through 0 to -1, and comes back.",
    )


def _answer(script: _Script, output: str) -> str:
    if _FILES in script.codes:
        return _table_of(output)
    return _PRIMES_ANSWER if _PRIMES in script.codes else _SINE_ANSWER


def _table_of(output: str) -> str:
    """The files that the code printed, as a table in Markdown."""
    rows = [line.split("\t") for line in output.splitlines() if line.count("\t") == 2]
    if not rows:
        return "The folder is empty.\n"
    lines = [f"| `{name}` | {kind} | {size.strip()} |" for name, kind, size in rows[:_ROWS]]
    more = f"\nThere are {len(rows) - _ROWS} more.\n" if len(rows) > _ROWS else ""
    return "\n".join(["| name | | bytes |", "|---|---|--:|", *lines]) + "\n" + more


def _question_and_outputs(items: Sequence[Any]) -> tuple[str, list[str]]:
    """The newest question of the conversation, and the outputs of code since then."""
    outputs: list[str] = []
    for item in reversed(items):
        if item.get("type") == "function_call_output":
            outputs.insert(0, str(item.get("output")))
        text = item.get("content") if item.get("role") == "user" else None
        if isinstance(text, str) and not text.endswith("was displayed:"):  # what code displayed comes as the user's
            return text, outputs
    return "", outputs
