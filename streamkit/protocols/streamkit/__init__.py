"""streamkit's own protocol: the canonical events, as relays, recordings and chained streams carry them.

The items are the event classes' JSON form, which `streamkit.protocols.codec` defines. Items may be event objects, too.
"""

from .decoder import Decoder
from .encoder import Encoder
from .input import to_input

__all__ = ["Decoder", "Encoder", "to_input"]
