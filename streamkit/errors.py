"""The errors, by who is at fault.

    StreamkitError
    ├── UsageError               the caller erred: a wrong argument, an answer that cannot be taken
    │   ├── ProducerFenced       the run in a relay has another producer by now, has ended, or is gone
    │   └── StaleVersionError    a conversation in a store has another version by now than the one to be replaced
    ├── RequestError             a client erred: the request that it sent to our server is malformed
    ├── ProtocolError            an item of the source is malformed (strict streams only)
    │   └── LimitError           the source is larger than `limits=` allows
    ├── SourceError              the transport failed: connection, HTTP status, a producer that raised
    │   ├── SourceTimeoutError   the transport timed out; it is a `TimeoutError` too
    │   └── StoredDataError      what a relay or a store holds cannot be read
    ├── IncompleteStreamError    the stream stopped before its protocol's end
    ├── OutputError              the answer cannot be read as the stream's `output_type`
    └── RunFailedError           the provider reported that the run failed

Every error that ends a stream has the messages that had arrived: `error.messages`. The client's error is its `__cause__`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, cast

if TYPE_CHECKING:
    from .messages import Message

__all__ = [
    "IncompleteStreamError",
    "LimitError",
    "OutputError",
    "ProducerFenced",
    "ProtocolError",
    "RequestError",
    "RunFailedError",
    "SourceError",
    "SourceTimeoutError",
    "StaleVersionError",
    "StoredData",
    "StoredDataError",
    "StreamkitError",
    "UsageError",
    "raise_source_error",
    "server_message",
    "stated_message",
]


class StreamkitError(Exception):
    """The root of streamkit's errors.

    `str(error)` is safe to print: unprintable characters, as in a provider's text, are escaped.

    Attributes:
        messages: the stream's messages when it failed; empty if the error ended no stream.
    """

    messages: Sequence[Message] = ()

    @property
    def message(self) -> str:
        """The text as it came, with nothing escaped."""
        return super().__str__()

    def __str__(self) -> str:
        return "".join(one if one.isprintable() else _escaped(one) for one in self.message)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the arguments for pickling and copying any error with its attributes, whatever its class takes."""
        state = {**self.__dict__, "messages": list(self.messages)} if self.messages else dict(self.__dict__)
        return _restored, (type(self), self.args, state)


def _restored(kind: type[StreamkitError], arguments: tuple[Any, ...], state: dict[str, Any]) -> StreamkitError:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(state)
    return error


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class UsageError(StreamkitError):
    """The calling code is at fault. No request was sent for it, unless the text says so."""


class ProducerFenced(UsageError):
    """A producer wrote into a run of a relay that is not its own any more. Nothing of it was stored.

    Attributes:
        reason: `epoch` (another producer has taken the run over), `closed` (the run has ended), `gone` (it was deleted or
            has expired) or `unreachable` (the relay was away for too long).
    """

    def __init__(self, message: str, reason: str = "closed") -> None:
        super().__init__(message)
        self.reason = reason


class StaleVersionError(UsageError):
    """A conversation in a store has another version by now than the one that was to be replaced, or was deleted. Nothing was
    stored: load it again."""


class RequestError(StreamkitError):
    """A request that a client sent is malformed: the client is at fault. Nothing was done for it.

    Attributes:
        code: `bad-json` if it is not JSON, else `invalid`.
        path: where in the request the fault is, as `messages[2].parts[0].text`; "" for all of it.
        fault: what is wrong there.
    """

    def __init__(self, path: str, fault: str, code: str = "invalid") -> None:
        super().__init__(f"the client's request is malformed: {path or 'its body'} {fault}")
        self.code = code
        self.path = path
        self.fault = fault


class ProtocolError(StreamkitError):
    """An item of the source is malformed, or no protocol has such items. Most faults raise it on a strict stream only.

    Attributes:
        code: names the fault in a word; the code of the warning that a stream emits which is not strict.
        fault: what is wrong.
        index: which of the source's items it is, counted from 0; None if it is not a single item.
        kind: the type of the item, if it could be read.
    """

    def __init__(self, code: str, fault: str, index: int | None = None, kind: str | None = None) -> None:
        where = "the stream" if index is None else f"item {index}"
        super().__init__(f"{where}{f' ({kind})' if kind else ''}: {fault} [{code}]")
        self.code = code
        self.fault = fault
        self.index = index
        self.kind = kind


_MEASURED = {
    "line": "bytes of one item",
    "message": "characters of one message",
    "open_messages": "open messages",
    "total": "characters in all messages",
}


