"""Parts that both UI protocols write alike: arguments in pieces, code as a call, and fields that neither has a key
for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ..answers import Confirmation
from ..events import EVENTS, Event, Usage
from ..messages import OUTPUT_RETRY, ConsoleMessage, Message, ToolCallMessage
from .codec import event_from_dict, event_to_dict
from .values import WireObject, as_count, as_object, as_seconds, as_text, is_object, json_text, parse_json, without_keys

__all__ = [
    "CODE_TOOL",
    "DENIED",
    "EXTRA_KEY",
    "JSON_BLANKS",
    "MALFORMED",
    "MASKED_ERROR",
    "UNFINISHED",
    "CodeArguments",
    "HeldText",
    "application_event",
    "call_input",
    "extra_call_id",
    "extra_fields",
    "is_application_event",
    "message_fields",
    "output_value",
    "restored_event",
    "seconds_of",
    "shown_messages",
    "static_form",
    "usage_object",
    "usage_of",
]

CODE_TOOL = "execute_code"
"""The name of the tool that stands for code. Its arguments are `language` and `code`."""

EXTRA_KEY = "streamkit"
"""The key under which the fields of our messages stand that the protocol has no place for."""

MASKED_ERROR = "The run failed."
"""The text in place of an error's own, which may contain secrets."""

DENIED = "The call was declined."
"""The output of a call that was declined without a reason."""

JSON_BLANKS = " \t\n\r"
"""The white space of JSON. Arguments that are nothing else are none."""

MALFORMED = "The arguments are not a JSON object."
"""The error of a call with arguments that cannot be read."""

UNFINISHED = "The call gave no output."
"""The error of a call that was approved and has no output, because its run ended."""

_EXTRA_FIELDS = ("format", "role", "group", "index", "name", "recipient", "created_at", "parent_id")
_TEXT_FIELDS = ("format", "role", "group", "name", "recipient", "call_id", "parent_id")
_MOST_HELD = 256  # characters


class HeldText:
    """Pieces of a call's arguments, which are sent a few at a time.

    The clients of both protocols parse all of the arguments at each piece. So the pieces are joined until they are an
    eighth of what was sent, or 256 characters: the first come at once, and a call of any length is parsed in linear time
    but for a small factor.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._held = 0
        self._sent = 0

    def add(self, piece: str) -> str:
        """Return the text to send now: "", or the pieces so far."""
        self._pieces.append(piece)
        self._held += len(piece)
        return "" if self._held < min(self._sent >> 3, _MOST_HELD) else self.take()

    def take(self) -> str:
        """Return the pieces that were not sent."""
        text = "".join(self._pieces)
        self._sent += self._held
        self._held = 0
        self._pieces.clear()
        return text


class CodeArguments:
    """The arguments of the call that stands for code, written while the code streams."""

    def __init__(self, language: str | None) -> None:
        self._language = language

    def begin(self) -> str:
        """Return the JSON text before the code."""
        language_field = "" if self._language is None else f'"language":{json_text(self._language)},'
        return f'{{{language_field}"code":"'

    def piece(self, code: str) -> str:
        """Return a piece of the code, as a part of a JSON string."""
        return msgspec.json.encode(code)[1:-1].decode("utf-8")

    def end(self, language: str | None) -> str:
        """Return the JSON text after the code, with the language if it was not written before."""
        late = f',"language":{json_text(language)}' if self._language is None and language is not None else ""
        return f'"{late}}}'


# -- messages that are shown


def shown_messages(everything: Iterable[Message | Confirmation]) -> Iterator[Message]:
    """Yield the messages of a conversation that a person sees: of sub-agents those calls that a confirmation among them is
    about, with what they gave; and not those in which an agent asks for its output once more."""
    everything = [*everything]
    subjects = [one.subject for one in everything if isinstance(one, Confirmation)]
    confirmed = {subject.call_id or subject.id for subject in subjects}
    for message in everything:
        if isinstance(message, Confirmation) or message.choice or OUTPUT_RETRY in message.metadata:
            continue
        if message.parent_id is None or (message.call_id or message.id) in confirmed:
            yield message


# -- fields that the protocol has no place for


def extra_fields(message: Message, *expressed: str, id: str = "", default_role: str = "assistant") -> dict[str, Any]:
    """Return the fields of a message that a reader of ours gets back.

    Args:
        message: the message.
        expressed: the names of those that the protocol has a place for.
        id: the id that it has in the protocol.
        default_role: the role that a reader takes it to have.
    """
    fields = {key: value for key in _EXTRA_FIELDS if key not in expressed and (value := getattr(message, key))}
    if fields.get("role") == default_role:
        del fields["role"]
    if isinstance(message, ConsoleMessage):
        fields.pop("format", None)
    if message.status not in ("completed", "in_progress"):
        fields["status"] = message.status
    if message.id != id:
        fields["id"] = message.id
    return fields


def extra_call_id(message: Message, call_id: str | None) -> dict[str, Any]:
    """Return the call_id of a message, if a reader would take it to have this one. "" stands for none."""
    return {} if message.call_id == call_id else {"call_id": message.call_id or ""}


def message_fields(extra: WireObject, call_id: str | None = None) -> dict[str, Any]:
    """Return the fields of a message that `extra_fields` wrote, as far as they are well-formed. Without its id.

    `call_id` is the one that it has if `extra` has none.
    """
    fields: dict[str, Any] = {key: text for key in _TEXT_FIELDS if (text := as_text(extra.get(key)))}
    if "call_id" not in extra and call_id:
        fields["call_id"] = call_id
    if (index := as_count(extra.get("index"))) is not None:
        fields["index"] = index
    if (created_at := as_seconds(extra.get("created_at"))) is not None:
        fields["created_at"] = created_at
    if (status := as_text(extra.get("status"))) in ("incomplete", "cancelled", "failed"):
        fields["status"] = status
    if extra.get("custom") is True:
        fields["metadata"] = {"custom": True}
    return fields


def static_form(message: Message) -> dict[str, Any]:
    """Return the static form of a message, without its provider's own metadata."""
    form = message.to_dict()
    metadata = {key: message.metadata[key] for key in ("custom", "error") if key in message.metadata}
    return {**without_keys(form, "metadata"), **({"metadata": metadata} if metadata else {})}


