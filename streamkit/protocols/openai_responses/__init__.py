"""The Responses protocol of OpenAI, and of the servers that imitate it.

The format is documented at https://platform.openai.com/docs/api-reference/responses-streaming. When a response is
complete is stated in `decoder`; what servers do differently is stated where it is handled: how events find their item in
`item_index`, how an item's final form is read in `final_items`. What the protocol cannot express is the table in
`encoder`.
"""

from .decoder import Decoder
from .encoder import Encoder
from .input import to_input

__all__ = ["Decoder", "Encoder", "to_input"]
