"""Finds a protocol: by its name, or by an item that has the shape of that protocol alone.

streamkit's own protocols are listed here. Another package adds one by an entry point: its name is the protocol's name, and
its value the module that has `Decoder`, `Encoder` and `to_input`:

    [project.entry-points."streamkit.protocols"]
    parrot = "parrot_streamkit.protocol"
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from ..answers import Confirmation
from ..errors import UsageError
from ..messages import CodeMessage, Message, ReasoningMessage, TextMessage, ToolCallMessage
from ..messages.json_text import well_formed
from .base import Decoder
from .frameworks.shape import FRAMEWORKS, framework_of
from .request_content import LeftOut
from .values import is_object

if TYPE_CHECKING:
    from .request_content import Report

__all__ = [
    "BUILT_IN",
    "PULL_APPROVES",
    "decoder_of",
    "find",
    "name_of",
    "names",
    "recognise",
    "recognise_object",
    "to_input",
]

BUILT_IN = (
    "openai_responses",
    "openai_chat",
    "openai_completions",
    "openai_assistants",
    "anthropic",
    "gemini",
    "bedrock_converse",
    "open_interpreter",
    "letta",
    "cohere",
    "ollama",
    "vercel_ui",
    "ag_ui",
    "streamkit",
)
"""The names of streamkit's own protocols, in the order in which they are tried on a source's first items. The package of each
has a module `shape`, which recognises an item without the decoder: that takes milliseconds to import."""

READ_ONLY = ("openai_agent_sessions", "text", *FRAMEWORKS)
"""The names of protocols that have a decoder alone: no encoder writes them, and no request takes them."""

_READ_ONLY_WITH_SHAPE = ("openai_agent_sessions",)  # those of them that an item shows; the others have to be named

PULL_APPROVES = ("open_interpreter",)
"""The names of protocols with `Decoder.pull_approves`, here so that no decoder is imported to find out. Their packages have
`may_be_question_line`."""

ENTRY_POINTS = "streamkit.protocols"
"""The group of the entry points of other packages' protocols."""

# Their input has no tool calls, or has every message unchanged: so it has what `fields=` extracted from calls.
_WITHOUT_CALLS = ("openai_assistants", "openai_completions", "open_interpreter", "streamkit")

# Their input is for people, or has every message unchanged. That of all others is for a model.
_FOR_PEOPLE = ("open_interpreter", "streamkit", "vercel_ui", "ag_ui")


def names() -> list[str]:
    """Return the names of all installed protocols."""
    return [*_all_names()]


def _all_names() -> Iterator[str]:
    yield from BUILT_IN
    yield from (name for name in _entry_points() if name not in BUILT_IN)


@cache
def _entry_points() -> dict[str, Any]:
    from importlib.metadata import entry_points  # takes 20 ms, so only when no built-in protocol will do

    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def find(name: str) -> ModuleType:
    """Return the module of a protocol.

    Raises:
        UsageError: there is no such protocol. The text lists the installed ones.
    """
    if name in BUILT_IN:
        return _built_in(name)
    if name in READ_ONLY:
        raise UsageError(f"{name!r} is only read; what can be written is: {', '.join(names())}")
    if name not in _entry_points():
        raise UsageError(f"there is no protocol {name!r}; there are: {', '.join((*names(), *READ_ONLY))}")
    module: ModuleType = _entry_points()[name].load()
    return module


def decoder_of(name: str) -> type[Decoder]:
    """Return the decoder of a protocol, a read-only one as well. Raises as `find`."""
    folder = "frameworks." if name in FRAMEWORKS else ""
    module = _built_in(folder + name) if name in READ_ONLY else find(name)
    decoder: type[Decoder] = module.Decoder
    return decoder


def name_of(decoder: type[Decoder]) -> str | None:
    """Return the name under which `find` finds this decoder; None if it is not installed under its name."""
    name = decoder.name
    installed = name in BUILT_IN or name in READ_ONLY or name in _entry_points()
    return name if installed and decoder_of(name) is decoder else None


@cache
def _built_in(name: str) -> ModuleType:
    return importlib.import_module(f"{__package__}.{name}")


def recognise_object(value: Any) -> type[Decoder] | None:
    """Return the decoder of the framework that this object is of; None for any other value."""
    name = framework_of(value)
    return None if name is None else decoder_of(name)


def recognise(item: Any, event_name: str = "") -> type[Decoder] | None:
    """Return the decoder of the protocol that this item belongs to, None if several protocols could have it.

    Args:
        item: an item of a source, as parsed JSON.
        event_name: the name of the SSE event that it came in.
    """
    usual = _usual_first(item, event_name)
    if usual is not None:
        return usual
    for name in _recognised_by_shape():
        shape = _shape(name)
        wraps = event_name and getattr(shape, "wraps_event_name", False)
        wrapped = {"event": event_name, "data": item} if wraps else item
        if is_object(wrapped) and shape.recognises(wrapped):
            return decoder_of(name)
    return None


def _recognised_by_shape() -> Iterator[str]:
    yield from _READ_ONLY_WITH_SHAPE
    yield from _all_names()


