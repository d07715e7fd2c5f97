"""What a scripted model says, apart from any dialect: values, checked when they are made.

A part's text is cut into pieces, each of which is one delta on the wire; `cut_after`, `error_after` and the delays of a
`Reply` count them, through all its parts in the order in which they are sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import UsageError

__all__ = [
    "CodeInterpreter",
    "McpApproval",
    "Part",
    "Reasoning",
    "Refusal",
    "Reply",
    "ServiceError",
    "Text",
    "Tokens",
    "ToolCall",
]

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]

_cut = re.compile(r"\s?\S{1,4}|\s{1,5}").findall


class Part:
    """A piece-wise text of a reply; one of the classes below.

    Args:
        text: what is said. It is cut into pieces of up to five characters, always in the same way.
        pieces: the pieces themselves, where the cuts matter. With both, they must join to the text.

    Raises:
        UsageError: a piece is empty (the services send none), or the pieces are not the text.
    """

    def __init__(self, text: str | None = None, *, pieces: Iterable[str] | None = None) -> None:
        self.pieces: tuple[str, ...] = tuple(_cut(text or "") if pieces is None else pieces)
        self.text = "".join(self.pieces)
        if not all(self.pieces):
            raise UsageError(f"a piece of a {type(self).__name__} is empty: {list(self.pieces)}")
        if text is not None and self.text != text:
            raise UsageError(f"the pieces of a {type(self).__name__} join to {self.text!r}, its text is {text!r}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"


class Text(Part):
    """Text for the reader."""


class Refusal(Part):
    """The model's refusal."""


class Reasoning(Part):
    """The model's reasoning. On Responses it is a summary, as OpenAI sends it, or with `summary=False` the full text,
    as open models do; on Chat it is `reasoning_content` either way."""

    def __init__(self, text: str | None = None, *, pieces: Iterable[str] | None = None, summary: bool = True) -> None:
        super().__init__(text, pieces=pieces)
        self.summary = summary


class ToolCall(Part):
    """A call of one of the caller's functions.

    Args:
        name: the function's.
        arguments: a mapping, sent as JSON, or the JSON text as it is (which may be broken on purpose).
        call_id: by default `call_1_0`, `call_1_1` … : the answer's number and the call's place in it.
    """

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        call_id: str | None = None,
        pieces: Iterable[str] | None = None,
    ) -> None:
        if arguments is None and pieces is None:
            arguments = {}
        text = json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, Mapping) else arguments
        super().__init__(text, pieces=pieces)
        self.name = name
        self.call_id = call_id


class CodeInterpreter(Part):
    """Code that the provider runs, and what it printed. Responses and Messages only: Chat requests are answered
    with a 400."""

    def __init__(self, code: str | None = None, logs: str = "", *, pieces: Iterable[str] | None = None) -> None:
        super().__init__(code, pieces=pieces)
        self.logs = logs


