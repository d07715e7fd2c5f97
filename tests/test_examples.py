"""Every example runs without a key, and shows what its docstring promises."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamkit.testing import ModelServer, Reply

from .forked import Forks

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("[!_]*.py"))
CLEAN = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}

# What is on stdout, in this order, for the answers on stdin.
SHOWN = {
    "01_subclass_a_handler": ("", ["Short and true.\n---\nRivers remember mountains.\n(2 messages, completed)\n"]),
    "02_iterate_text_deltas": ("", ["One, two, three, four, five.\n", "text_created 1, text_delta 8, text_done 1"]),
    "03_until_done_in_a_script": (
        "",
        [
            "text: Canberra.\n",
            "message: reasoning completed 'Not Sydney.'\n",
            "message: message completed 'Canberra, since 1913.'\n",
            "run: completed in ",
            "text: Canberra is the capital … (incomplete)\n",
        ],
    ),
    "04_async": (
        "",
        [
            'call: get_weather {"city": "Oslo"}\n',
            'call: get_weather {"city": "Rome"}\n',
            "output: rain\n",
            "output: sun\n",
            "It rains in Oslo, and the sun shines in Rome.\n(5 messages, completed)\n",
        ],
    ),
    "05_several_observers": (
        "",
        [
            "Tea wakes gently, coffee knocks twice, and water keeps the two of them alive.\n",
            " updates for 22 deltas: ",
            "77]\n",
            "recorded: Tea wakes gently, coffee knocks twice, and water keeps the two of them alive.\n",
        ],
    ),
    "06_open_interpreter_loop": (
        "y\n",
        [
            "[message] Let me calculate that.\n",
            "[code] print(round(34 / 24, 3))\n",
            "Run this code? [y/N] ",
            "[console] 1.417\n",
            "[message] 34/24 is about 1.417.\n(4 messages; approved)\n",
        ],
    ),
    "08_text_inside_a_tool_call": (
        "",
        ["They want a plan.\n> Boil water, then\nwait four minutes.\n(35 characters, 3 messages)\n"],
    ),
    "09_an_agent_that_calls": (
        "",
        [
            "[reasoning] A division.\n[code] print(round(34 / 24, 3))\n[console] 1.417\n[message] About 1.417.\n",
            "the late reader has the same: True\n",
        ],
    ),
    "11_agent": (
        "y\n",
        [
            '[tool_call] get_temperatures({"city": "Oslo"})\n[tool_output] looking at Oslo … [12,17,14] \n',
            "[code] temperatures = [12, 17, 14]\n",
            "Run this code? [y/N] ",
            "[console] 14.333333333333334\n",
            "[message] On average it had 14.3 degrees.\n(3 steps, completed)\nYou asked about Oslo.\n",
        ],
    ),
    "12_open_interpreter": (
        "y\n",
        [
            "[message] Let me calculate that.\n[code] print(round(34 / 24, 3))\n",
            "Run this code? [y/N] ",
            "[console] 1.417\n",
            "[message] 34/24 is about 1.417.\n(5 messages)\n",
        ],
    ),
    "10_computer": (
        "y\n",
        [
            "Run this code? [y/N] ",
            "3\n2\n1\n1.417\n[nothing runs]\n(completed)\n",
            "[timed out: the run was stopped after 0.5 seconds]",
            "(timed_out; the state is kept)\n",
        ],
    ),
    "15_typed_output": (
        "",
        [
            "step 1 begins …\nstep 2 begins …\nA boiled egg: 5 minutes\n(output-invalid)\nstep 1 begins …\nTea\n",
            "- Boil the egg. (4 min)\n- Peel it. (1 min)\n",
        ],
    ),
    "16_everything_of_an_agent": (
        "y\n",
        [
            'geographer({"input": "Where is Oslo?"}) \ntemperatures({"city": "Oslo"}) In Norway, by the sea. ',
            "day 1 … day 2 … day 3 … [12.0,17.5,14.0] \n",
            "May it? [y/N] written \n",
            "Report(city='Oslo', degrees=[12.0, 17.5, 14.0], advice='Take a coat.')\n",
            "Diary(notes=['Oslo: 14.5 degrees']), 87 tokens\nOslo.\n",
        ],
    ),
    "13_server": (
        "",
        [
            'I will book it. \nbook({"city": "Oslo"})? yes\n(approved)\n',
            "Your room in Oslo is booked.\n(the run is completed; ",
        ],
    ),
    "14_agent_as_a_tool": (
        "",
        [
            '[message] I ask the researcher.\n[tool_call] research: {"input": "When was Oslo founded?"}\n'
            '    [tool_call] search: {"query": "Oslo history"}\n',
            "    [message] Around the year 1040.\n[tool_output] research: Around the year 1040.\n",
            "[message] Oslo was founded around 1040.\n(2 steps, the answer has 5 words)\n",
        ],
    ),
    "migrate_assistant": (
        "",
        [
            f"== {api}\nassistant > code_interpreter\n\nprint((121 + 11) / 3)\n\noutput > 44.0\n\n"
            "assistant > The answer is 44.\n"
            for api in ("Assistants", "Responses", "Anthropic")
        ],
    ),
    **{
        f"sse_{framework}": (
            "",
            [
                "retry: 1000\n",
                'data: {"type":"start",',
                '"type":"text-delta","id":"msg_1_0","delta":"Beca"',
                "saved: Because blue light is scattered the most.\n",
                "data: [DONE]\n",
            ],
        )
        for framework in ("aiohttp", "django_asgi", "django_wsgi", "fastapi", "flask", "starlette")
    },
    "07_compatible_server": ("", ["(They want a number.)\nForty-two.\n10 tokens in, 8 out\n"]),
}


# Without those that know no real API, and with one of those of web frameworks, which ask in the same way.
WITH_A_KEY = [
    path
    for path in EXAMPLES
    if "open_interpreter" not in path.stem and (path.stem == "sse_flask" or not path.stem.startswith("sse_"))
]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def forked(programs: Forks) -> Run:
    """Runs an example in a process of its own, in which the client is imported already."""

    def run(path: Path, answers: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return programs.run(str(path), env=CLEAN | environment, answers=answers, cwd=ROOT)

    return run


def run(path: Path, answers: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """An example, as a person starts it."""
    command = [sys.executable, str(path)]
    return subprocess.run(
        command, env=CLEAN | environment, input=answers, capture_output=True, text=True, timeout=300, cwd=ROOT
    )


def quick_first(paths: list[Path]) -> list[Any]:
    """Each path as a parameter; all but the first are slow."""
    return [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path != paths[0] else []) for path in paths]


@pytest.mark.parametrize("path", quick_first(EXAMPLES))
def test_an_example_runs_without_a_key(path: Path, forked: Run) -> None:
    """And shows what it is an example of."""
    answers, shown = SHOWN[path.stem]
    result = (run if path == EXAMPLES[0] else forked)(path, answers)
    assert result.returncode == 0, result.stderr
    pattern = ".*?".join(map(re.escape, shown))
    assert re.search(pattern, result.stdout, re.DOTALL), result.stdout
    assert "Traceback" not in result.stderr
    assert bool(result.stderr) == (path.stem == "03_until_done_in_a_script")  # which shows a failure


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_how_it_runs(path: Path) -> None:
    """The command, and who answers with a key and without."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert f"python examples/{path.name}" in text
    assert "Without OPENAI_API_KEY" in text


@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_A_KEY, ids=lambda path: path.stem)
def test_an_example_asks_the_real_api_with_a_key(path: Path, forked: Run) -> None:
    """With that key, at the address that the client finds, and for the model that OPENAI_MODEL names."""
    with ModelServer(Reply("I am the other one.")) as server:
        result = forked(path, OPENAI_API_KEY="secret", OPENAI_BASE_URL=server.url, OPENAI_MODEL="big-one")
        requests = server.requests
    assert result.returncode == 0, result.stderr
    assert "I am the other one." in result.stdout
    assert {request.headers["authorization"] for request in requests} == {"Bearer secret"}
    assert {request.body["model"] for request in requests} == {"big-one"}


@pytest.mark.parametrize("answers", ["n\n", ""], ids=["no", "nobody there"])
def test_code_does_not_run_without_a_yes(answers: str, forked: Run) -> None:
    """The generator waits at the confirmation, and is left there."""
    result = forked(ROOT / "examples" / "06_open_interpreter_loop.py", answers)
    assert result.returncode == 0, result.stderr
    assert "Run this code?" in result.stdout
    assert "1.417" not in result.stdout
    assert result.stdout.endswith("(2 messages; declined)\n")
