"""The interface that an agent needs of a computer. `streamkit.computer.Computer` has it; an application may pass its
own."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol

from ..errors import UsageError
from ..events import Event

__all__ = ["Computing", "Running", "check_computer", "supports_language"]


class Running(Protocol):
    """One run of code, as an iterable of events.

    The events are those that a decoder would yield: console output, active lines, images, documents to display, all
    with the run's `call_id`. An error in the code appears in its console output. The iterator raises only when the
    computer itself fails. A run that is interrupted is read to its end, and the rest of its output goes into the conversation alone: if
    it has a method `repeat_loss`, that is then called, so that the next run says what no handler was shown.
    """

    def __iter__(self) -> Iterator[Event]:
        """Yields the events as they happen. The run starts at the first `next`."""
        ...

    def interrupt(self) -> None:
        """Make the run end soon. May be called from any thread, and does not block."""
        ...

    def close(self) -> None:
        """End the run, by force if need be, and return when it has ended.

        May be called from any thread, also while another thread iterates.
        """
        ...


class Computing(Protocol):
    """Runs code for an agent: `Agent(computer=...)` takes any object with these members."""

    @property
    def languages(self) -> Collection[str]:
        """The languages that it runs, in lower case."""
        ...

    def start(self, language: str, /) -> None:
        """Prepare for this language in the background, and return at once. Called for the first language when the model is
        asked, and for each one in which the model begins to write code."""
        ...

    def run(self, language: str, code: str, /, *, call_id: str | None = None) -> Running:
        """Return a run of this code, not yet started.

        Args:
            language: one that the computer supports, in lower case.
            code: the source code.
            call_id: the id of the tool call with the code; it goes into the messages of the run.
        """
        ...


def check_computer(computer: object) -> None:
    """Refuse what is neither None nor an object that can be an agent's computer.

    Raises:
        UsageError: it is the class of one, or a member is missing.
    """
    if isinstance(computer, type):
        raise UsageError(f"`computer` is an object, not a class; pass {computer.__name__}()")
    if computer is not None and not all(hasattr(computer, name) for name in ("languages", "start", "run")):
        raise UsageError(f"`computer` is a `Computer`, or has its `languages`, `start` and `run`, not {computer!r}")


def supports_language(computer: Computing, language: str) -> bool:
    """Whether the computer runs this language. `language` is in lower case.

    A computer that accepts other names of its languages (`py`, `bash`) has a method `language_of`, which returns the
    language or None.
    """
    language_of = getattr(computer, "language_of", None)
    return language in computer.languages or (callable(language_of) and language_of(language) is not None)
