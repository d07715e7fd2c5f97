"""The Responses protocol of OpenAI, and of the servers that imitate it.

The format is documented at https://platform.openai.com/docs/api-reference/responses-streaming. `decoder` states when a
response is complete. What servers do differently is stated where it is handled: `item_index` finds an event's item,
`final_items` reads an item's final form. `encoder` has a table of what the protocol cannot express.
"""

from .decoder import Decoder
from .encoder import Encoder
from .input import to_input

__all__ = ["Decoder", "Encoder", "to_input"]
