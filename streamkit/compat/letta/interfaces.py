"""The interfaces that MemGPT's and Letta's agents call: one method for each kind of thing that an agent does.

Subclass one of them for an interface of your own. The first argument of each method is the text. `msg_obj` is the
message that the text belongs to, for its id, its time and its tool calls: a dict, an object of any library, or a
streamkit `Message`. Its type is left open, like those of chunks and responses, so that a subclass can declare what it
gets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from typing import Any

__all__ = ["AgentChunkStreamingInterface", "AgentInterface", "AgentRefreshStreamingInterface"]


class AgentInterface(ABC):
    """An interface that gets complete messages."""

    @abstractmethod
    def user_message(self, msg: str, msg_obj: Any = None) -> None:
        """The user sent a message."""

    @abstractmethod
    def internal_monologue(self, msg: str, msg_obj: Any = None) -> None:
        """The agent had a thought, which its user does not see."""

    @abstractmethod
    def assistant_message(self, msg: str, msg_obj: Any = None) -> None:
        """The agent sent its user a message: it called `send_message`."""

    @abstractmethod
    def function_message(self, msg: str, msg_obj: Any = None) -> None:
        """The agent calls a function: `Running name(arguments)`, then `Ran …`, then `Success: …` or `Error: …`."""


class AgentChunkStreamingInterface(AgentInterface):
    """An interface that also gets the chunks of the model's answer."""

    @abstractmethod
    def process_chunk(self, chunk: Any, message_id: str = "", message_date: datetime | None = None) -> None:
        """The next chunk of a Chat Completions answer. The id and the time are those of the complete message."""

    @abstractmethod
    def stream_start(self) -> None:
        """An answer begins; its chunks follow."""

    @abstractmethod
    def stream_end(self) -> None:
        """The answer is complete."""


class AgentRefreshStreamingInterface(AgentInterface):
    """An interface that also gets the model's answer so far, again and again while it grows."""

    @abstractmethod
    def process_refresh(self, response: Any) -> None:
        """A Chat Completions answer as far as it has arrived."""

    @abstractmethod
    def stream_start(self) -> None:
        """An answer begins."""

    @abstractmethod
    def stream_end(self) -> None:
        """The answer is complete."""

    @abstractmethod
    def toggle_streaming(self, on: bool) -> None:
        """Show answers while they arrive (on), or only what the other methods get (off)."""
