"""Anthropic's Messages API, and the servers that imitate it.

Documented at https://docs.anthropic.com/en/api/messages and https://docs.anthropic.com/en/api/messages-streaming.

`decoder` states the terminal rule and the quirks of the stream, `encoder` what the protocol cannot express, `input` what a
request takes, `wire` the tables and forms of the wire. Content blocks become messages in `blocks`, `results` (blocks that
come complete) and `content` (those of one answer together); `output` is the way back from messages to blocks.
"""

from .decoder import Decoder
from .encoder import Encoder
from .input import to_input

__all__ = ["Decoder", "Encoder", "to_input"]
