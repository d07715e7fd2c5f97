"""The interface of a block: one message on a live display, from the beginning to the end of its turn."""

from __future__ import annotations

from collections.abc import Iterator

from ..messages import Message
from .parts import Look, Part

__all__ = ["Block"]


class Block:
    """A message as it is shown. This class shows nothing.

    Args:
        message: the message.
        look: how the display looks.

    Attributes:
        resumed: whether the message was shown before, paused, and is resumed now.
        ended: whether the message is complete; False where the block ends because the message is paused.
    """

    resumed = False
    ended = False

    def __init__(self, message: Message, look: Look) -> None:
        self.message = message
        self.look = look

    def append(self, text: str, stream: str) -> None:
        """Take a piece of the message; of console output with the stream that it came from."""

    def take_settled(self, *, final: bool) -> Iterator[Part]:
        """The parts that were settled since the last call; with `final`, all that is left, for nothing follows."""
        yield from ()

    def tail(self, width: int, rows: int) -> Iterator[Part]:
        """The part that may still change, as it looks now.

        Args:
            width: columns of the terminal.
            rows: how many of its last lines are needed.
        """
        yield from ()
