"""The conversation of one run in the store: read when the run begins or is taken over, and saved as it goes on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Sequence

from ..agent.actions import as_waiting
from ..agent.conversation import as_messages, changed
from ..agent.sub_agent import ids_shown_again
from ..errors import StaleVersionError
from ..messages import Message
from ..stores import Store
from .records import Context

__all__ = ["SavedConversation", "not_shown_again"]

_TITLE = 80  # characters of a conversation's title


class SavedConversation:
    """A conversation that a run has locked.

    Args:
        store: has it.
        context: the run that the agent is made for. Its `messages` are those of the conversation.
    """

    def __init__(self, store: Store, context: Context) -> None:
        self._store = store
        self._context = context
        self._version = 0
        self._lock = threading.Lock()
        self._earlier: set[str | None] = set()  # the ids of earlier runs in it

    async def add_input(self) -> None:
        """Read it, and add what the user says. A new one begins with the messages that the context has.

        Raises:
            StaleVersionError: it was changed or deleted at this very moment.
        """
        context = self._context
        saved = await self._store.aload(context.conversation_id)
        messages, version = (context.messages, 0) if saved is None or not saved.version else saved
        _name(context.input, messages, context.run_id)
        title = None if any(one.role == "user" for one in messages) else _title_of(context.input)
        everything = [*messages, *context.input]
        self._take(
            messages,
            await self._store.asave(context.conversation_id, everything, version, title=title, run=context.run_id),
        )

    async def take_over(self) -> bool:
        """Read it for a run that was taken over before its producer acted on an answer. It is saved as it is, so that this
        producer, which may only have been stopped, saves nothing any more. False if the run does not have it."""
        id, run_id = self._context.conversation_id, self._context.run_id
        while (saved := await self._store.aload(id)) is not None:
            messages = as_waiting(saved.messages, run_id)
            with contextlib.suppress(StaleVersionError):  # at this very moment it did
                self._take(messages, await self._store.asave(id, messages, saved.version, run=run_id))
                return True
            record = await self._store.aget(id)
            if record is None or record.run != run_id:
                break
        return False

    def _take(self, messages: list[Message], version: int) -> None:
        self._context.messages, self._version = messages, version
        self._earlier = {message.run_id for message in messages}

    def save(self, messages: Sequence[Message]) -> None:
        """Save the messages of the run's agent. Threads may call it: its tools begin in some, beside each other.

        Raises:
            StaleVersionError: another producer has saved it, or it was deleted.
        """
        context = self._context
        with self._lock:
            mine = self._of_this_run(messages)
            self._version = self._store.save(context.conversation_id, mine, self._version, run=context.run_id)

    def _of_this_run(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages, of which the new ones have this run's id."""
        return [
            message if message.run_id in self._earlier else changed(message, run_id=self._context.run_id)
            for message in as_messages(messages)
        ]

    def unlock(self) -> None:
        """Leave it to another run."""
        self._store.unlock(self._context.conversation_id, self._context.run_id)


def _name(input: Iterable[Message], earlier: Iterable[Message], run_id: str) -> None:
    """Give the input's messages the id of their run, and ids of their own that are new in the conversation."""
    used = {message.id for message in earlier}
    for number, message in enumerate(input, 1):
        if not message.id or message.id in used:
            message.id = f"{run_id}.{number}"
        used.add(message.id)
        message.run_id = run_id


def _title_of(messages: Sequence[Message]) -> str:
    """Return the title of a conversation: the beginning of the user's last text, before which there may be files."""
    for message in reversed(messages):
        if message.role == "user" and message.type == "message" and message.content.strip():
            return " ".join(message.content.split())[:_TITLE]
    return ""


def not_shown_again(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without open calls, also of sub-agents: those of a run that goes on, whose stream repeats its calls
    with the same ids."""
    ids = ids_shown_again(messages)
    return [message for message in messages if message.id not in ids]
