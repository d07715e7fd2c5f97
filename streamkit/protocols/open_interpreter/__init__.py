"""Open Interpreter 0.2 to 0.4: its streaming chunks and its static messages. Documented at
https://docs.openinterpreter.com/guides/streaming-response and https://docs.openinterpreter.com/protocols/lmc-messages.
Chunks of 0.1 are decoded by `legacy`.

Its quirks: pulling a live producer past a confirmation approves it (`questions`); two forms of what a confirmation is
about (`confirmations`); chunks that leave out what they should have (`assembly`); what cannot be expressed (the table of
`Encoder`).
"""

from typing import TYPE_CHECKING

from ...lazy_names import lazy_names

if TYPE_CHECKING:
    from .decoder import Decoder, WebsocketDecoder
    from .encoder import Encoder
    from .input import explode, to_input, truncate
    from .shape import may_be_question_line

__all__ = ["Decoder", "Encoder", "WebsocketDecoder", "explode", "may_be_question_line", "to_input", "truncate"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Decoder": ".decoder",
            "Encoder": ".encoder",
            "WebsocketDecoder": ".decoder",
            "explode": ".input",
            "may_be_question_line": ".shape",
            "to_input": ".input",
            "truncate": ".input",
        },
    )
