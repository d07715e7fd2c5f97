"""The Chat Completions protocol of OpenAI, and of the many servers that imitate it.

The format is documented at https://platform.openai.com/docs/api-reference/chat-streaming. When an answer is complete is
stated in `decoder`; what servers do differently is stated where it is handled: tool calls in `tool_calls`, the fields of
a delta in `choice`, errors and usage in `wire`. What Chat Completions cannot express is the table in `encoder`.
"""

from .decoder import Decoder
from .encoder import Encoder
from .input import to_input

__all__ = ["Decoder", "Encoder", "to_input"]