class LimitError(ProtocolError):
    """The source is larger than the stream's `Limits` allow. It is raised on every stream, strict or not.

    Attributes:
        limit: the name of the limit, a field of `Limits`.
        allowed: its value.
    """

    def __init__(self, limit: str, allowed: int) -> None:
        what = _MEASURED.get(limit, limit)
        super().__init__(f"limit-{limit}", f"it has more than {allowed:,} {what}, as `Limits.{limit}` allows")
        self.limit = limit
        self.allowed = allowed


class SourceError(StreamkitError):
    """The source's transport failed.

    Attributes:
        status_code: the HTTP status, if there was one.
        body: the server's answer, parsed if it was JSON; None if it was empty. The error's text has its message.
        retry_after: the seconds after which the server wants the next request (`Retry-After`); None if it does not say.
        should_retry: whether the server wants another request at all (`x-should-retry`); None if it does not say.
    """

    status_code: int | None = None
    body: Any = None
    retry_after: float | None = None
    should_retry: bool | None = None

    def note_headers(self, headers: Any) -> None:
        """Note the headers of the server's response about another request. For streamkit's own packages."""
        from .response_headers import retry_after, should_retry  # errors alone need it

        self.retry_after, self.should_retry = retry_after(headers), should_retry(headers)


class SourceTimeoutError(SourceError, TimeoutError):
    """The source's transport timed out."""


class StoredDataError(SourceError):
    """The data that a relay or a store holds of a run or of a conversation cannot be read: another program has written them,
    or a part is missing."""


class IncompleteStreamError(StreamkitError):
    """The source was cut off: it ended before its protocol's end."""


_NoOutput: TypeAlias = Literal["invalid", "missing", "refused", "incomplete", "requires_action"]


class OutputError(StreamkitError):
    """The answer cannot be read as the stream's `output_type`. The stream itself has not failed.

    Attributes:
        reason: `missing` (the answer has no JSON), `invalid` (it is malformed, or not of the type: `__cause__` is the error of
            what read it), `incomplete` (the answer was cut short before it closed), `refused` (the model refused), or
            `requires_action` (the run ended before its answer).
        text: the answer, or the refusal; "" if there is none.
    """

    def __init__(
        self,
        message: str,
        reason: _NoOutput,
        text: str = "",
    ) -> None:
        super().__init__(message)
        self.reason: _NoOutput = reason
        self.text = text


