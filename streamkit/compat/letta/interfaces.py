"""What an agent calls: one method for each kind of thing that it does. Subclass one of these for an interface of your
own.

The first argument of each is the text. `msg_obj` is the message that it is about, for its id, its time and its tool
calls: a dict, an object of any library, or a streamkit `Message`. Its type is left open, and so are a chunk's and a
response's, so that a subclass may say which it is given.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from typing import Any

__all__ = ["AgentChunkStreamingInterface", "AgentInterface", "AgentRefreshStreamingInterface"]


class AgentInterface(ABC):
    """An agent that is told of whole messages."""

    @abstractmethod
    def user_message(self, msg: str, msg_obj: Any = None) -> None:
        """The user said something."""

    @abstractmethod
    def internal_monologue(self, msg: str, msg_obj: Any = None) -> None:
        """The agent thought something."""

    @abstractmethod
    def assistant_message(self, msg: str, msg_obj: Any = None) -> None:
        """The agent said something to the user: it called `send_message`."""

    @abstractmethod
    def function_message(self, msg: str, msg_obj: Any = None) -> None:
        """The agent calls a function: `Running name(arguments)`, then `Ran …`, then `Success: …` or `Error: …`."""


class AgentChunkStreamingInterface(AgentInterface):
    """An interface that is told of a model's answer piece by piece, too."""

    @abstractmethod
    def process_chunk(self, chunk: Any, message_id: str = "", message_date: datetime | None = None) -> None:
        """The next chunk of a Chat Completions answer; the id and the time are those that the whole message has."""

    @abstractmethod
    def stream_start(self) -> None:
        """The chunks of an answer begin."""

    @abstractmethod
    def stream_end(self) -> None:
        """The chunks of an answer are over."""


class AgentRefreshStreamingInterface(AgentInterface):
    """An interface that is told, again and again, of all of a model's answer so far."""

    @abstractmethod
    def process_refresh(self, response: Any) -> None:
        """A Chat Completions answer, as far as it has come."""

    @abstractmethod
    def stream_start(self) -> None:
        """An answer begins."""

    @abstractmethod
    def stream_end(self) -> None:
        """The answer is over."""

    @abstractmethod
    def toggle_streaming(self, on: bool) -> None:
        """Show answers while they come, or only what the other methods tell."""
