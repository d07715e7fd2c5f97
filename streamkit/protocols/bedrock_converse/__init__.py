"""Amazon Bedrock's ConverseStream, and the streams of Amazon Nova through InvokeModelWithResponseStream, which has the same events.
Those of older models through it, which are plain text, are read as such events (`plain_text`).

Documented at https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html. Its binary framing is in
`protocols/amazon_framer.py`. `decoder` states when an answer is complete, `blocks` restores content blocks from messages for
`encoder`, which has a table of what the protocol cannot express, and for `input`.
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
