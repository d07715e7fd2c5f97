"""The core where the modules of POSIX are missing, as on Windows: it imports and streams."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

HIDDEN = ["fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"]

STREAMS = f"""
import os, sys
for name in {HIDDEN!r}:
    sys.modules[name] = None
for name in ("register_at_fork", "fork", "killpg", "setsid", "getuid", "geteuid"):
    if hasattr(os, name):
        delattr(os, name)

import asyncio
import openai
import streamkit as sk
from streamkit import agent, renderers
from streamkit.testing import ModelServer, Reply

class Handler(sk.EventHandler):
    def on_text_delta(self, delta, snapshot):
        print(delta, end="")

with ModelServer([Reply("Hello "), Reply("there"), Reply(".")]) as server:
    client = openai.OpenAI(base_url=server.url, api_key="k")
    ask = lambda: client.chat.completions.create(model="m", messages=[], stream=True)
    sk.stream(ask, Handler()).until_done()
    asyncio.run(sk.astream(ask, Handler()).until_done())
    sk.Agent(client, model="m").stream("?", Handler()).until_done()
"""


def test_the_core_imports_and_streams_without_posix() -> None:
    """On a thread, on asyncio, and with an agent."""
    done = subprocess.run([sys.executable, "-c", STREAMS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Hello there."
