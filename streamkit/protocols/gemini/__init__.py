"""Google's generateContent and streamGenerateContent: the Gemini API, Vertex AI, and proxies that wrap their answers.

The format is documented at https://ai.google.dev/api/generate-content. `decoder` states when an answer is complete, and what
each of its chunks says; `candidate` reads the parts of one candidate, `arguments` those of a call that come with their paths,
`grounding` what the answer cites. `parts` turns messages back into parts, for `encoder`, which has a table of what the
protocol cannot express, and for `input`.
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
