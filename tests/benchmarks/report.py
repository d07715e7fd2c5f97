"""What the benchmarks found: on a terminal, as Markdown, as JSON, and in the guide."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from .measuring import Row, Table

__all__ = [
    "HEADLINES",
    "Report",
    "as_json",
    "as_markdown",
    "as_text",
    "described",
    "from_json",
    "headlines",
    "put_between",
]

PACKAGES = (
    "streamkit-sdk",
    "openai",
    "anthropic",
    "httpx2",
    "msgspec",
    "anyio",
    "openai-agents",
    "pydantic-ai-slim",
    "starlette",
    "uvicorn",
    "redis",
)


class Report(NamedTuple):
    """One run.

    Attributes:
        about: the machine, the versions, the profile and the date.
        tables: a table for each section.
    """

    about: Mapping[str, Any]
    tables: Sequence[Table]


class Headline(NamedTuple):
    """A case that README and plot show: the section, the case, how it is called there, and which of its rows."""

    section: str
    case: str
    label: str
    names: tuple[str, ...]


_OURS, _RAW, _HELPER = "streamkit, a hook", "the client's own loop", "the client's own helper"
_CLIENT = (_OURS, _RAW, _HELPER)
HEADLINES = (
    Headline("clients", "Chat, paced", "OpenAI Chat, an event every 2 ms", _CLIENT),
    Headline("clients", "Chat, flooded", "OpenAI Chat, as fast as it is read", _CLIENT),
    Headline("clients", "Anthropic, paced", "Anthropic, an event every 2 ms", _CLIENT),
    Headline("clients", "Anthropic, flooded", "Anthropic, as fast as it is read", _CLIENT),
    Headline("short", "Chat, 50 deltas", "A whole request with an answer of 50 deltas", _CLIENT),
    Headline(
        "held",
        "100 deltas a second each",
        "Streams held on one core (more is better)",
        (_OURS, "the client's own loop, asyncio"),
    ),
    Headline(
        "turns",
        "Chat, a call and 100 deltas",
        "A turn of an agent: a tool call, then 100 deltas",
        ("streamkit, Agent", "a loop by hand, openai", "openai-agents", "pydantic-ai"),
    ),
)


def described(profile: str, *, load: float) -> dict[str, Any]:
    """This machine, these versions, and now. `load` is the load average before the run."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "profile": profile,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": f"{platform.system()} on {platform.machine()}, {_processor()}, {os.cpu_count()} cores",
        "load": round(load, 1),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "an unknown processor"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


# -- JSON


def as_json(report: Report) -> dict[str, Any]:
    return {"about": report.about, "tables": {name: _table(table) for name, table in _named(report.tables).items()}}


def _named(tables: Iterable[Table]) -> dict[str, Table]:
    return {table.section: table for table in tables}


def _table(table: Table) -> dict[str, Any]:
    return {"title": table.title, "about": table.about, "rows": [row._asdict() for row in table.rows]}


def from_json(value: Mapping[str, Any]) -> Report:
    tables = [
        Table(name, table["title"], table["about"], [Row(**row) for row in table["rows"]])
        for name, table in value["tables"].items()
    ]
    return Report(value["about"], tables)


# -- text


def number(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def times(row: Row) -> str:
    return "" if row.ratio is None else "1" if row.name == row.baseline else f"{row.ratio:.2f} x"


def as_text(table: Table) -> str:
    """A section for the terminal."""
    lines = [f"\n{table.title}", *(f"  {line}" for line in table.about.replace("*", "").splitlines())]
    case = None
    for row in table.rows:
        if row.case != case:
            case = row.case
            baseline = f"; the ratio is to: {row.baseline}" if row.baseline else ""
            lines.append(f"\n  {case} ({row.unit}{baseline})")
        note = f"  ({row.note})" if row.note else ""
        lines.append(f"    {row.name:40} {number(row.value):>10} {times(row):>10}{note}".rstrip())
    return "\n".join(lines)


def as_markdown(report: Report) -> str:
    """All sections, for the guide."""
    about = report.about
    packages = ", ".join(f"{name} {version}" for name, version in about["packages"].items())
    out = [
        f"Measured on {about['date']}, {about['python']}, {about['machine']} (load {about['load']} before the run), "
        f"in the profile `{about['profile']}`; {packages}."
    ]
    for table in report.tables:
        out += [f"### {table.title}", table.about]
        for case in dict.fromkeys(row.case for row in table.rows):
            rows = [row for row in table.rows if row.case == case]
            out.append("\n".join(_markdown_table(case, rows)))
    return "\n\n".join(out)


def _markdown_table(case: str, rows: Sequence[Row]) -> list[str]:
    baseline = next((row.baseline for row in rows if row.baseline), "")
    head = [case, rows[0].unit, *([f"beside {baseline}"] if baseline else [])]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1)]
    for row in rows:
        name = f"{row.name} ({row.note})" if row.note else row.name
        lines.append("| " + " | ".join([name, number(row.value), *([times(row)] if baseline else [])]) + " |")
    return lines


def headlines(report: Report) -> list[tuple[Headline, list[Row]]]:
    """The cases for README and plot that this run has, each with its measured rows."""
    tables = _named(report.tables)
    out: list[tuple[Headline, list[Row]]] = []
    for headline in HEADLINES:
        table = tables.get(headline.section)
        rows = [r for r in table.rows if r.case == headline.case and r.name in headline.names] if table else []
        if rows := [row for row in rows if row.value is not None]:
            out.append((headline, rows))
    return out


def as_summary(report: Report) -> str:
    """The headlines as one table, for the README."""
    lines = ["| | streamkit | the baseline | others |", "|---|--:|--:|---|"]
    for headline, (ours, *rest) in headlines(report):
        others = ", ".join(f"{row.name} {number(row.value)}" for row in rest if row.name != row.baseline)
        base = next((f"{row.name} {number(row.value)}" for row in rest if row.name == row.baseline), "")
        lines.append(f"| {headline.label}, {ours.unit} | {number(ours.value)} | {base} | {others} |")
    return "\n".join(lines)


def put_between(path: Path, marker: str, text: str) -> bool:
    """Replace what is between `<!-- marker -->` and `<!-- /marker -->` in a page. False if it has no such markers."""
    page = path.read_text()
    begin, end = f"<!-- {marker} -->", f"<!-- /{marker} -->"
    if begin not in page or end not in page:
        return False
    before, _, rest = page.partition(begin)
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}")
    return True


def warn_of_load(load: float) -> None:
    if load > 0.5:
        print(f"The load of this machine is {load:.1f}: ratios hold, absolute times less so.", file=sys.stderr)
