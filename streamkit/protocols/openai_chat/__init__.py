"""The Chat Completions protocol of OpenAI, and of the many servers that imitate it.

The format is documented at https://platform.openai.com/docs/api-reference/chat-streaming. `decoder` states when an
answer is complete. What servers do differently is stated where it is handled: the keys of a delta in `delta`, tool calls in
`tool_calls`, the end of a choice in `choice`, token counts in `usage`, errors in `wire`. A chunk that is one piece of an open
message is the plain case, in `plain`, with the same events. `encoder` has a table of what Chat Completions cannot express.
`request` reads what a client of this API sends to a server of ours, and `answer` is what it gets.
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
