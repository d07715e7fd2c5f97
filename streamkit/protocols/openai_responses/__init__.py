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
    from .request import from_request

__all__ = ["Decoder", "Encoder", "from_request", "to_input"]

if not TYPE_CHECKING:
    _PLACES = {"Decoder": ".decoder", "Encoder": ".encoder", "from_request": ".request", "to_input": ".input"}
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)
