"""The Responses protocol of OpenAI, and of the servers that imitate it.

The format is documented at https://platform.openai.com/docs/api-reference/responses-streaming. `decoder` states when a
response is complete. What servers do differently is stated where it is handled: `item_index` finds an event's item,
`final_items` reads an item's final form. `encoder` has a table of what the protocol cannot express.
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
