"""Runs the Python blocks of the README and the guide, so that they describe the library as it is.

A page's blocks run from top to bottom in one namespace, after the blocks of `.docs/names.md`. The clients are the real
ones; their base URLs lead to a scripted `ModelServer`. A block headed `output` has to be what the example before it
printed. A block with a title, such as `title="chat.py"`, is saved as that file, which the blocks after it use.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import gc
import inspect
import io
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from streamkit.testing import ModelServer, Reply, Request, Text, ToolCall

from .redis_server import PROGRAM, shared_server

__all__ = ["ALONE", "ELSEWHERE", "GUIDE", "NAMES", "ROOT", "blocks_of", "run_page", "scripted_clients"]

ROOT = Path(__file__).resolve().parents[1]
GUIDE = ROOT / ".docs"
NAMES = GUIDE / "names.md"
ALONE = (NAMES, GUIDE / "quickstart.md")  # pages that need no names of another one
# Pages whose examples need packages that are not in the extra `test`: `tests/integrations/test_recipes.py` runs them.
ELSEWHERE = {
    GUIDE / "frameworks.md": ("agents", "pydantic_ai", "langchain", "langchain_openai", "smolagents"),
    GUIDE / "recipes" / "foreign-tools.md": ("mcp", "langchain_core", "smolagents"),
    GUIDE / "recipes" / "gradio.md": ("gradio", "gradio_client"),
    GUIDE / "recipes" / "streamlit.md": ("streamlit",),
    GUIDE / "recipes" / "textual.md": ("textual",),
}

ANSWER = Reply(Text(pieces=("Hello", " there.")))

# What the scripted model calls each tool with.
ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "execute": {"language": "python", "code": "print(round(34 / 24, 3))"},
    "get_weather": {"city": "Oslo"},
    "send_mail": {"to": "ann@example.org", "text": "Hello!"},
    "send_message": {"thoughts": "They want an answer.", "message": "Hello there."},
}


class Block(NamedTuple):
    """A fenced block: its language, its text, the number of its first line, and its title, which is a file's name, or ""."""

    language: str
    text: str
    line: int
    title: str


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    fences = re.finditer(r'^```([^\n`]*?)(?: title="([\w.]+)")?\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    return [
        Block(fence[1].strip(), fence[3], text.count("\n", 0, fence.start(3)) + 1, fence[2] or "") for fence in fences
    ]


def scripted_model(request: Request) -> Reply:
    """Calls each tool that the request offers, once; with their outputs, or without tools, it answers."""
    conversation: Any = request.body.get("input") or request.body.get("messages") or [{}]
    last = conversation[-1] if isinstance(conversation, list) else {}
    if is_tool_output(last):
        return ANSWER
    if (answer := output_of(request)) is not None:
        return Reply(answer)
    names = [tool.get("function", tool).get("name") for tool in request.body.get("tools") or ()]
    calls = [ToolCall(name, ARGUMENTS[name]) for name in names if name is not None]
    return Reply(*calls) if calls else ANSWER


def output_of(request: Request) -> str | None:
    """A recipe, or a list of one, where the request asks for it; None for a request that states no output."""
    stated = request.body.get("text", {}).get("format") or request.body.get("response_format")
    if stated is None:
        return None
    recipe = '{"title": "Egg", "steps": ["Boil.", "Peel."]}'
    return f'{{"value": [{recipe}]}}' if '"value"' in json.dumps(stated) else recipe


def is_tool_output(item: Mapping[str, Any]) -> bool:
    """Whether a conversation's item is a tool's output, in any of the server's protocols."""
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    return (
        item.get("type") == "function_call_output"
        or item.get("role") == "tool"
        or any(part.get("type") == "tool_result" for part in parts)
    )


class Page:
    """Runs a page's blocks in one namespace; blocks that await share one event loop."""

    def __init__(self, module: ModuleType, runner: asyncio.Runner) -> None:
        self.namespace = vars(module)
        self.runner = runner

    def run(self, page: Path, block: Block) -> None:
        """Runs a block, or saves it. A traceback shows the page's own lines."""
        if block.title:
            Path(block.title).write_text(block.text, "utf-8")
            return
        source = "\n" * (block.line - 1) + block.text
        code = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        result = eval(code, self.namespace)
        if code.co_flags & inspect.CO_COROUTINE:
            self.runner.run(result)

    def close(self) -> None:
        """Closes the clients that the page opened, and those that it dropped: none was collected, because of a client in garbage
        chance decides whether its connections are closed before their sockets warn that they are open."""
        for value in gc.get_objects():
            name = type(value).__name__
            if name in ("OpenAI", "Anthropic") and not value.is_closed():
                value.close()
            elif name in ("AsyncOpenAI", "AsyncAnthropic") and not value.is_closed():
                self.runner.run(value.close())


@contextlib.contextmanager
def scripted_clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Has clients that are made, here or in a process that is started, reach the scripted model."""
    with ModelServer(scripted_model) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.root_url)
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
            monkeypatch.setenv(name, "none")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        yield


@contextlib.contextmanager
def opened_page(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Page]:
    """A namespace whose clients reach the scripted model, in an empty folder, from which files are imported."""
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    with scripted_clients(monkeypatch), asyncio.Runner() as runner:
        page = Page(module, runner)
        gc.disable()
        try:
            yield page
        finally:
            page.close()
            gc.enable()
            for file in folder.glob("*.py"):
                sys.modules.pop(file.stem, None)


def run_page(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, printed: Callable[[], str]) -> None:
    """Run the examples of a page in an empty folder, and compare what they print with what the page shows.

    Args:
        printed: returns what was printed since it was last called.
    """
    if "REDIS_URL" in path.read_text("utf-8"):
        if PROGRAM is None:
            pytest.skip("there is no program redis-server")
        monkeypatch.setenv("REDIS_URL", shared_server().url)
    with opened_page(monkeypatch, folder) as page:
        for block in blocks_of(NAMES) if path not in ALONE else []:
            page.run(NAMES, block)
        output = ""
        for block in blocks_of(path):
            if block.language == "output":
                assert output.strip() == block.text.strip(), f"{path.name}, line {block.line}: {output}"
            elif block.language == "python":
                printed()
                page.run(path, block)
                output = printed()


def main() -> None:
    """Run the page that the command names: `python -m tests.guide .docs/recipes/textual.md`."""
    page, text = Path(sys.argv[1]).absolute(), io.StringIO()

    def printed() -> str:
        output = text.getvalue()
        text.seek(0)
        text.truncate()
        return output

    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(text),
    ):
        run_page(page, Path(folder), monkeypatch, printed)
    print(f"{page.name}: its examples run")


if __name__ == "__main__":
    main()
