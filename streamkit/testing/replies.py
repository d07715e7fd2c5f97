"""A scripted reply: its parts, and how the server sends them. Every option is checked when the reply is made."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, cast

from ..arguments import check_seconds
from ..errors import UsageError
from .parts import Part, Reasoning, Text, ToolCall

if TYPE_CHECKING:
    from .recorded import RecordedAnswer

__all__ = ["FinishReason", "Reply", "ServiceError", "Tokens", "grouped_calls", "in_turns"]

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]
"""Why an answer ended, in the words of Chat Completions; the other APIs send their own words for it."""


@dataclass(frozen=True)
class Tokens:
    """The token usage that a reply reports.

    Args:
        input: Tokens of the request, including the `cached` ones. Default: 10.
        output: Tokens of the answer, including the `reasoning` ones. Default: 0.
        cached: Input tokens that came from the provider's cache. Default: 0.
        reasoning: Output tokens that were spent on reasoning. Default: 0.
    """

    input: int = 10
    output: int = 0
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True)
class ServiceError:
    """An error as the service reports it: the fields of the `error` object in an error body or an error event.

    Args:
        message: The error's text.
        type: The error's class, such as `rate_limit_error`. Default: `server_error`. Anthropic Messages sends its own
            word for the HTTP status if this is one of OpenAI's words.
        code: The error's code, such as `rate_limit_exceeded`. Default: `server_error`. Not sent by Anthropic Messages.
        param: The request parameter that is at fault. Default: None. Not sent by Anthropic Messages.
    """

    message: str
    type: str | None = "server_error"
    code: str | None = "server_error"
    param: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the `error` object as OpenAI sends it: `message`, `type`, `param` and `code`."""
        return {"message": self.message, "type": self.type, "param": self.param, "code": self.code}


_DEFAULT_ERROR = ServiceError("The server had an error while processing your request. Sorry about that!")
_STATUS_ERRORS = {
    400: ServiceError("The request is invalid.", "invalid_request_error", None),
    401: ServiceError("Incorrect API key provided.", "invalid_request_error", "invalid_api_key"),
    403: ServiceError(
        "You are not allowed to do this.", "invalid_request_error", "unsupported_country_region_territory"
    ),
    404: ServiceError(
        "The model does not exist or you do not have access to it.", "invalid_request_error", "model_not_found"
    ),
    429: ServiceError("Rate limit reached for requests.", "requests", "rate_limit_exceeded"),
    503: ServiceError("The engine is currently overloaded, please try again later.", "service_unavailable", None),
}


