"""`streamkit doctor`: what is installed here, and whether a stream runs. Its output is made to be quoted in a bug report, so it
has no key, no address and no path.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from .._version import __version__
from ..errors import StreamkitError
from ..streams.api import stream
from ..testing import ModelServer, Reply
from .report import explain, printable

__all__ = ["run"]

DISTRIBUTION = "streamkit-sdk"
EXTRAS = ("anthropic", "chat", "computer", "live", "redis", "server")  # of users; the others are for work on streamkit
PROGRAMS = {"bash": "runs shell code", "node": "runs JavaScript"}
VARIABLES = (
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "ANTHROPIC_API_KEY",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
)
ANSWER = "All is well, as far as a scripted model can tell."
APIS = {"openai_responses": "Responses", "openai_chat": "Chat Completions"}

_WIDTH = 18  # of the column of names
_Lines = Iterator[tuple[str, str]]  # a name, and what is said of it


def run() -> int:
    """Print the report. Returns 0 if a stream over loopback arrived whole in each API, else 1."""
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    print(f"streamkit {__version__}, {platform.python_implementation()} {platform.python_version()}, {system}")
    _section("Packages", _packages())
    _section("Extras", _extras())
    _section("Programs", ((name, _program(name, use)) for name, use in PROGRAMS.items()))
    _section("Environment", ((name, "set" if _is_set(name) else "not set") for name in VARIABLES))
    faults = {protocol: _fault(protocol) for protocol in APIS}
    _section("A stream over loopback", ((APIS[name], fault or "arrived whole") for name, fault in faults.items()))
    return 1 if any(faults.values()) else 0


def _section(title: str, lines: _Lines) -> None:
    print(f"\n{title}")
    for name, text in lines:
        print(printable(f"  {name:{_WIDTH}} {text}"))


# -- what is installed


def _requirements() -> list[tuple[str, str | None]]:
    """The packages that streamkit requires, each with the extra that brings it; None for one that is always required."""
    lines = metadata.requires(DISTRIBUTION) or ()
    found: list[tuple[str, str | None]] = []
    for line in lines:
        name, extra = re.match(r"[\w.-]+", line), re.search(r"extra\s*==\s*['\"]([\w-]+)", line)
        if name is not None:
            found.append((name[0], extra[1] if extra else None))
    return found


def _packages() -> _Lines:
    try:
        required = _requirements()
    except metadata.PackageNotFoundError:
        yield DISTRIBUTION, "not installed: it runs from its source folder"
        return
    for name, extra in required:
        if extra is None:
            yield name, _version(name) or "missing"


def _extras() -> _Lines:
    with contextlib.suppress(metadata.PackageNotFoundError):
        required = _requirements()
        for extra in EXTRAS:
            names = [name for name, of in required if of == extra and name != DISTRIBUTION]
            versions = {name: _version(name) for name in names}
            if None in versions.values():
                yield extra, f"not installed: pip install '{DISTRIBUTION}[{extra}]'"
            else:
                yield extra, ", ".join(f"{name} {version}" for name, version in versions.items())


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _program(name: str, use: str) -> str:
    """The version of a program, and what it is for."""
    path = shutil.which(name)
    if path is None:
        return f"not found ({use})"
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run: {type(error).__name__} ({use})"
    version = re.search(r"\d+\.\d+[\w.]*", done.stdout)
    return f"{version[0] if version else 'unknown version'} ({use})"


def _is_set(variable: str) -> bool:
    return bool(os.environ.get(variable) or os.environ.get(variable.lower()))


# -- a stream


def _fault(protocol: str) -> str:
    """Return the fault of a stream from a scripted model on this machine; "" if it has none."""
    import openai

    begin = time.perf_counter()
    try:
        # A proxy that the environment names cannot reach loopback.
        http_client = openai.DefaultHttpxClient(trust_env=False)
        with (
            ModelServer(Reply(ANSWER)) as server,
            openai.OpenAI(base_url=server.url, api_key="none", http_client=http_client, max_retries=0) as client,
        ):
            text = stream(lambda: _request(client, protocol)).get_final_text()
    except StreamkitError as error:
        return f"failed after {time.perf_counter() - begin:.1f} s: {explain(error)}"
    return "" if text == ANSWER else f"arrived damaged: {text!r}"


def _request(client: Any, protocol: str) -> Any:
    if protocol == "openai_chat":
        messages = [{"role": "user", "content": "Is all well?"}]
        return client.chat.completions.create(model="scripted", messages=messages, stream=True)
    return client.responses.create(model="scripted", input="Is all well?", stream=True)
