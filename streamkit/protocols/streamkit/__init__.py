"""streamkit's own protocol: canonical events, as objects or as their wire form."""

from .decoder import Decoder
from .encoder import Encoder
from .input import to_input

__all__ = ["Decoder", "Encoder", "to_input"]
