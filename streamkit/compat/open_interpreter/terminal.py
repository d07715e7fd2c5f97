"""What `display=True` shows: the stream along the terminal, and a question before code runs."""

from __future__ import annotations

from ...answers import Confirmation
from ...handlers import EventHandler, Handler
from ...renderers import ConsolePrinter

__all__ = ["Ask", "displays"]


class Ask(EventHandler):
    """Asks whether code may run: `y` is yes, all else no."""

    def on_confirmation(self, confirmation: Confirmation, /) -> None:
        try:
            answer = input("Would you like to run this code? (y/n) ")
        except EOFError:  # nobody is there
            answer = ""
        if answer.strip().lower() in ("y", "yes"):
            confirmation.approve()
        else:
            confirmation.decline()


def displays() -> list[Handler]:
    """The handlers that show a stream, and ask."""
    return [ConsolePrinter(warnings=False, run_end=False), Ask()]
