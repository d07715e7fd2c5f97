"""The README says what is so."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from streamkit.events import EVENTS
from streamkit.handlers import HOOKS, Hooks

README = Path(__file__).resolve().parents[1] / "README.md"


def hook_table() -> str:
    """The README's table of hooks, from the event classes. `python -m tests.test_readme` writes it into the README."""
    rows = ["| event | hooks, in order after `on_event` |", "|---|---|"]
    for type, event in EVENTS.items():
        if event.hooks or type == "raw_event":
            rows.append(f"| `{type}` | {', '.join(f'`{hook}`' for hook in event.hooks) or 'none: `on_event` alone'} |")
    return "\n".join(rows)


def between(mark: str) -> str:
    text = README.read_text("utf-8")
    found = re.search(rf"<!-- {mark}[^>]*-->\n(.*?)\n<!-- /{mark} -->", text, re.DOTALL)
    assert found, f"the README has no part marked {mark!r}"
    return found[1]


def test_the_hook_table_is_the_one_that_the_events_give() -> None:
    """Law of the house: an event is declared once; the table follows."""
    assert between("hooks") == hook_table()


def test_every_hook_of_the_table_is_a_method_of_hooks() -> None:
    """What the events compute and what users override are the same names."""
    methods = {name for name in vars(Hooks) if name.startswith("on_")}
    assert set(HOOKS) == methods


def test_the_python_of_the_readme_is_python() -> None:
    """Each block compiles."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    assert len(blocks) >= 5
    for block in blocks:
        compile(block, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def main() -> None:
    text = README.read_text("utf-8")
    README.write_text(text.replace(between("hooks"), hook_table()), "utf-8")


if __name__ == "__main__":
    main()
