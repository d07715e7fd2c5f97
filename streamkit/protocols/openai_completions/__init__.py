"""The legacy Completions protocol of OpenAI (`/v1/completions`), which vLLM, llama.cpp and others still serve.

The format is documented at https://platform.openai.com/docs/api-reference/completions. A prompt is continued as plain
text, so there are no roles, tool calls or reasoning. `decoder` states when an answer is complete, and what servers do
differently.
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