# The first items of most streams, by their `type`, or else by their `object`: the protocol, and keys with which the item could be of a
# protocol that `BUILT_IN` has before it, so that all have to be tried.
_FIRST_ITEMS = {
    "response.created": ("openai_responses", frozenset[str]()),
    "chat.completion.chunk": ("openai_chat", frozenset({"type"})),
    "message_start": ("anthropic", frozenset({"object", "choices", "event", "data"})),
}


def _usual_first(item: Any, event_name: str) -> type[Decoder] | None:
    """Return the decoder of an item that `_FIRST_ITEMS` has; None for any other item."""
    if item.__class__ is not dict or event_name.startswith("thread."):
        return None
    kind = item.get("type", item.get("object"))
    found = _FIRST_ITEMS.get(kind) if kind.__class__ is str else None
    if found is None or not found[1].isdisjoint(item) or not _shape(found[0]).recognises(item):
        return None
    decoder: type[Decoder] = _built_in(found[0]).Decoder
    return decoder


@cache
def _shape(name: str) -> Any:
    """Return what recognises a protocol's items: the module `shape` of its package; the decoder, if another package has it."""
    if name in BUILT_IN or name in _READ_ONLY_WITH_SHAPE:
        return importlib.import_module(f"{__package__}.{name}.shape")
    return find(name).Decoder


def to_input(
    messages: Iterable[Message | Confirmation],
    protocol: str,
    *,
    report: Report | None = None,
    host: str | None = None,
) -> list[Any]:
    """Messages as the input of a request in a protocol: the value of its `messages=` or `input=`.

    Messages of a sub-agent (`parent_id`) are in the input of `streamkit` alone: for others, the output of the call that began it has
    its answer. What has the recipient `user` is not sent to a model: only `open_interpreter` and protocols of user interfaces have it.
    What came over this protocol goes back as it came: reasoning with its signatures, what the provider's own tools found,
    compactions. What came from elsewhere goes as far as the protocol has a place for it. What is left out, `report` is
    called with:

        to_input(messages, "openai_chat", report=print)  # reasoning 'rs_1' was left out: it is reasoning of another protocol

    Messages may also be plain dicts, as `Message.to_dict` returns them. For protocols that take answers to confirmations, such as
    `openai_responses`, answered confirmations may stand among the messages. What `fields=` extracted from a call is left
    out if the call itself goes into the request.

    Args:
        messages: the conversation, or a part of it.
        protocol: the name of the protocol.
        report: called with a `LeftOut`, a message and a reason, for each thing that is left out. Protocols of other
            packages need not support it.
        host: the address of the server, such as `api.groq.com`, for a protocol that many servers speak: some refuse what
            others of them want back. Only `openai_chat` makes use of it.

    Raises:
        UsageError: there is no such protocol, it cannot express what a user wrote, or one of the messages is none.
    """
    flat = [_with_its_class(message) for message in messages]
    convert: Callable[..., list[Any]] = find(protocol).to_input
    taken = inspect.signature(convert).parameters
    options = {
        name: value for name, value in (("report", report), ("host", host)) if name in taken and value is not None
    }
    if protocol != "streamkit":
        flat = _without(
            flat, _is_of_sub_agent, "it is of a sub-agent: the output of the call that began it has its answer", report
        )
    if protocol not in _FOR_PEOPLE:
        flat = _without(flat, _is_for_user, "it is for the user, not for a model", report)
    return _sendable(convert(flat if protocol in _WITHOUT_CALLS else _without_extracted(flat), **options))


def _sendable(values: list[Any]) -> list[Any]:
    """Return these values without halves of surrogate pairs, which no client could send: names of files that are not UTF-8 have
    them."""
    try:
        msgspec.json.encode(values, enc_hook=str)
    except UnicodeEncodeError:
        return [*well_formed(values).value]
    except (TypeError, ValueError, RecursionError):
        pass  # what a request cannot take is the client's to say
    return values


def _with_its_class(message: Any) -> Any:
    """Return a message as an instance of the class for its type."""
    if not isinstance(message, (Message, Confirmation)):
        return Message.from_dict(message)
    return Message.from_dict(message.to_dict()) if type(message) is Message else message


def _without(messages: Sequence[Any], is_out: Callable[[Any], bool], why: str, report: Report | None) -> list[Any]:
    """Return these messages without those that are left out for a reason."""
    remaining: list[Any] = []
    for message in messages:
        if not is_out(message):
            remaining.append(message)
        elif report is not None and isinstance(message, Message):
            report(LeftOut(message, why))
    return remaining


def _is_for_user(message: Any) -> bool:
    return isinstance(message, Message) and message.recipient == "user"


def _is_of_sub_agent(message: Any) -> bool:
    return (message.subject if isinstance(message, Confirmation) else message).parent_id is not None


def _without_extracted(messages: Sequence[Any]) -> list[Any]:
    """Return these messages without what streamkit extracted: from calls that are among them and go into the request, and the reasoning
    that stood in a text."""
    calls = {
        call.call_id or call.id
        for call in messages
        if isinstance(call, ToolCallMessage) and call.status == "completed" and not call.provider_executed
    }
    kinds = (TextMessage, ReasoningMessage, CodeMessage)
    return [
        message
        for message in messages
        if not isinstance(message, kinds)
        or not ("reasoning_tag" in message.metadata or ("field" in message.metadata and message.call_id in calls))
    ]
