"""All benchmarks in one run, with the peers beside streamkit.

    python -m tests.benchmarks --quick                       # about five minutes
    python -m tests.benchmarks                               # under twenty
    python -m tests.benchmarks --only clients,turns          # these sections; --list names them all
    python -m tests.benchmarks --json out.json --markdown out.md --plot out.svg
    python -m tests.benchmarks --from out.json --plot out.svg   # without measuring again
    python -m tests.benchmarks --guide                       # and write tables and plot into the guide and the README

Peers are optional: `pip install -e '.[test,bench]'` brings them. One that is not installed is named in the output. Each
contestant's text is compared with what was sent; if one is wrong, or fails, the exit status is 1.

The numbers are medians of CPU time, of rounds in which the contestants take turns; compare ratios of one run, not times of
two. A quiet machine gives steadier ones. A guard that needs no quiet machine is `python -m tests.benchmarks.guard`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from .measuring import FAILED, PROFILES, Profile, Row, Table, failures
from .plot import draw
from .report import Report, as_json, as_markdown, as_summary, as_text, described, from_json, put_between, warn_of_load

# The order of the guide: what a user feels first, and what happens inside last.
SECTIONS = (
    "clients",
    "held",
    "turns",
    "short",
    "parsing",
    "sources",
    "native",
    "lifetimes",
    "telemetry",
    "encoding",
    "ui_encoding",
    "relay",
    "redis_relay",
    "server",
    "scale",
    "memory",
    "imports",
    "json_fields",
    "rendering",
    "computer",
)
ROOT = Path(__file__).parents[2]
PICTURE = ROOT / ".docs" / "pictures" / "speed.svg"


def measure(section: str, profile: Profile) -> Table:
    """A section's rows. One that cannot run, or fails, has a row that says so."""
    table = Table(section, section, "")
    try:
        module: Any = importlib.import_module(f"tests.benchmarks.{section}")
        table.title, table.about = module.TITLE, module.ABOUT
        for row in module.rows(profile):
            table.rows.append(row)
    except ModuleNotFoundError as error:
        table.rows.append(Row(section, "", None, "", note=f"not installed: pip install {error.name}"))
    except Exception as error:
        table.rows.append(Row(section, "", None, "", note=f"{FAILED}{type(error).__name__}: {error}"))
    return table


def run(sections: list[str], profile: Profile) -> Report:
    """Measure, and print each section when it is done."""
    load = os.getloadavg()[0]
    warn_of_load(load)
    tables: list[Table] = []
    for section in sections:
        began = time.monotonic()
        tables.append(measure(section, profile))
        print(as_text(tables[-1]), flush=True)
        print(f"\n  [{section}: {time.monotonic() - began:.0f} s]", flush=True)
    return Report(described(profile.name, load=load), tables)


def write_guide(report: Report) -> None:
    """Tables and plot into the guide, the headlines into the README."""
    draw(report, PICTURE)
    for path, marker, text in (
        (ROOT / ".docs" / "speed-tables.md", "benchmarks", as_markdown(report)),
        (ROOT / ".docs" / "speed.md", "speed", as_summary(report)),
        (ROOT / "README.md", "speed", as_summary(report)),
    ):
        written = put_between(path, marker, text)
        print(f"{'wrote' if written else 'no markers, so nothing was written, in'} {path.relative_to(ROOT)}")


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_const", dest="profile", const="quick", default="whole")
    parser.add_argument(
        "--tiny", action="store_const", dest="profile", const="tiny", help="sizes that only show that it works"
    )
    parser.add_argument("--only", default=",".join(SECTIONS), metavar="SECTIONS", help="with commas between them")
    parser.add_argument("--list", action="store_true", help="name the sections")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="what --json wrote, in place of a run")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="FILE-light.svg and FILE-dark.svg")
    parser.add_argument("--guide", action="store_true", help="write tables and plot into the guide and the README")
    options = parser.parse_args(arguments)
    options.sections = options.only.split(",")
    if unknown := [section for section in options.sections if section not in SECTIONS]:
        parser.error(f"no section {', '.join(unknown)}; there are: {', '.join(SECTIONS)}")
    return options


def main(arguments: list[str] | None = None) -> int:
    """The command. Returns its exit status."""
    options = parsed(arguments)
    if options.list:
        for section in SECTIONS:
            print(f"{section:12} {importlib.import_module(f'tests.benchmarks.{section}').TITLE}")
        return 0
    if options.source:
        report = from_json(json.loads(options.source.read_text()))
    else:
        report = run(options.sections, PROFILES[options.profile])
    if options.json:
        options.json.write_text(json.dumps(as_json(report), indent=1, ensure_ascii=False) + "\n")
    if options.markdown:
        options.markdown.write_text(as_markdown(report) + "\n")
    if options.plot and not draw(report, options.plot):
        print("nothing to plot: none of the sections has a headline")
    if options.guide:
        write_guide(report)
    failed = failures(report.tables)
    for row in failed:
        print(f"{row.case}, {row.name}: {row.note}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
