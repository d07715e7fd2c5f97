"""The README and the guide describe the library as it is: every Python block in them runs.

How is in `guide.py`. `python -m tests.test_docs` writes the table of hooks into `.docs/hooks.md`.
"""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamkit.agent.apis import APIS
from streamkit.events import EVENTS
from streamkit.protocols import registry
from streamkit.protocols.frameworks.shape import FRAMEWORKS

from .guide import ALONE, ELSEWHERE, GUIDE, ROOT, blocks_of, run_page

README, HOOKS_PAGE, IN_AND_OUT, SITE = (
    ROOT / "README.md",
    GUIDE / "hooks.md",
    GUIDE / "in-and-out.md",
    ROOT / ".zensical.toml",
)
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

EXAMPLES = [
    pytest.param(page, id=str(page.relative_to(ROOT)))
    for page in PAGES
    if page not in ELSEWHERE and any(block.language == "python" for block in blocks_of(page))
]


# -- every example runs


@pytest.mark.parametrize("path", EXAMPLES)
def test_the_examples_of_a_page_run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From top to bottom, after those of the names page, each printing the output that is shown for it."""
    run_page(path, tmp_path, monkeypatch, lambda: capsys.readouterr().out)


@pytest.mark.parametrize("path", [*EXAMPLES, *ELSEWHERE])
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


def test_the_table_of_what_comes_in_and_goes_out_is_that_of_the_registry() -> None:
    rows = [
        line.strip("| ").split(" | ") for line in IN_AND_OUT.read_text("utf-8").splitlines() if line.startswith("| `")
    ]
    alone = {*registry.READ_ONLY} - {*FRAMEWORKS}
    assert sorted(row[0].strip("`") for row in rows) == sorted({*registry.BUILT_IN, *alone})
    for name, _whose, _comes_in, goes_out, next_request, client, _endpoint in rows:
        is_written = name.strip("`") not in alone
        assert (goes_out, next_request) == (("yes", "yes") if is_written else ("no", "no")), name
        assert (client != "no") is (name.strip("`") in APIS), name


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
