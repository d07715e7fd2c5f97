"""Code that a model asks to be run: what the tool is called, what of a call may run, and why the rest may not.

Nothing runs that is not whole, that the JSON says in two ways, or that is not exactly the code that the stream has told.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from ..messages import CodeMessage, ToolCallMessage

__all__ = ["CODE_TOOL", "FIELDS", "Code", "Refused", "arguments_of", "code_schema", "read_code"]

CODE_TOOL = "execute"
FIELDS = {f"{CODE_TOOL}.code": "code"}
_SAME = {"language": "format", "code": "content"}  # the words of a flat message, which some models use


class Code(NamedTuple):
    """Code that may run, if it is approved: `message` is the one that told it."""

    language: str
    source: str
    message: CodeMessage


class Refused(NamedTuple):
    """Why the code of a call cannot run, as the model is told."""

    reason: str


def code_schema(languages: Collection[str]) -> dict[str, Any]:
    """The tool, as the functions of an application are told."""
    return {
        "name": CODE_TOOL,
        "description": (
            "Run code on the user's computer. Variables, imports and files are kept from one run to the next. "
            "The answer is what it printed; images that it displays are shown."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "language": {"type": "string", "enum": list(languages), "description": "the code's language"},
                "code": {"type": "string", "description": "the code, whole"},
            },
            "required": ["language", "code"],
            "additionalProperties": False,
        },
    }


def arguments_of(language: str, source: str) -> str:
    """The arguments of a call that runs this."""
    return json.dumps({"language": language, "code": source}, ensure_ascii=False)


def read_code(call: ToolCallMessage, told: Iterable[CodeMessage]) -> Code | Refused:
    """What a call wants to run. `told` are the code messages of the call's step."""
    if call.status != "completed":
        return Refused("the call was cut short")
    try:
        given = json.loads(call.content or "{}", object_pairs_hook=_pairs, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        return Refused(f"its arguments are no JSON: {error}")
    if isinstance(given, _Twice):
        return Refused(f"its arguments say {given.key!r} twice, and not the same")
    if not isinstance(given, dict):
        return Refused("its arguments are no JSON object")
    values = cast("dict[str, Any]", given)
    for key, other in _SAME.items():
        if other in values and values.get(key) != values[other]:
            return Refused(f"its arguments say {key!r} and {other!r}, and not the same")
    language, source = values.get("language"), values.get("code")
    if not isinstance(language, str) or not language.strip():
        return Refused("its arguments name no language")
    if not isinstance(source, str):
        return Refused("its arguments have no code")
    if not source.strip():
        return Refused("there is no code in it")
    for message in told:
        shown = message.call_id == (call.call_id or call.id) and message.status == "completed"
        if shown and (message.format, message.content) == (language, source):
            return Code(language.strip().lower(), source, message)
    return Refused("the code that was shown is not the code of the call, or not in its language")


def _refuse(constant: str) -> object:
    """Python's own reader takes more than JSON."""
    raise ValueError(f"{constant} is none")


class _Twice:
    """An object with a key that has two values."""

    def __init__(self, key: str) -> None:
        self.key = key


def _pairs(pairs: Sequence[tuple[str, Any]]) -> Mapping[str, Any] | _Twice:
    known: dict[str, Any] = {}
    for key, value in pairs:
        if isinstance(value, _Twice):
            return value
        if key in known and known[key] != value:
            return _Twice(key)
        known[key] = value
    return known
