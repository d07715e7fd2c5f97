"""Open Interpreter 0.2 to 0.4: its streaming chunks and its static messages. Documented at
https://docs.openinterpreter.com/guides/streaming-response and https://docs.openinterpreter.com/protocols/lmc-messages.
Chunks of 0.1 are decoded by `legacy`.

Its quirks: pulling a live producer past a confirmation approves it (`questions`); two forms of what a confirmation is
about (`confirmations`); chunks that leave out what they should have (`assembly`); what cannot be expressed (the table of
`Encoder`).
"""

from typing import TYPE_CHECKING

from ...lazy_names import lazy_names
from .decoder import Decoder, WebsocketDecoder

if TYPE_CHECKING:
    from .encoder import Encoder
    from .input import explode, to_input, truncate

__all__ = ["Decoder", "Encoder", "WebsocketDecoder", "explode", "to_input", "truncate"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__, {"Encoder": ".encoder", "explode": ".input", "to_input": ".input", "truncate": ".input"}
    )
