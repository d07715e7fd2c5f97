"""The wire protocols: how the streams of providers become events, and events become such streams.

A protocol is a package with a class `Decoder` (items to events), a class `Encoder` (events to items) and a function
`to_input` (messages to the input of the next request). `base` says how to write one, `registry` how another package adds
one, and `values` has the readers for values of any JSON type.
"""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names
from .base import Decoder, Encoder
from .registry import BUILT_IN, find, names, recognise, to_input
from .values import is_list, is_object

if TYPE_CHECKING:
    from .api_request import ApiRequest, ToolChoice
    from .encoding_report import left_out_of
    from .request_content import LeftOut
    from .ui_answers import Approval, ToolResult, UiAnswer, give_answers

__all__ = [
    "BUILT_IN",
    "ApiRequest",
    "Approval",
    "Decoder",
    "Encoder",
    "LeftOut",
    "ToolChoice",
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

if not TYPE_CHECKING:
    _submodules = {"LeftOut": ".request_content", "left_out_of": ".encoding_report"}
    _submodules |= dict.fromkeys(("Approval", "ToolResult", "UiAnswer", "give_answers"), ".ui_answers")
    _submodules |= dict.fromkeys(("ApiRequest", "ToolChoice"), ".api_request")
    __getattr__, __dir__ = lazy_names(__name__, _submodules)