# -- values


def call_input(call: ToolCallMessage) -> Any:
    """Return a call's arguments as a JSON value: an object, or the text of a call that takes any; None if they are
    neither."""
    if call.metadata.get("custom") is True:
        return call.content
    value: Any = parse_json(call.content) if call.content.strip(JSON_BLANKS) else {}
    return value if is_object(value) else None


def output_value(content: str) -> Any:
    """Return a tool's output: an object or a list where its text is one in compact JSON, else the text."""
    if content[:1] in ("{", "["):
        value = parse_json(content)
        if value is not None and json_text(value) == content:
            return value
    return content


def seconds_of(milliseconds: Any) -> float | None:
    """Return a time in seconds, None if this is not a time in milliseconds."""
    value = as_seconds(milliseconds)
    return None if value is None else value / 1000


def usage_object(usage: Usage) -> dict[str, Any]:
    """Token counts under the names that both protocols have for them."""
    details = usage.details
    finer = {
        "reasoningTokens": as_object(
            details.get("output_tokens_details") or details.get("completion_tokens_details")
        ).get("reasoning_tokens"),
        "cachedInputTokens": as_object(details.get("input_tokens_details") or details.get("prompt_tokens_details")).get(
            "cached_tokens"
        ),
    }
    counts = {"inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens, "totalTokens": usage.total_tokens}
    return {**counts, **{key: count for key, value in finer.items() if (count := as_count(value)) is not None}}


def usage_of(wire: WireObject) -> Usage:
    """Token counts from such an object. `details` has the other keys."""
    received, generated = as_count(wire.get("inputTokens")) or 0, as_count(wire.get("outputTokens")) or 0
    details = without_keys(wire, "inputTokens", "outputTokens", "totalTokens")
    return Usage(received, generated, as_count(wire.get("totalTokens")) or received + generated, details)


# -- the application's own events


def is_application_event(kind: type[Event]) -> bool:
    """Whether an event's class is not a part of streamkit."""
    return not kind.__module__.startswith("streamkit.")


def application_event(event: Event) -> dict[str, Any]:
    """Return the fields of an application's own event."""
    return without_keys(event_to_dict(event), "type", "cursor")


def restored_event(name: str, value: Any) -> Event | None:
    """Return the application's event of this type with these fields, None if it declared none or they do not fit."""
    kind = EVENTS.get(name)
    if kind is None or not is_application_event(kind) or not is_object(value):
        return None
    try:
        return event_from_dict({**value, "type": name})
    except ValueError:
        return None
