"""The README and the guide describe the library as it is: every Python block in them runs.

A page's blocks run from top to bottom in one namespace, after the blocks of `.docs/names.md`. The clients are the real
ones; their base URLs lead to a scripted `ModelServer`. A block headed `output` has to be what the example before it
printed. `python -m tests.test_docs` writes the table of hooks into `.docs/hooks.md`.
"""

from __future__ import annotations

import ast
import asyncio
import gc
import importlib
import inspect
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from streamkit.events import EVENTS
from streamkit.testing import ModelServer, Reply, Request, Text, ToolCall

from .redis_server import PROGRAM, shared_server

ROOT = Path(__file__).resolve().parents[1]
README, GUIDE = ROOT / "README.md", ROOT / ".docs"
NAMES, HOOKS_PAGE, SITE = GUIDE / "names.md", GUIDE / "hooks.md", ROOT / ".zensical.toml"
ALONE = (NAMES, GUIDE / "quickstart.md")  # pages that need no names of another one
PAGES = [README, *sorted(GUIDE.rglob("*.md"))]
TEXTS = [*PAGES, *sorted((ROOT / ".github").glob("*.md")), ROOT / "CHANGELOG.md"]

# The modules whose public names the reference has to describe.
PUBLIC_MODULES = (
    "streamkit",
    "streamkit.agent",
    "streamkit.asking",
    "streamkit.compat.letta",
    "streamkit.compat.open_interpreter",
    "streamkit.compat.openai",
    "streamkit.computer",
    "streamkit.json_fields",
    "streamkit.protocols",
    "streamkit.relay",
    "streamkit.renderers",
    "streamkit.server",
    "streamkit.stores",
    "streamkit.testing",
)

ANSWER = Reply(Text(pieces=("Hello", " there.")))

# What the scripted model calls each tool with.
ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "execute": {"language": "python", "code": "print(round(34 / 24, 3))"},
    "get_weather": {"city": "Oslo"},
    "send_message": {"thoughts": "They want an answer.", "message": "Hello there."},
}


class Block(NamedTuple):
    """A fenced block: its language, its text, and the number of its first line."""

    language: str
    text: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    fences = re.finditer(r"^```([^\n`]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [Block(fence[1].strip(), fence[2], text.count("\n", 0, fence.start(2)) + 1) for fence in fences]


EXAMPLES = [
    pytest.param(page, id=str(page.relative_to(ROOT)))
    for page in PAGES
    if any(block.language.startswith("python") for block in blocks_of(page))
]


# -- every example runs


def scripted_model(request: Request) -> Reply:
    """Calls each tool that the request offers, once; with their outputs, or without tools, it answers."""
    conversation: Any = request.body.get("input") or request.body.get("messages") or [{}]
    last = conversation[-1] if isinstance(conversation, list) else {}
    if is_tool_output(last):
        return ANSWER
    names = [tool.get("function", tool).get("name") for tool in request.body.get("tools") or ()]
    calls = [ToolCall(name, ARGUMENTS[name]) for name in names if name is not None]
    return Reply(*calls) if calls else ANSWER


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
        """Runs a block. A traceback shows the page's own lines."""
        source = "\n" * (block.line - 1) + block.text
        code = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        result = eval(code, self.namespace)
        if code.co_flags & inspect.CO_COROUTINE:
            self.runner.run(result)

    def close(self) -> None:
        """Closes the clients that the page opened, and those that it dropped. Of a client in garbage, chance decides whether its
        connections are closed before their sockets warn that they are open."""
        for value in gc.get_objects():
            name = type(value).__name__
            if name in ("OpenAI", "Anthropic") and not value.is_closed():
                value.close()
            elif name in ("AsyncOpenAI", "AsyncAnthropic") and not value.is_closed():
                self.runner.run(value.close())


@pytest.fixture
def opened_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Page]:
    """A namespace whose clients reach the scripted model, in an empty directory."""
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    monkeypatch.chdir(tmp_path)
    with ModelServer(scripted_model) as server, asyncio.Runner() as runner:
        environment = {
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "none",
            "ANTHROPIC_BASE_URL": server.root_url,
            "ANTHROPIC_API_KEY": "none",
            "NO_PROXY": "127.0.0.1",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        page = Page(module, runner)
        try:
            yield page
        finally:
            page.close()


@pytest.mark.parametrize("path", EXAMPLES)
def test_the_examples_of_a_page_run(
    path: Path, opened_page: Page, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From top to bottom, after those of the names page, each printing the output that is shown for it."""
    if "REDIS_URL" in path.read_text("utf-8"):
        if PROGRAM is None:
            pytest.skip("there is no program redis-server")
        monkeypatch.setenv("REDIS_URL", shared_server().url)
    for block in blocks_of(NAMES) if path not in ALONE else []:
        opened_page.run(NAMES, block)
    printed = ""
    for block in blocks_of(path):
        if block.language == "output":
            assert printed.strip() == block.text.strip(), f"{path.name}, line {block.line}"
        elif block.language.startswith("python"):
            capsys.readouterr()
            opened_page.run(path, block)
            printed = capsys.readouterr().out


@pytest.mark.parametrize("path", EXAMPLES)
def test_a_page_with_examples_links_to_the_names(path: Path) -> None:
    """A reader finds where `client`, `ask` and `Terminal` come from."""
    assert path in ALONE or re.search(r"\]\([^)]*names\.md\)", path.read_text("utf-8"))


def test_every_fenced_block_has_a_language_that_is_known() -> None:
    """A block that is meant to run cannot escape by a misspelt language."""
    languages = {(str(path.relative_to(ROOT)), block.language) for path in PAGES for block in blocks_of(path)}
    assert {
        pair for pair in languages if pair[1] not in ("python", "output", "sh", "text", "toml", "json", "javascript")
    } == set()


# -- tables and links


def hook_table() -> str:
    """The guide's table of hooks, from the event classes."""
    rows = ["| event | hooks, in order after `on_event` |", "|---|---|"]
    for type, event in EVENTS.items():
        if event.__module__ == "streamkit.events" and (event.hooks or type == "raw_event"):
            rows.append(f"| `{type}` | {', '.join(f'`{hook}`' for hook in event.hooks) or 'none: `on_event` alone'} |")
    return "\n".join(rows)


def between(mark: str, path: Path) -> str:
    """The part of a page between `<!-- mark … -->` and `<!-- /mark -->`."""
    found = re.search(rf"<!-- {mark}[^>]*-->\n(.*?)\n<!-- /{mark} -->", path.read_text("utf-8"), re.DOTALL)
    assert found, f"{path.name} has no part marked {mark!r}"
    return found[1].strip("\n")


def test_the_hook_table_is_computed_from_the_events() -> None:
    """An event is declared once, as a class; the table follows from it."""
    assert between("hooks", HOOKS_PAGE) == hook_table()


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_that_exist(path: Path) -> None:
    """Links to other pages, pictures and source files; addresses on the web are left out."""
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset|href)="([^"]+)"', text)
    local = [target.split("#")[0] for target in targets if not re.match(r"https?:|mailto:|#", target)]
    assert [target for target in local if not (path.parent / target).exists()] == []


