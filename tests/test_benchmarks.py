"""The benchmarks work: each section measures, checks what its contestants return, and is shown. Their numbers are not tested."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from .benchmarks import __main__ as command
from .benchmarks.measuring import PROFILES, Clock, Contestant, Row, Table, check, missing, numbered
from .benchmarks.report import HEADLINES, Report, as_json, as_markdown, as_summary, as_text, from_json, put_between

ROOT = Path(__file__).parents[1]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


DIFFERENCES = (
    "a new process",
    ": Resume",
    ": Memory",
)  # how cases end whose rows may be below 0, where little is measured


@pytest.mark.slow
def test_every_section_runs(tmp_path: Path) -> None:
    """What is not installed here is named, with the command that installs it."""
    done = run("--tiny", "--json", str(tmp_path / "out.json"), "--plot", str(tmp_path / "out.svg"))
    assert done.returncode == 0, done.stdout + done.stderr
    report = from_json(json.loads((tmp_path / "out.json").read_text()))
    assert [table.section for table in report.tables] == [*command.SECTIONS]
    for table in report.tables:
        for row in table.rows:
            assert row.value is None or row.value > 0 or row.case.endswith(DIFFERENCES), row
            assert row.value is not None or "pip install" in row.note or "redis-server" in row.note, row
            assert row.name in done.stdout
    for name in ("out-light.svg", "out-dark.svg"):
        ET.parse(tmp_path / name)


def report() -> Report:
    rows = list(
        numbered(
            {"streamkit, a hook": 1.5, "the client's own loop": 150.0, "gone": None},
            "Chat, paced",
            "µs a delta",
            "the client's own loop",
            {"gone": "not installed: pip install gone"},
        )
    )
    about = {
        "date": "2026-01-01",
        "profile": "quick",
        "python": "CPython",
        "machine": "a",
        "load": 0.1,
        "packages": {"openai": "3"},
    }
    return Report(about, [Table("clients", "End to end", "What *paced* is.", rows)])


def test_the_same_rows_on_a_terminal_and_as_markdown() -> None:
    [table] = report().tables
    for text in (as_text(table), as_markdown(report())):
        assert "0.01 x" in text
        assert "150" in text
        assert "pip install gone" in text
        assert "the client's own loop" in text  # the baseline is named
    assert "| OpenAI Chat, an event every 2 ms, µs a delta | 1.5 |" in as_summary(report())


def test_a_report_is_read_again_from_its_json() -> None:
    again = from_json(json.loads(json.dumps(as_json(report()))))
    assert as_markdown(again) == as_markdown(report())


def test_a_page_keeps_what_is_around_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- x -->\nold\n<!-- /x -->\nafter\n")
    assert put_between(page, "x", "new")
    assert page.read_text() == "before\n<!-- x -->\n\nnew\n\n<!-- /x -->\nafter\n"
    assert not put_between(page, "y", "new")


def test_the_headlines_are_rows_that_exist() -> None:
    """A section or a contestant that is renamed is renamed there, too."""
    for headline in HEADLINES:
        module: Any = __import__(f"tests.benchmarks.{headline.section}", fromlist=["CONTESTANTS"])
        assert set(headline.names) <= module.CONTESTANTS.keys()


def test_a_wrong_text_is_an_error() -> None:
    with pytest.raises(AssertionError, match="3 characters arrived, 4 were sent"):
        check("abc", "abcd")


def test_a_section_that_fails_is_named_and_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rows(profile: object) -> Any:
        yield Row("case", "one", 1.0, "ms")
        raise AssertionError("3 characters arrived")

    module = SimpleNamespace(TITLE="Title", ABOUT="About.", rows=rows)
    monkeypatch.setitem(sys.modules, "tests.benchmarks.broken", module)
    monkeypatch.setattr(command, "SECTIONS", ("broken",))
    assert command.main(["--only", "broken"]) == 1
    assert "3 characters arrived" in capsys.readouterr().err


def test_a_peer_that_is_not_installed_is_named_with_its_command() -> None:
    assert (
        missing(Contestant(float, ("no_such_module", "no-such[extra]")))
        == "not installed: pip install 'no-such[extra]'"
    )
    assert missing(Contestant(float, ("json", "json"))) == ""


def test_the_profiles_differ() -> None:
    assert [profile.pick(1, 2, 3) for profile in PROFILES.values()] == [1, 2, 3]


def test_a_clock_adds_up() -> None:
    clock = Clock()
    for _ in range(2):
        with clock:
            sum(range(10_000))
    assert clock.seconds > 0
