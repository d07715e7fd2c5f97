"""Ollama's own protocol (`/api/chat`, `/api/generate`): lines of JSON.

The format is documented at https://docs.ollama.com/api. `decoder` states when an answer is complete. `encoder` has a table of what
the protocol cannot express. (Ollama speaks Chat Completions as well, at `/v1`.)
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
