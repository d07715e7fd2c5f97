"""The effect of `display=True`: the stream is printed, and the person is asked before code runs, or for the next
message."""

from __future__ import annotations

from collections.abc import Iterator

from ...answers import Confirmation
from ...handlers import EventHandler, Handler
from ...renderers import ConsolePrinter

__all__ = ["YesNoAsker", "display_handlers", "typed_messages"]

_EXITS = ("exit", "quit")


class YesNoAsker(EventHandler):
    """Asks whether code may run. `y` or `yes` means yes; anything else, or the end of the input, means no."""

    def on_confirmation(self, confirmation: Confirmation, /) -> None:
        """Ask, and answer the confirmation."""
        try:
            answer = input("Would you like to run this code? (y/n) ")
        except EOFError:
            answer = ""
        if answer.strip().lower() in ("y", "yes"):
            confirmation.approve()
        else:
            confirmation.decline()


def display_handlers() -> list[Handler]:
    """Return the handlers that print a stream, and ask."""
    return [ConsolePrinter(warnings=False, run_end=False), YesNoAsker()]


def typed_messages() -> Iterator[str]:
    """Yield the lines that the person types, until Ctrl-D, Ctrl-C, or a line that says `exit` or `quit`."""
    while True:
        try:
            line = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if line.lower() in _EXITS:
            return
        if line:
            yield line
