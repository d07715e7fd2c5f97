"""The UI message stream of Vercel's AI SDK, which `useChat` reads: version 1, as `ai` 5, 6 and 7 have it.

Documented at https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol and in the `ai` package's `ui-message-chunks`. `decoder`
states the terminal rule, `encoder` what each version cannot express, `input` writes our messages as UI messages, and
`request` reads what `useChat` posts. `wire` has the tables of the format.
"""

from typing import TYPE_CHECKING

from ...lazy_names import lazy_names

if TYPE_CHECKING:
    from .decoder import Decoder
    from .encoder import Encoder
    from .input import to_input
    from .request import ChatRequest, from_request

__all__ = ["ChatRequest", "Decoder", "Encoder", "from_request", "to_input"]

if not TYPE_CHECKING:
    _submodules = {"Decoder": ".decoder", "Encoder": ".encoder", "to_input": ".input"}
    _submodules |= dict.fromkeys(("ChatRequest", "from_request"), ".request")
    __getattr__, __dir__ = lazy_names(__name__, _submodules)