class Reply:
    """One answer of the model, and how the server sends it.

        Reply("It is ", Text("cold."), delay=0.05)                   # text, slowly
        Reply(ToolCall("weather", {"city": "Oslo"}))                 # a tool call
        Reply("Once upon a time", cut_after=2)                       # the connection breaks after two deltas
        Reply("Once upon a time", error_after=2)                     # an error event after two deltas
        Reply(status=429, retry_after=0.01)                          # refused with an HTTP status

    A request that wants no stream gets the same answer as one JSON body: its delays add up, `cut_after` cuts the
    body in half, `error_after` makes it an error body with status 500 (a failed response or run with status 200 if
    `error_event` is `response.failed`), and `never_ends` withholds it.

    Args:
        parts: What the model answers, in order. A plain `str` is a `Text`. On Responses each part is an output item, on
            Anthropic Messages a content block.
        interleave: Send adjacent tool calls at the same time, a piece of each in turn. Default: one after another.
        usage: The tokens that are reported. Default: 10 tokens of input, and one of output for each piece.
        finish_reason: Default: `tool_calls` if a part is a `ToolCall`, otherwise `stop`. With `length` or
            `content_filter` a Responses answer or an Assistants run ends `incomplete`.
        model: The model's name in the answer. Default: the one in the request.
        first_delay: Seconds to wait before the first piece. Default: 0. Headers and opening events are sent at once.
        delay: Seconds to wait before every further piece. Default: 0.
        cut_after: Close the connection after this many pieces, in the middle of the next event. Default: never.
        error_after: After this many pieces send `error` instead of the rest. Default: never.
        error: The error that `error_after` or `status` sends. Default: what the service sends with that status.
        error_event: How `error_after` ends a stream of Responses or Assistants: with an `error` event (the default), or
            with the response or run in status `failed`. Chat Completions and Anthropic Messages always send an error
            event.
        never_ends: After the last piece keep the connection open, until the client leaves or the server is closed.
        ping: Seconds between the SSE comments (`: ping`) that a reply with `never_ends` sends meanwhile. Default: none.
        status: The HTTP status. Default: 200. From 400 on, the answer is an error body and the reply has no parts.
        retry_after: Seconds, sent as the `retry-after` header of an error. Default: 1 with status 429, otherwise not
            sent.
        headers: Further response headers, by name. They replace the server's own of the same name, except those that
            frame the body.
        raw: A body to send unchanged instead of parts. In a sequence each item is one piece, written on its own.
        recording: The file of a recording, or of a saved body, whose answer is sent instead of parts: byte for byte where the
            request's API is that of the recording, else in the request's API. It answers streams alone.
        answer: Which answer of the recording, from 1, where it has several. Default: the first.

    Attributes:
        parts: The parts, with each `str` as a `Text`. Every other argument is an attribute of its own name.

    Raises:
        UsageError: Options contradict each other, or count more pieces than the reply has; a part is none, or an option has
            no value of its kind.
    """

    def __init__(
        self,
        *parts: Part | str,
        interleave: bool = False,
        usage: Tokens | None = None,
        finish_reason: FinishReason | None = None,
        model: str | None = None,
        first_delay: float = 0,
        delay: float = 0,
        cut_after: int | None = None,
        error_after: int | None = None,
        error: ServiceError | None = None,
        error_event: Literal["error", "response.failed"] = "error",
        never_ends: bool = False,
        ping: float | None = None,
        status: int = 200,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
        raw: bytes | Sequence[bytes] | None = None,
        recording: str | PathLike[str] | None = None,
        answer: int = 1,
    ) -> None:
        self.parts: tuple[Part, ...] = tuple(map(_as_part, parts))
        self.interleave = interleave
        self.usage = usage or _default_usage(self.parts)
        self.finish_reason: FinishReason = finish_reason or _default_finish_reason(self.parts)
        self.model = model
        self.first_delay = first_delay
        self.delay = delay
        self.cut_after = cut_after
        self.error_after = error_after
        self.error = error or _STATUS_ERRORS.get(status, _DEFAULT_ERROR)
        self.error_event = error_event
        self.never_ends = never_ends
        self.ping = ping
        self.status = status
        self.retry_after = 1 if retry_after is None and status == 429 else retry_after
        self.headers: dict[str, str] = dict(headers or {})
        self.raw: tuple[bytes, ...] | None = None if raw is None else _as_pieces(raw)
        self.recording = recording
        self.answer = answer
        self._recorded = None if recording is None else _recorded_answer(recording, answer)
        self._check()

    def in_protocol(self, protocol: str) -> Reply:
        """Return the reply as it is sent in a protocol: of a recording one with a raw body, else itself."""
        if self._recorded is None:
            return self
        sent = copy.copy(self)
        sent.raw = tuple(self._recorded.pieces(protocol))
        return sent

    @property
    def length(self) -> int:
        """The number of pieces, which is what `cut_after` and `error_after` count."""
        return len(self.raw) if self.raw is not None else sum(len(part.pieces) for part in self.parts)

    @property
    def cut_short(self) -> bool:
        """Whether the model stopped early: the finish reason is `length` or `content_filter`."""
        return self.finish_reason in ("length", "content_filter")

    def groups(self) -> Iterable[tuple[Part, ...]]:
        """Return the parts in the groups in which they are sent: one part each, but adjacent tool calls together if the
        reply interleaves them."""
        return grouped_calls(self.parts) if self.interleave else ((part,) for part in self.parts)

    def _check(self) -> None:
        counts = {"cut_after": self.cut_after, "error_after": self.error_after}
        endings = [name for name, count in counts.items() if count is not None] + ["never_ends"] * self.never_ends
        if len(endings) > 1:
            raise UsageError(f"a reply ends in one way, not in these: {', '.join(endings)}")
        for name, count in counts.items():
            if count is not None and not 0 <= count <= self.length:
                raise UsageError(f"{name}={count}, but the reply has {self.length} pieces")
        for name, seconds in (("first_delay", self.first_delay), ("delay", self.delay)):
            check_seconds(name, seconds)
        if self.ping is not None and not (self.never_ends and self.ping > 0):
            raise UsageError("ping= is a number of seconds above 0, and needs never_ends=True")
        if self.raw is not None and self.parts:
            raise UsageError("a reply has parts or a raw body, not both")
        if self.recording is not None and (self.parts or self.raw is not None):
            raise UsageError("a reply has a recording, parts or a raw body, not two of them")
        if self.recording is None and self.answer != 1:
            raise UsageError("answer= is that of a recording: the reply has none")
        if self.raw is None and self.status >= 400 and (self.parts or endings):
            raise UsageError(f"with status {self.status} the answer is an error: it has no parts and no other ending")

    def __repr__(self) -> str:
        content = "raw" if self.raw is not None else ", ".join(map(repr, self.parts))
        if self.status == 200:
            return f"Reply({content})"
        return f"Reply({content or self.error.message!r}, status={self.status})"


