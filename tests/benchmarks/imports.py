"""What a process pays once: imports, and the first stream."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from .measuring import Profile, Row, interleaved, numbered

TITLE = "Starting a process"
ABOUT = """\
CPU time of a fresh interpreter that does this and ends, less that of one that does nothing. streamkit imports msgspec and
anyio, and no client before one is used; the baseline is these two."""

NOTHING, BASE = "nothing", "import msgspec, anyio"
FIRST = """
import streamkit as sk
body = [b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hi"}}]}\\n\\n',
        b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\\n\\n']
assert sk.stream(body).get_final_text() == "hi"
"""
PROGRAMS = {
    NOTHING: "pass",
    BASE: "import msgspec, anyio",
    "import streamkit": "import streamkit",
    "import streamkit, and a first stream": FIRST,
    "import openai": "import openai",
    "import anthropic": "import anthropic",
}


def milliseconds(program: str) -> float:
    environment = {
        k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"
    }  # compiled before, as installed
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def rows(profile: Profile) -> Iterator[Row]:
    programs = {name: partial(milliseconds, program) for name, program in PROGRAMS.items()}
    for program in programs.values() if profile.pick(False, True, True) else ():
        program()  # compiles what was not compiled yet
    values = interleaved(programs, profile.pick(1, 2, 7))
    nothing = values.pop(NOTHING)
    yield from numbered({name: value - nothing for name, value in values.items()}, "a new process", "ms", BASE)
