"""The losses of an encoded stream: which of its messages a reader of the target protocol does not get.

The rule: what was encoded is decoded again, so nothing has to be listed for each protocol. A message came across if its
content is in that of any decoded message, whatever became of its type; one without content, if there is one of its type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.engine import Engine
from ..messages import Message
from .registry import find
from .request_content import LeftOut

__all__ = ["left_out_of"]


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
    contents = "\0".join(message.content for message in engine.messages.all)
    types = {message.type for message in engine.messages.all}
    reason = f"{protocol} has no place for it"
    return [
        LeftOut(message, reason)
        for message in messages
        if not (message.content in contents if message.content else message.type in types)
    ]
