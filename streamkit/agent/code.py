"""The tool with which a model runs code: its schema, and which code of a call may run.

Code runs only if the call is complete, its JSON can be read in one way alone, and the code is exactly what the stream's
`CodeMessage` showed.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from ..errors import UsageError
from ..messages import CodeMessage, ToolCallMessage
from .calls import call_id_of

__all__ = [
    "CODE_TOOL",
    "FIELDS",
    "ProposedCode",
    "RejectedCode",
    "check_auto_run",
    "code_arguments",
    "code_schema",
    "read_code",
    "runs_without_confirmation",
]

CODE_TOOL = "execute"
FIELDS = {f"{CODE_TOOL}.code": "code"}
"""`fields=` of an agent's streams: the code argument becomes a `CodeMessage`."""

_SYNONYMS = {"language": "format", "code": "content"}  # the keys of a flat message, which some models use


class ProposedCode(NamedTuple):
    """Code that may run once it is approved. `message` is the one that showed it; `language` is in lower case."""

    language: str
    source: str
    message: CodeMessage


class RejectedCode(NamedTuple):
    """Why the code of a call cannot run, as the model reads it."""

    reason: str


def code_schema(languages: Collection[str]) -> dict[str, Any]:
    """Return the schema of the tool that runs code in these languages."""
    return {
        "name": CODE_TOOL,
        "description": (
            "Run code on the user's computer. Variables, imports and files persist from one run to the next. "
            "Returns what the code printed; images that it displays are shown."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "language": {"type": "string", "enum": list(languages), "description": "the language of the code"},
                "code": {"type": "string", "description": "the complete code"},
            },
            "required": ["language", "code"],
            "additionalProperties": False,
        },
    }


def code_arguments(language: str, source: str) -> str:
    """Return the JSON arguments of a call that runs this code."""
    return json.dumps({"language": language, "code": source}, ensure_ascii=False)


def read_code(call: ToolCallMessage, code_messages: Iterable[CodeMessage]) -> ProposedCode | RejectedCode:
    """Return the code that a call asks to run, or why it cannot run.

    Args:
        call: a call of `CODE_TOOL`.
        code_messages: those of the call's step.
    """
    try:
        language, source = _language_and_source(call)
    except _Rejection as rejection:
        return RejectedCode(str(rejection))
    for message in code_messages:
        shown = message.call_id == call_id_of(call) and message.status == "completed"
        if shown and (message.format, message.content) == (language, source):
            return ProposedCode(language.strip().lower(), source, message)
    return RejectedCode("the code that was shown to the user is not the code of the call, or not in its language")


class _Rejection(Exception):
    """The reason why a call's arguments cannot be read."""


def _language_and_source(call: ToolCallMessage) -> tuple[str, str]:
    if call.status != "completed":
        raise _Rejection("the call was cut short")
    arguments = _arguments(call.content or "{}")
    for key, synonym in _SYNONYMS.items():
        if synonym in arguments and arguments.get(key) != arguments[synonym]:
            raise _Rejection(f"its arguments have different values for {key!r} and {synonym!r}")
    language, source = arguments.get("language"), arguments.get("code")
    if not isinstance(language, str) or not language.strip():
        raise _Rejection("its arguments name no language")
    if not isinstance(source, str):
        raise _Rejection("its arguments contain no code")
    if not source.strip():
        raise _Rejection("its code is empty")
    return language, source


def _arguments(text: str) -> Mapping[str, Any]:
    try:
        arguments = json.loads(text, object_pairs_hook=_unambiguous_object, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise _Rejection(f"its arguments are not valid JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise _Rejection("its arguments are not a JSON object")
    return cast("dict[str, Any]", arguments)  # `_unambiguous_object` made it


def _reject_constant(constant: str) -> object:
    """Python's parser accepts `NaN` and `Infinity`, which are not JSON."""
    raise ValueError(f"{constant} is not allowed")


def _unambiguous_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. One that repeats a key with another value is rejected, because parsers disagree on what it
    means."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values and values[key] != value:
            raise _Rejection(f"its arguments contain {key!r} twice, with different values")
        values[key] = value
    return values


# -- the rule that says which code runs without a confirmation


def check_auto_run(auto_run: Any) -> bool | Callable[[CodeMessage], bool]:
    """Return the value of `auto_run=`, checked.

    Raises:
        UsageError: it is neither a bool nor a plain function.
    """
    if isinstance(auto_run, bool) or (callable(auto_run) and not inspect.iscoroutinefunction(auto_run)):
        return cast("bool | Callable[[CodeMessage], bool]", auto_run)  # a function's types cannot be checked
    raise UsageError(f"`auto_run` is True, False or a plain function of the code message, not {auto_run!r}")


def runs_without_confirmation(auto_run: Any, code: CodeMessage) -> bool:
    """Whether `auto_run` lets this code run.

    Raises:
        UsageError: `auto_run` is not a rule, or the function raised, or did not return a bool.
    """
    rule = check_auto_run(auto_run)
    if isinstance(rule, bool):
        return rule
    try:
        allowed = cast("object", rule(code))  # checked here, for callers without a type checker
    except Exception as error:
        raise UsageError(f"`auto_run` raised {type(error).__name__}: {error}") from error
    if not isinstance(allowed, bool):
        raise UsageError(f"`auto_run` returns True or False, not {allowed!r}: write `bool(...)` around it")
    return allowed
