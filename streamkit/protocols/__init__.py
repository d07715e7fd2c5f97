"""The wire protocols: how the streams of providers become events, and events become such streams.

A protocol is a package with a class `Decoder` (items to events), a class `Encoder` (events to items) and a function
`to_input` (messages to the input of the next request). `base` says how to write one, `registry` how another package adds
one, and `values` has the readers for values of any JSON type.
"""

from .base import Decoder, Encoder
from .encoding_report import left_out_of
from .registry import BUILT_IN, find, names, recognise, to_input
from .request_content import LeftOut
from .ui_answers import Approval, ToolResult, UiAnswer, give_answers
from .values import is_list, is_object

__all__ = [
    "BUILT_IN",
    "Approval",
    "Decoder",
    "Encoder",
    "LeftOut",
    "ToolResult",
    "UiAnswer",
    "find",
    "give_answers",
    "is_list",
    "is_object",
    "left_out_of",
    "names",
    "recognise",
    "to_input",
]