class McpApproval(Part):
    """A question whether the provider may call a tool of a remote MCP server. Responses only: requests of other APIs
    are answered with a 400.

    Args:
        name: the tool's.
        arguments: a mapping, sent as JSON, or the JSON text as it is. They come whole.
        server_label: the MCP server's.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any] | str = "{}", *, server_label: str = "tools") -> None:
        super().__init__("")
        self.name = name
        self.arguments = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        self.server_label = server_label

    def __repr__(self) -> str:
        return f"McpApproval({self.name!r}, {self.arguments!r})"


@dataclass(frozen=True)
class Tokens:
    """The usage that a reply reports. `output` includes `reasoning`, `input` includes `cached`, as the services count."""

    input: int = 10
    output: int = 0
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True)
class ServiceError:
    """An error in the service's own words."""

    message: str
    type: str | None = "server_error"
    code: str | None = "server_error"
    param: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The value of `error` in an error body."""
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
    """One answer of the model, and how it is sent.

    Args:
        parts: what it says, in order; a plain str is a `Text`. On Responses each part is an output item.
        interleave: send tool calls that stand side by side at once, a piece of each in turn.
        usage: by default 10 tokens in, one out for every piece.
        finish_reason: by default `tool_calls` where there is a call, else `stop`. `length` and `content_filter` make a
            Responses answer `incomplete`.
        model: by default the one that was asked for.
        first_delay: seconds before the first piece. The head of a stream is sent at once.
        delay: seconds before every other piece.
        cut_after: after so many pieces the connection is closed in the middle of the next event. 0: of the first one.
        error_after: after so many pieces `error` is told in place of the rest.
        error: what `error_after` or `status` tells; by default what the service says with that status.
        error_event: how a Responses stream tells it.
        never_ends: after the last piece the connection stays open, until the client leaves or the server is closed.
        ping: seconds between the comments that a stream without end sends meanwhile; by default it is silent.
        status: the HTTP status. From 400 on, the answer is an error body and nothing else.
        retry_after: seconds, a header of an error. By default 1 with status 429.
        headers: sent besides the others or in their place.
        raw: a body, sent as it is in place of the parts; of a sequence, each is a piece and written on its own.

    Whoever asks without `stream` gets it as one JSON body: delays add up, `cut_after` cuts it in half, `error_after` is
    a 500 (or with `response.failed` a failed response), `never_ends` withholds it.

    Raises:
        UsageError: the options contradict each other, or count more pieces than there are.
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
    ) -> None:
        self.parts: tuple[Part, ...] = tuple(Text(part) if isinstance(part, str) else part for part in parts)
        self.interleave = interleave
        self.usage = usage or _count(self.parts)
        self.finish_reason: FinishReason = finish_reason or _finish_reason(self.parts)
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
        self.raw: tuple[bytes, ...] | None = (raw,) if isinstance(raw, bytes) else raw if raw is None else tuple(raw)
        self._check()

    @property
    def length(self) -> int:
        """How many pieces there are."""
        return len(self.raw) if self.raw is not None else sum(len(part.pieces) for part in self.parts)

    def groups(self) -> Iterable[tuple[Part, ...]]:
        """The parts that are sent at once: each alone, but adjacent tool calls together where the reply interleaves."""
        group: list[Part] = []
        for part in self.parts:
            if group and not (self.interleave and isinstance(part, ToolCall) and isinstance(group[-1], ToolCall)):
                yield tuple(group)
                group.clear()
            group.append(part)
        if group:
            yield tuple(group)

    def _check(self) -> None:
        ends = {"cut_after": self.cut_after, "error_after": self.error_after}
        given = [name for name, value in ends.items() if value is not None] + ["never_ends"] * self.never_ends
        if len(given) > 1:
            raise UsageError(f"a reply ends in one way, not in these: {', '.join(given)}")
        for name, count in ends.items():
            if count is not None and not 0 <= count <= self.length:
                raise UsageError(f"{name}={count}, but the reply has {self.length} pieces")
        if self.ping is not None and not (self.never_ends and self.ping > 0):
            raise UsageError("ping= is a number of seconds, for a reply that never_ends")
        if self.raw is not None and self.parts:
            raise UsageError("a reply has parts or a raw body, not both")
        if self.raw is None and self.status >= 400 and (self.parts or given):
            raise UsageError(f"with status {self.status} the answer is an error: it has no parts and no other ending")

    def __repr__(self) -> str:
        said = "raw" if self.raw is not None else ", ".join(map(repr, self.parts))
        return (
            f"Reply({said})" if self.status == 200 else f"Reply({said or self.error.message!r}, status={self.status})"
        )


def turns(group: Sequence[Part]) -> Iterable[tuple[int, str]]:
    """The pieces of parts that are sent at once, each with its part's place among them: one of each in turn."""
    for place in range(max(len(part.pieces) for part in group)):
        for index, part in enumerate(group):
            if place < len(part.pieces):
                yield index, part.pieces[place]


def _count(parts: Sequence[Part]) -> Tokens:
    reasoning = sum(len(part.pieces) for part in parts if isinstance(part, Reasoning))
    return Tokens(output=sum(len(part.pieces) for part in parts), reasoning=reasoning)


def _finish_reason(parts: Sequence[Part]) -> FinishReason:
    return "tool_calls" if any(isinstance(part, ToolCall) for part in parts) else "stop"
