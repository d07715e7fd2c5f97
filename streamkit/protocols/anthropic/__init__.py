"""Anthropic's Messages API, and the servers that imitate it.

Documented at https://docs.anthropic.com/en/api/messages and https://docs.anthropic.com/en/api/messages-streaming.

`decoder` states the terminal rule and how answers begin and end, `encoder` what the protocol cannot express, `input` what a
request takes, `wire` the tables and forms of the wire, `shape` how the protocol is recognised. Blocks become messages in `blocks`
(those that grow), `results` (those that come complete) and `content` (all blocks of one answer); messages become blocks in
`block_writer`.
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
