"""Open Interpreter; `decoder` tells the format and its quirks, `legacy` that of before 0.2."""

from .decoder import Decoder, WebsocketDecoder
from .encoder import Encoder
from .input import explode, to_input, truncate

__all__ = ["Decoder", "Encoder", "WebsocketDecoder", "explode", "to_input", "truncate"]
