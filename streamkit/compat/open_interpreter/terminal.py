"""The handlers of `display=True`: the stream is printed, and the person is asked before code runs."""

from __future__ import annotations

from ...answers import Confirmation
from ...handlers import EventHandler, Handler
from ...renderers import ConsolePrinter

__all__ = ["YesNoAsker", "display_handlers"]


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
    """The handlers that print a stream, and ask."""
    return [ConsolePrinter(warnings=False, run_end=False), YesNoAsker()]
