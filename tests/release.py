"""Checks the wheel and the sdist: what is in them, and that a stream runs where they are installed.

    python -m build --outdir dist && python -m tests.release dist

Ends with 1, and says what is wrong, if something is.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

from streamkit._version import __version__

ROOT = Path(__file__).parent.parent
NAME = f"streamkit_sdk-{__version__}"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the wheel and the sdist are")
    parser.add_argument("--tag", help="the tag of the release, such as v0.1.0, which is to be that of the version")
    options = parser.parse_args()
    wheel, sdist = options.folder / f"{NAME}-py3-none-any.whl", options.folder / f"{NAME}.tar.gz"
    faults = [*_tag_faults(options.tag), *_wheel_faults(wheel), *_sdist_faults(sdist)]
    for path in (wheel, sdist):
        faults += _installation_faults(path)
    for fault in faults:
        print(f"FAULT {fault}")
    print(f"{wheel.name}, {sdist.name}: {len(faults)} faults")
    return 1 if faults else 0


def package_files() -> set[str]:
    """What the package is made of, as Git has it: names from the root."""
    listed = subprocess.run(
        ["git", "ls-files", "streamkit"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert "streamkit/py.typed" in listed and "streamkit/server/page/index.html" in listed
    return {*listed}


def _tag_faults(tag: str | None) -> Iterator[str]:
    if tag is not None and tag != f"v{__version__}":
        yield f"the tag is {tag}, and the version {__version__}"
    heading = f"## [{__version__}] - "
    if heading not in (ROOT / "CHANGELOG.md").read_text("utf-8"):
        yield f"CHANGELOG.md has no heading '{heading}' with a date"


def _wheel_faults(path: Path) -> Iterator[str]:
    """The wheel has the package, all of it and nothing else, its licence, its command and its extras."""
    with zipfile.ZipFile(path) as wheel:
        names = {*wheel.namelist()}
        info = f"{NAME}.dist-info"
        metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode("utf-8"))
        entry_points = wheel.read(f"{info}/entry_points.txt").decode("utf-8")
    package = {name for name in names if not name.startswith(info)}
    yield from (f"the wheel lacks {name}" for name in sorted(package_files() - package))
    yield from (f"the wheel has {name}, which is not in Git" for name in sorted(package - package_files()))
    if f"{info}/licenses/LICENSE" not in names or metadata["License-Expression"] != "MIT":
        yield "the wheel has no licence"
    if "streamkit = streamkit.cli:main" not in entry_points:
        yield "the wheel has no command"
    if metadata["Version"] != __version__ or not (metadata.get_payload() or "").startswith("# streamkit"):
        yield "the wheel's metadata lack the version or the README"


def _sdist_faults(path: Path) -> Iterator[str]:
    """The sdist has all that it takes to build the package and to run its tests."""
    with tarfile.open(path) as sdist:
        names = {name.removeprefix(f"{NAME}/") for name in sdist.getnames()}
    needed = {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "tests/conftest.py", ".docs/index.md"}
    yield from (f"the sdist lacks {name}" for name in sorted((needed | package_files()) - names))
    yield from (f"the sdist has {name}" for name in sorted(names) if "node_modules" in name or "/.venv" in name)


def _installation_faults(path: Path) -> Iterator[str]:
    """A stream runs where nothing but this file was installed, and the page is served from there."""
    with tempfile.TemporaryDirectory(prefix="streamkit-release-") as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "bin", "python")
        for command in (
            [str(python), "-m", "pip", "install", "-q", str(path.resolve())],
            [str(python.with_name("streamkit")), "doctor"],
        ):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if done.returncode:
                yield f"{path.name}: {Path(command[0]).name} {command[1]}: {(done.stdout + done.stderr)[-500:]}"
                return


if __name__ == "__main__":
    sys.exit(main())
