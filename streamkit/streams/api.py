"""`stream` and `astream`: a manager for any source of a stream.

The two managers are thin shells around one course of events (`lifecycle.py`); they differ only in `async` and `await`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, Never

from ..errors import UsageError
from ..handlers import Handler
from ..limits import Limits, Timeouts
from ..protocols import Decoder
from ..sources.source import Readable
from .manager import T
from .options import MAX_STEPS, AnySource, StreamOptions, SyncSource
from .state import StreamState
from .sync import StreamManager

if TYPE_CHECKING:
    from ..retry import Retry
    from .aio import AsyncStreamManager

__all__ = ["StreamManager", "astream", "stream"]


def stream(
    source: SyncSource,
    /,
    *handlers: Handler,
    protocol: str | type[Decoder] | None = None,
    strict: bool = False,
    then: Callable[[StreamState], Any] | None = None,
    max_steps: int = MAX_STEPS,
    fields: Mapping[str, str] | None = None,
    after: str | None = None,
    limits: Limits | None = None,
    timeouts: Timeouts | None = None,
    reasoning_tag: str | None = None,
    output_type: type[T] | UnionType | None = None,
    retry: Retry | int | None = None,
    fallbacks: Sequence[Callable[[], Any]] = (),
    **unknown: Never,
) -> StreamManager[T]:
    """Return a manager for a stream, driven by the caller's thread.

        sk.stream(lambda: client.responses.create(model=…, input=…, stream=True), Printer()).until_done()

    Nothing is sent or read before the manager is entered with `with`, iterated, or asked for a result.

    Args:
        source: an `openai` or `anthropic` stream; a callable or unentered context manager that returns one (the request
            is then sent on entry); an iterable of chunk dicts, typed objects, canonical events or bytes (SSE or
            NDJSON); an HTTP response; a path to a recording; an Emitter or a relay's reader; another manager.
        handlers: receive each event, in this order.
        protocol: the wire protocol, by name or decoder class; without it, it is recognised from the items.
        strict: raise `ProtocolError` for a malformed item, in place of repairing it and calling `on_warning`.
        then: called with the stream, a `StreamState`, when a source has ended and every pending question was answered:
            returns the next source of the same run, or None.
        max_steps: how many sources one run may have with `then=`. If it asks for more, the run ends `incomplete` with the
            `finish_reason` "max_steps".
        fields: string arguments of tools that become messages of their own, which stream beside their calls:
            `{"send_message.message": "text", "execute.code": "code"}`. A kind is `text`, `reasoning`, `code` (its
            language is the argument `language` beside it, if that came first) or `code:python`. In a path, indexes
            count as keys, `*` is any key (or any tool), and a backslash goes before a dot in a name.
        after: resume after this cursor, which `stream.cursor` of the same source returned. Events before it rebuild the
            messages without calling handlers; a message that is open there is emitted as created plus one delta.
        limits: the sizes that end the stream with a `LimitError`; without it, those of `Limits()`.
        timeouts: how long to wait for content, before the stream fails with a `SourceTimeoutError`; without it, only the
            client's own timeouts hold.
        reasoning_tag: the tag in which a model writes its reasoning into the text, such as "think" for `<think>…</think>`: what is
            in it at the beginning of a text becomes a reasoning message.
        output_type: what `get_final_output()` reads the JSON of the answer as: a dataclass, TypedDict, `msgspec.Struct`, pydantic
            model, `list[...]`, `dict[str, ...]` or a union of objects. The request has to ask for it; `Agent(output_type=)` does.
        retry: how often the source, a function then, is asked again after a failure, and after which ones: a `Retry`, or the
            number of its attempts. What a failed attempt had brought is withdrawn (`on_retry`).
        fallbacks: functions that make other requests, in this order, where the source has failed for good. They may use other
            clients, and other protocols; `protocol=` holds for all of them.

    Raises:
        UsageError: a handler is async, or is on another live stream; there is no such protocol; a field is malformed;
            `max_steps` is not a number from 1 on; no JSON object or list can be read as `output_type`; with `retry=` or
            `fallbacks=` a source is no function; there is no such argument.
    """
    if unknown:
        _refuse_arguments("stream", unknown)
    options = StreamOptions(
        protocol,
        strict,
        then,
        max_steps,
        fields,
        after,
        limits,
        timeouts,
        reasoning_tag,
        output_type,
        retry,
        fallbacks,
    )
    return StreamManager(_for_stream(source), handlers, options)


def astream(
    source: AnySource,
    /,
    *handlers: Handler,
    protocol: str | type[Decoder] | None = None,
    strict: bool = False,
    then: Callable[[StreamState], Any] | None = None,
    max_steps: int = MAX_STEPS,
    fields: Mapping[str, str] | None = None,
    after: str | None = None,
    limits: Limits | None = None,
    timeouts: Timeouts | None = None,
    reasoning_tag: str | None = None,
    output_type: type[T] | UnionType | None = None,
    retry: Retry | int | None = None,
    fallbacks: Sequence[Callable[[], Any]] = (),
    **unknown: Never,
) -> AsyncStreamManager[T]:
    """Return a manager for a stream, driven by the caller's task, on asyncio or trio.

        await sk.astream(client.responses.create(model=…, input=…, stream=True), Printer()).until_done()

    Arguments and errors are those of `stream`. Besides, it takes awaitables, async iterables and async callables as sources,
    async and sync handlers, and a `then` that is `async def`. Sync sources are pulled in worker threads, one call at a
    time.

    A plain callable is called in a worker thread, because it may send a sync client's request. One that uses the event
    loop has to be `async def`. `then` is called on the event loop, as hooks are; for a request that blocks, it returns a
    callable.
    """
    if unknown:
        _refuse_arguments("astream", unknown)
    options = StreamOptions(
        protocol,
        strict,
        then,
        max_steps,
        fields,
        after,
        limits,
        timeouts,
        reasoning_tag,
        output_type,
        retry,
        fallbacks,
    )
    from .aio import AsyncStreamManager  # it brings asyncio, which no sync stream needs

    return AsyncStreamManager(_for_stream(source), handlers, options)


def _refuse_arguments(function: str, unknown: Mapping[str, object]) -> Never:
    """Name the first argument that there is not, and what belongs in its place."""
    name = next(iter(unknown))
    if "handler" in name:
        raise UsageError(f"`{function}` has no argument `{name}`: handlers are passed after the source, without a name")
    if name in ("source", "response", "events"):
        raise UsageError(f"`{function}` has no argument `{name}`: the source is passed first, without a name")
    from difflib import get_close_matches

    names = list(stream.__kwdefaults__ or ())
    near = get_close_matches(name, names, 1)
    hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(f'`{one}`' for one in names)}"
    raise UsageError(f"`{function}` has no argument `{name}`: {hint}")


def _for_stream(source: Any) -> Any:
    """Return the object that a stream refers to. Of an Emitter it is a reader: a stream must not keep an Emitter alive
    that its producer dropped."""
    return source.for_stream() if isinstance(source, Readable) else source
