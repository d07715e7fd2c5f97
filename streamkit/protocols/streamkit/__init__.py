"""streamkit's own protocol: the canonical events, as relays, recordings and chained streams carry them.

The items are the event classes' JSON form, which `streamkit.protocols.codec` defines. Items may be event objects, too.
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
