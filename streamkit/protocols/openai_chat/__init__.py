"""The Chat Completions protocol of OpenAI, and of the many servers that imitate it.

The format is documented at https://platform.openai.com/docs/api-reference/chat-streaming. `decoder` states when an
answer is complete. What servers do differently is stated where it is handled: the keys of a delta in `delta`, tool calls in
`tool_calls`, the end of a choice in `choice`, token counts in `usage`, errors in `wire`. A chunk that is one piece of an open
message is the plain case, in `plain`, with the same events. `encoder` has a table of what Chat Completions cannot express.
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