# -- the site


def navigation(entries: list[Any]) -> Iterator[str]:
    """The pages of the site's navigation."""
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            if isinstance(value, str):
                yield value
            else:
                yield from navigation(value)


def test_every_page_is_in_the_navigation_once() -> None:
    """And the navigation names no page that does not exist."""
    site = tomllib.loads(SITE.read_text("utf-8"))
    pages = sorted(str(path.relative_to(GUIDE)) for path in GUIDE.rglob("*.md"))
    assert sorted(navigation(site["project"]["nav"])) == pages


def described_objects() -> Iterator[Any]:
    """Everything that the reference pages have an entry for."""
    for page in sorted((GUIDE / "reference").glob("*.md")):
        entries = re.split(r"^::: ", page.read_text("utf-8"), flags=re.MULTILINE)[1:]
        for entry in entries:
            name = entry.split()[0]
            try:
                described: Any = importlib.import_module(name)
            except ModuleNotFoundError:
                module, _, attribute = name.rpartition(".")
                yield getattr(importlib.import_module(module), attribute)
                continue
            for member in described.__all__:
                yield getattr(described, member)


def test_the_reference_describes_every_public_name() -> None:
    """Whatever a public module lists in `__all__` has an entry."""
    described = {id(one) for one in described_objects()}
    missing: list[str] = []
    for name in PUBLIC_MODULES:
        module = importlib.import_module(name)
        missing += [f"{name}.{public}" for public in module.__all__ if id(getattr(module, public)) not in described]
    assert missing == []


def test_the_architecture_names_files_that_exist() -> None:
    """Each path in it is one of the repository's, or of the package's."""
    text = (ROOT / ".github" / "ARCHITECTURE.md").read_text("utf-8")
    paths = set(re.findall(r"`([\w./]+(?:\.py|/))`", text))
    assert len(paths) > 20
    tops = (ROOT, ROOT / "streamkit", ROOT / "streamkit" / "protocols" / "openai_chat")
    assert [path for path in sorted(paths) if not any((top / path).exists() for top in tops)] == []


def main() -> None:
    """Writes the table of hooks into its page."""
    head, mark, rest = HOOKS_PAGE.read_text("utf-8").partition("<!-- hooks")
    first_line, end = rest.partition("\n")[0], "\n<!-- /hooks -->" + rest.partition("<!-- /hooks -->")[2]
    HOOKS_PAGE.write_text(f"{head}{mark}{first_line}\n\n{hook_table()}\n{end}", "utf-8")


if __name__ == "__main__":
    main()
