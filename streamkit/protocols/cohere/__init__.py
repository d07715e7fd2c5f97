"""Cohere's chat, version 2 (`/v2/chat`): Server-Sent Events.

The format is documented at https://docs.cohere.com/v2/docs/streaming. `decoder` states when an answer is complete. `encoder` has a
table of what the protocol cannot express. Version 1 (`event_type`), and what other clouds wrap around it, are not read.
"""

from typing import TYPE_CHECKING

from ...lazy_names import lazy_names

if TYPE_CHECKING:
    from .decoder import Decoder
    from .encoder import Encoder
    from .input import to_input

__all__ = ["Decoder", "Encoder", "to_input"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, {"Decoder": ".decoder", "Encoder": ".encoder", "to_input": ".input"})
