"""Letta's streams: today's (server 0.16), and those of 2024, MemGPT's among them.

Documented at https://docs.letta.com/guides/agents/streaming and in the `letta-client` package's types.

`decoder` states the terminal rule and the quirks of the stream, `encoder` what the protocol cannot express, `input` what a
request takes, `wire` the tables and forms of the wire, `legacy` how the items of 2024 correspond to today's. `fragments`
has the merge rules, which `texts` and `calls` apply; `ids` numbers messages, `dates` reads and writes times.
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
