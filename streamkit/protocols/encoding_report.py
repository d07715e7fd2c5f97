"""The losses of an encoded stream: which of its messages a reader of the target protocol does not get.

The rule: what was encoded is decoded again, so nothing has to be listed for each protocol. A message came across if its
content is in that of any decoded message, whatever became of its type; a call, if one has its arguments, which some protocols write
anew; one without content, if there is one of its type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core.engine import Engine
from ..messages import Message, ToolCallMessage
from .registry import find
from .request_content import LeftOut

__all__ = ["left_out_of", "missing_in"]


def left_out_of(messages: Iterable[Message], items: Iterable[Mapping[str, Any]], protocol: str) -> list[LeftOut]:
    """Return the messages of a stream that are not in its encoded form.

    Args:
        messages: the stream's messages.
        items: what the protocol's encoder made of the stream's events.
        protocol: the protocol's name.

    Raises:
        UsageError: there is no such protocol.
    """
    engine = Engine()
    decoder = find(protocol).Decoder(engine.messages.new_id)
    for events in (decoder.feed_items(items), decoder.finish()):
        for _ in engine.complete(events):
            pass
    for _ in engine.source_done(complete=True):
        pass
    reason = f"{protocol} has no place for it"
    return [LeftOut(message, reason) for message in missing_in(engine.messages.all, messages)]


def missing_in(decoded: Sequence[Message], messages: Iterable[Message]) -> list[Message]:
    """Return those of the messages that are in none of the decoded ones. White space around them does not count."""
    contents = "\0".join(message.content for message in decoded)
    types = {message.type for message in decoded}
    calls = [message.arguments for message in decoded if isinstance(message, ToolCallMessage)]

    def has_come(message: Message) -> bool:
        if not (content := message.content.strip()):
            return message.type in types
        return content in contents or (isinstance(message, ToolCallMessage) and message.arguments in calls)

    return [message for message in messages if not has_come(message)]
