"""The steps of a turn, what an agent does next, as data; and the internal state of its stream, which an agent reads and sets here
alone.

`turn.py` decides on the steps; `sync_steps.py` and `async_steps.py` open each as a source of the stream. All sources of a turn
form one stream: at the end of each, its `next_source` returns what opens the next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from ..events import Event
from ..messages import Message, ToolCallMessage
from ..sources.source import SourceTraits
from ..streams.state import StreamState
from .calls import PendingCall
from .code import CodeRun
from .model_request import BeforeRequest, ModelRequest

__all__ = [
    "OWN_EVENTS",
    "CallModel",
    "CallTools",
    "EmitEvents",
    "ListTools",
    "OwnStep",
    "RunCode",
    "SendRequest",
    "Step",
    "continues_in_next_source",
    "decline_run",
    "has_unanswered_calls",
    "is_cut_short",
    "prepare_for_agent",
    "raise_if_source_incomplete",
    "without_withdrawn",
]

# Of a source with the agent's own events. They belong to the run step of the model call that asked for them.
OWN_EVENTS: Final = SourceTraits(protocol="streamkit", read_to_end=True, edits=True, same_step=True)


class SendRequest(NamedTuple):
    """Send a request. `send` returns the client's stream, or an awaitable of it; `protocol` is that of the answer."""

    protocol: str
    send: Callable[[], Any]


class CallModel(NamedTuple):
    """Send a request to the model, as `before` leaves it, in as many attempts as `retry=` has it. `request` returns it anew for
    each: it takes the number of the attempt, and that of the fallback, 0 for none."""

    request: Callable[[int, int], ModelRequest]
    before: BeforeRequest | None
    sending: Callable[[ModelRequest], SendRequest]
    fallbacks: int


class CallTools(NamedTuple):
    """Call these functions: at once in tasks, one after the other in a thread. `before` is called first, in a thread."""

    calls: Sequence[PendingCall]
    before: Callable[[], None] | None


class ListTools(NamedTuple):
    """Ask the MCP servers of an `AsyncAgent` for their tools: `ask` does it. Where it `may_fail`, the run goes on with the tools
    that it had."""

    ask: Callable[[], Awaitable[None]]
    may_fail: bool


class RunCode(NamedTuple):
    """Run this code on the computer."""

    run: CodeRun


class EmitEvents(NamedTuple):
    """Emit these events."""

    events: list[Event]


OwnStep = CallTools | RunCode | EmitEvents | ListTools
Step = CallModel | OwnStep


def prepare_for_agent(stream: StreamState, executes: Callable[[ToolCallMessage], bool]) -> None:
    """Let the stream's tool calls be answered.

    Args:
        stream: the agent's stream, before it starts.
        executes: whether the agent answers a call itself.
    """
    stream.engine.pending.takes_outputs = True
    stream.engine.pending.executes = lambda call: (
        executes(call) if call.parent_id is None else call.answer_slot is None  # a sub-agent's, which says so
    )
    stream.engine.pending.takes_approvals = True  # the next request answers what the provider itself asks


def raise_if_source_incomplete(stream: StreamState) -> None:
    """Check the source that the stream has read.

    Raises:
        IncompleteStreamError: it stopped before its protocol's end.
    """
    decoder = stream.source_decoder
    if decoder is not None and not decoder.complete:
        raise decoder.incomplete()


def without_withdrawn(stream: StreamState, messages: Iterable[Message], ids: Iterable[str]) -> list[Message]:
    """Return the messages of a conversation without those that the stream has withdrawn, which have these ids there."""
    withdrawn = {id(stream.engine.messages.get(one)) for one in ids}
    return [message for message in messages if id(message) not in withdrawn]


def continues_in_next_source(stream: StreamState) -> bool:
    """Whether the provider paused its answer, which the next request continues."""
    decoder = stream.source_decoder
    return decoder is not None and decoder.continues_in_next_source


def is_cut_short(stream: StreamState) -> bool:
    """Whether the provider cut the answer short, by its length or a filter."""
    return stream.engine.cut_short


def has_unanswered_calls(stream: StreamState) -> bool:
    """Whether calls wait for an answer of the application's."""
    return bool(stream.engine.pending.unanswered)


def decline_run(stream: StreamState) -> None:
    """End the run as declined by the user."""
    stream.engine.pending.end_declined()