class RunFailedError(StreamkitError):
    """The provider reported that the run failed or expired.

    Attributes:
        code: the provider's own code, None if it sent none.
        body: the provider's own error, None if it sent none.
    """

    def __init__(self, message: str, code: str | None = None, body: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.body = body


class StoredData:
    """Raises a `StoredDataError` for errors inside `with`, where the data of a relay or a store are read."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, _UNREADABLE):
            raise StoredDataError(f"{self._what} cannot be read: {error}") from error


_UNREADABLE = (UsageError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


def _needed_loop(error: Exception) -> str | None:
    """Return the event loop that an error says is missing, in the words of asyncio and of trio; None for any other error."""
    text = str(error) if isinstance(error, RuntimeError) else ""
    if "no running event loop" in text or "no current event loop" in text:
        return "asyncio"
    return "trio" if "must be called from async context" in text else None


def raise_source_error(error: Exception) -> NoReturn:
    """Raise an error of a client as a `SourceError`, with the client's own as its cause.

    A timeout is recognised by `TimeoutError`, or by its class's name since every HTTP client has its own classes.

    Raises:
        StreamkitError: the error itself, if it is one already.
        KeyboardInterrupt: or SystemExit, that a library turned into the error.
        UsageError: the source needs asyncio or trio, which does not run here.
        SourceError: any other; `SourceTimeoutError` if it is a timeout.
    """
    if isinstance(error, StreamkitError):
        raise error
    if (loop := _needed_loop(error)) is not None:
        raise UsageError(f"the source needs {loop}, which does not run here") from error
    if (interrupt := _interrupt_in(error)) is not None:
        raise interrupt
    names = {kind.__name__ for kind in type(error).__mro__}
    timed_out = isinstance(error, TimeoutError) or any("Timeout" in name for name in names)
    kind = SourceTimeoutError if timed_out else SourceError
    # asyncio's and trio's timeouts have no text
    text = str(error) or ("timed out: nothing came from the source within its client's timeout" if timed_out else "")
    body = _body_of(error)
    text = text.removesuffix(f" - {body}")  # as anthropic's client has it
    if (explanation := server_message(body)) and explanation not in text:
        text = f"{text}: {explanation}"
    text = _shortened(text)
    reason = str(error.__cause__ or "")
    if not timed_out and reason not in text:  # clients may say no more than "Connection error."
        text = f"{text} ({reason})".lstrip()
    translated = kind(f"{type(error).__name__}: {text}" if text else type(error).__name__)
    translated.status_code = _status_of(error)
    translated.body = body
    if (headers := getattr(getattr(error, "response", error), "headers", None)) is not None:
        translated.note_headers(headers)
    try:
        raise translated from error
    finally:
        del translated  # the error refers to this frame, which is not to refer back


def _status_of(error: Any) -> int | None:
    """Return the HTTP status that an error has. That of its response may be 200, where an answer failed after it had begun; Google's
    client has its own as the `code`."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):  # Amazon's client
        status = _value_at(response, "ResponseMetadata", "HTTPStatusCode")
        return status if isinstance(status, int) else None
    found = (getattr(error, "status_code", None), getattr(error, "code", None), getattr(response, "status_code", None))
    return next((status for status in found if isinstance(status, int) and status), None)


def _value_at(fields: Any, *keys: str) -> Any:
    """Return the value at a path of keys, None if there is none."""
    for key in keys:
        fields = cast("Mapping[str, Any]", fields).get(key) if isinstance(fields, Mapping) else None
    return fields


def _body_of(error: Any) -> Any:
    """Return the server's answer: all of it where the client's error has no more than the text at `error`."""
    body = getattr(error, "body", None)
    if body is None and isinstance(details := getattr(error, "details", None), Mapping):
        return cast("Any", details)  # Google's client
    if body is None and isinstance(details := _value_at(getattr(error, "response", None), "Error"), Mapping):
        return cast("Any", details)  # Amazon's
    if not isinstance(body, str):
        return body
    try:
        whole = error.response.json()
    except (AttributeError, ValueError, RuntimeError):  # no response, none of JSON, or none that was read
        return body
    return cast("Any", whole) if isinstance(whole, Mapping) else body


_LONGEST = 2000  # characters of a server's answer, in an error's text
_DEEPEST = 8  # levels of its JSON in which a message is looked for


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def server_message(body: Any) -> str:
    """Return the message in the body of a server's error response, as text or parsed: at most 2,000 characters of it.

    It is OpenAI's `{"error": {"message": …}}` or a part of it, `{"error": "text"}`, FastAPI's `{"detail": …}` with a text or a
    list, `{"errors": […]}`, `{"message": …}`, or any other text or JSON as it is. What explains it follows: an `error_description`,
    OpenRouter's `metadata.raw`, the error of the provider behind it, or a `message` or a `detail` beside an `error`.
    """
    return _shortened(_message_in(body))


def stated_message(error: Mapping[str, Any]) -> str:
    """Return the message of an error object, as `server_message` does; "" if it has none of these keys."""
    return _shortened(_message_of(error, 0))


def _message_in(body: Any, depth: int = 0) -> str:
    if body is None or isinstance(body, str):
        return (body or "").strip()
    if depth > _DEEPEST:
        return "…"
    if isinstance(body, (list, tuple)):
        texts = (_message_in(one, depth + 1) for one in cast("list[Any]", body))
        return "; ".join(filter(None, texts))
    if not isinstance(body, Mapping):
        return str(body)
    fields = cast("Mapping[str, Any]", body)
    if not fields:
        return ""
    if text := _message_of(fields, depth):
        return text
    import json  # errors alone need it

    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=str)


def _message_of(fields: Mapping[str, Any], depth: int) -> str:
    for key in ("error", "message", "msg", "detail", "errors"):
        if text := _message_in(fields.get(key), depth + 1):
            location = fields.get("loc") if key == "msg" else None
            where = ".".join(map(str, cast("list[Any]", location))) if isinstance(location, (list, tuple)) else ""
            more = _explanation(fields, depth)
            text = f"{text}: {more}" if more and more not in text else text
            return f"{where}: {text}" if where else text
    return ""


def _explanation(fields: Mapping[str, Any], depth: int) -> str:
    """Return the explanation beside an error's message."""
    metadata = fields.get("metadata")
    raw = cast("Mapping[str, Any]", metadata).get("raw") if isinstance(metadata, Mapping) else None
    more = [fields.get(key) for key in ("error_description", "message", "detail", "details")]
    return _message_in(next(filter(None, (raw, *more)), None), depth + 1)


def _interrupt_in(error: BaseException | None) -> BaseException | None:
    """Return the interrupt that an error was raised from. A Ctrl-C in the middle of an import, as in a client's first
    request, may come as a RuntimeError or a SystemError."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            return error
        seen.add(id(error))
        error = error.__cause__
    return None
