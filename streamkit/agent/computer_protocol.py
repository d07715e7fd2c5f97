"""What an agent needs of a computer. `streamkit.computer.Computer` is one; applications may give their own."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol

from ..events import Event

__all__ = ["Computing", "Running", "runs"]


class Running(Protocol):
    """One run of code.

    Its events are as a decoder's: console output, active lines, images, documents to display, all with the run's
    `call_id`. What goes wrong in the code is told in its console; the iterator raises for faults of the computer alone.
    """

    def __iter__(self) -> Iterator[Event]:
        """The events, as they happen; the run starts at the first pull."""
        ...

    def interrupt(self) -> None:
        """Make the run end soon. Called from any thread; it waits for nothing."""
        ...

    def close(self) -> None:
        """Returns when the run has ended, by force if need be. Called from any thread, also while another one pulls."""
        ...


class Computing(Protocol):
    """What runs code."""

    @property
    def languages(self) -> Collection[str]:
        """The languages that it runs, in lower case."""
        ...

    def start(self, language: str, /) -> None:
        """Make ready to run this language, in the background."""
        ...

    def run(self, language: str, code: str, /, *, call_id: str | None = None) -> Running: ...


def runs(computer: Computing, language: str) -> bool:
    """Whether it runs this language. One that knows languages by other names, too, has a `language_of`."""
    language_of = getattr(computer, "language_of", None)
    return language in computer.languages or (callable(language_of) and language_of(language) is not None)
