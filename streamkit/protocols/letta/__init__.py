"""Letta's streams, of today and of 2024; `decoder` tells the format and its quirks."""

from .decoder import Decoder
from .encoder import Encoder
from .input import to_input

__all__ = ["Decoder", "Encoder", "to_input"]