def _recorded_answer(path: str | PathLike[str], number: int) -> RecordedAnswer:
    from .recorded import recorded_answers  # few scripts have recordings

    answers = recorded_answers(path)
    if not 1 <= number <= len(answers):
        raise UsageError(f"{path} has {len(answers)} answers, and no answer={number}")
    return answers[number - 1]


def _as_part(part: object) -> Part:
    if isinstance(part, str):
        return Text(part)
    if not isinstance(part, Part):
        raise UsageError(f"a part of a reply is a str or a `Part`, not {part!r}")
    return part


def _as_pieces(raw: bytes | Sequence[bytes]) -> tuple[bytes, ...]:
    pieces = (raw,) if isinstance(raw, bytes) else tuple(raw)
    if not all(isinstance(cast("object", piece), bytes) for piece in pieces):
        raise UsageError(f"`raw` is bytes, or a sequence of bytes, not {raw!r}")
    return pieces


def grouped_calls(parts: Iterable[Part]) -> Iterable[tuple[Part, ...]]:
    """Yield the parts in groups: adjacent tool calls together, every other part alone."""
    group: list[Part] = []
    for part in parts:
        if group and not (isinstance(part, ToolCall) and isinstance(group[-1], ToolCall)):
            yield tuple(group)
            group.clear()
        group.append(part)
    if group:
        yield tuple(group)


def in_turns(group: Sequence[Part]) -> Iterable[tuple[int, str]]:
    """Yield the pieces of parts that are sent at the same time, one of each part in turn: `(position in the group,
    piece)`."""
    for turn in range(max(len(part.pieces) for part in group)):
        for position, part in enumerate(group):
            if turn < len(part.pieces):
                yield position, part.pieces[turn]


def _default_usage(parts: Sequence[Part]) -> Tokens:
    reasoning = sum(len(part.pieces) for part in parts if isinstance(part, Reasoning))
    return Tokens(output=sum(len(part.pieces) for part in parts), reasoning=reasoning)


def _default_finish_reason(parts: Sequence[Part]) -> FinishReason:
    return "tool_calls" if any(isinstance(part, ToolCall) for part in parts) else "stop"
