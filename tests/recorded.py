"""The recorded streams that tests run over: the repository's own, and those that may lie beside the checkout.

The own ones stand in `tests/recordings/<protocol>/`, a few per protocol; `python -m tests.recordings.make` makes them.
Hundreds more, of real services, lie in `../shared/recordings/<protocol>/`; where they are absent, their tests are
skipped. A test runs over many recordings in a loop, for each case of its own costs pytest more than the check does.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

OWN = Path(__file__).parent / "recordings"
SHARED = Path(__file__).resolve().parents[2] / "shared" / "recordings"
Test = Callable[..., None]


def streams_in(folder: Path) -> list[Path]:
    """The files in a folder that hold a stream."""
    return sorted(
        path for path in folder.glob("*") if path.name.endswith((".sse", ".jsonl", ".array.json", ".eventstream"))
    )


def own_recordings(*protocols: str, complete: bool = False) -> list[Path]:
    """The repository's recordings of these protocols (names of folders, such as `openai-chat`).

    Args:
        complete: without those that are cut off or end with an error.

    Raises:
        FileNotFoundError: there is none of one of them.
    """
    found = {protocol: streams_in(OWN / protocol) for protocol in protocols}
    for protocol, paths in found.items():
        if not paths:
            raise FileNotFoundError(f"tests/recordings/{protocol} holds no stream")
    return [path for paths in found.values() for path in paths if not (complete and path.stem in ("cut-off", "error"))]


def in_a_loop(argument: str, values: Iterable[Any]) -> Callable[[Test], Test]:
    """Calls the test for each value in one case of pytest's; a failure names the values that failed.

    Instead of `parametrize` where there are hundreds of cheap cases. Every value is tried, also after a failure.
    """
    return _looped(argument, [pytest.param(list(values), id=f"each {argument}")])


def each_recording(
    *protocols: str,
    own: bool = True,
    complete: bool = False,
    only: Callable[[Path], bool] = lambda _: True,
    one_of: int = 1,
) -> Callable[[Test], Test]:
    """Calls the test for each recording of these protocols, as its argument `path`: a case for each folder. Those of shared
    recordings are `slow`.

    Args:
        own: over the repository's own recordings too. False where a test compares with what other SDKs read, which
            stands beside the shared recordings.
        complete: without the own ones that are cut off or end with an error.
        only: which of the shared recordings.
        one_of: one of so many of these. Other tests read all of them, so that each is read as it should be.
    """
    cases = (
        [pytest.param(own_recordings(name, complete=complete), id=f"own {name}") for name in protocols] if own else []
    )
    for name in protocols:
        paths = [path for path in streams_in(SHARED / name) if only(path)][::one_of]
        marks = [pytest.mark.slow]
        if not paths:
            marks.append(pytest.mark.skip(reason=f"the recorded {name} streams are not beside this checkout"))
        cases.append(pytest.param(paths, id=f"shared {name}", marks=marks))
    return _looped("path", cases)


def _looped(argument: str, cases: Sequence[Any]) -> Callable[[Test], Test]:
    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run_all(**arguments: Any) -> None:
            failures: list[Exception] = []
            values = arguments.pop(many)
            for value in values:
                try:
                    test(**arguments, **{argument: value})
                except Exception as error:
                    error.add_note(f"{argument}: {value}")
                    failures.append(error)
            if len(failures) == 1:
                raise failures[0]
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(values)} failed", failures)

        many = f"each_{argument}"
        signature = inspect.signature(test)
        run_all.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[
                parameter.replace(name=many) if name == argument else parameter
                for name, parameter in signature.parameters.items()
            ]
        )
        marked: Test = pytest.mark.parametrize(many, cases)(run_all)
        return marked

    return decorate


def recording_cases(*protocols: str, complete: bool = False) -> list[Any]:
    """The same recordings as parameters, for a test with generated inputs: each case has inputs of its own."""
    cases = [pytest.param(path, id=f"own {path.stem}") for path in own_recordings(*protocols, complete=complete)]
    for name in protocols:
        cases += [pytest.param(path, id=path.stem, marks=pytest.mark.slow) for path in streams_in(SHARED / name)]
    return cases
