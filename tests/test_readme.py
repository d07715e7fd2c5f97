"""The README's commands, extras and hooks exist. (`test_docs.py` runs its examples and follows its links.)"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from streamkit.cli import main
from streamkit.handlers import HOOKS, Hooks

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def commands() -> list[str]:
    """The README's shell commands, which `.ci/run` extracts in the same way."""
    return [command.strip() for command in re.findall(r"^```sh\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)]


def extras_of(command: str) -> set[str]:
    """The extras that a command installs."""
    return {extra.strip() for names in re.findall(r"\[([\w, ]+)\]", command) for extra in names.split(",")}


def test_the_two_commands_install_what_they_need_and_no_more() -> None:
    """The demo needs the computer and the live display; the tests bring their own extra."""
    demo, tests = commands()
    assert extras_of(demo) == {"computer", "live"}
    assert demo.endswith(".venv/bin/streamkit demo")
    assert extras_of(tests) == {"test"}
    assert "pytest" in tests


def test_every_extra_that_the_readme_names_exists() -> None:
    """In commands and in the text."""
    named = extras_of("\n".join(re.findall(r"pip install[^`\n]*", README)))
    assert named <= set(PROJECT["optional-dependencies"])


def test_the_guide_lists_every_extra() -> None:
    """In the table of its first page."""
    page = (ROOT / ".docs" / "index.md").read_text("utf-8")
    assert re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE) == sorted(PROJECT["optional-dependencies"])


def test_every_hook_that_the_events_compute_is_a_method_of_hooks() -> None:
    """The events' hooks and the methods that users override have the same names."""
    methods = {name for name in vars(Hooks) if name.startswith("on_")}
    assert set(HOOKS) == methods


def test_the_readme_names_the_families_of_hooks() -> None:
    """Each family that it names has hooks, and no family of messages is missing."""
    families = set(re.findall(r"`(on_\w+_)…`", README))
    assert [family for family in families if not any(hook.startswith(family) for hook in HOOKS)] == []
    created = {hook.removesuffix("created") for hook in HOOKS if hook.endswith("_created") and "run" not in hook}
    assert families == created
    named = set(re.findall(r"\bon_[a-z_]+[a-z]\b", README))
    declared = re.findall(r"^class (\w+)\(sk\.Event\)", README, re.MULTILINE)
    assert named <= {*HOOKS, *("on" + re.sub(r"(?=[A-Z])", "_", name).lower() for name in declared)}


def test_the_readme_names_commands_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """`streamkit …` in the text is a command of the program."""
    main([])
    help_text = capsys.readouterr().out
    named = set(re.findall(r"`streamkit\s(\w+)", README))
    assert named and all(re.search(rf"^\s+{name}\s", help_text, re.MULTILINE) for name in named)


def test_the_readme_stays_short() -> None:
    """What does not fit in two hundred lines belongs into the guide."""
    assert len(README.splitlines()) <= 210


def test_the_classifiers_are_true() -> None:
    """Each Python that they name is one that the project accepts, and the text about the licence is in its own field."""
    lowest = tuple(map(int, PROJECT["requires-python"].removeprefix(">=").split(".")))
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert min(tuple(map(int, version.split("."))) for version in versions) == lowest
    assert not any(classifier.startswith("License ::") for classifier in PROJECT["classifiers"])
