"""Assistants streams in memory, and handlers of the compat classes that log their hook calls."""

from __future__ import annotations

import json
import warnings
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import anyio.lowlevel
import pytest

from streamkit.compat.openai import AssistantEventHandler, AsyncAssistantEventHandler
from streamkit.compat.openai.binding import HOOKS
from streamkit.testing import ModelServer, Reply

from .faces import Face

Item = dict[str, Any]

quiet = pytest.mark.filterwarnings("ignore:The Assistants API is deprecated:DeprecationWarning")

# -- wire items


def item(event: str, **data: Any) -> Item:
    return {"event": event, "data": data}


def run(status: str, **more: Any) -> Item:
    phase = "created" if status == "queued" else status
    data = {"id": "run_1", "object": "thread.run", "created_at": 1, "thread_id": "thread_1", "assistant_id": "asst_1"}
    return {"event": f"thread.run.{phase}", "data": {**data, "status": status, "model": "m", "tools": [], **more}}


def requires_action(*ids: str, **arguments: str) -> Item:
    """The run requires the outputs of these calls. The arguments of a call are `{}` unless passed by its id."""
    arguments = {**dict.fromkeys(ids, "{}"), **arguments}
    calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": arguments[id]}} for id in arguments]
    action = {"type": "submit_tool_outputs", "submit_tool_outputs": {"tool_calls": calls}}
    return run("requires_action", required_action=action)


def message(phase: str, id: str = "m1", content: Iterable[Item] = (), **more: Any) -> Item:
    status = "in_progress" if phase in ("created", "in_progress") else phase
    data = {
        "object": "thread.message",
        "created_at": 1,
        "thread_id": "thread_1",
        "run_id": "run_1",
        "role": "assistant",
    }
    return item(f"thread.message.{phase}", id=id, **data, status=status, content=list(content), **more)


def text(value: str | None, index: int | None = None, annotations: list[Item] | None = None) -> Item:
    """A text part, or with an index a delta of one."""
    body: Item = {} if value is None else {"value": value}
    if annotations is not None or index is None:
        body["annotations"] = annotations or []
    return {**({} if index is None else {"index": index}), "type": "text", "text": body}


def image(file_id: str, index: int | None = None) -> Item:
    place = {} if index is None else {"index": index}
    return {**place, "type": "image_file", "image_file": {"file_id": file_id}}


def message_delta(*parts: Item, id: str = "m1") -> Item:
    return item("thread.message.delta", id=id, object="thread.message.delta", delta={"content": list(parts)})


def step(phase: str, id: str = "s1", calls: Iterable[Item] | None = (), makes: str | None = None, **more: Any) -> Item:
    status = "in_progress" if phase in ("created", "in_progress") else phase
    details: Item = {"type": "tool_calls", "tool_calls": list(calls or ())}
    if makes is not None:
        details = {"type": "message_creation", "message_creation": {"message_id": makes}}
    data = {"object": "thread.run.step", "created_at": 1, "run_id": "run_1", "thread_id": "thread_1"}
    more = {"assistant_id": "asst_1", "type": details["type"], "step_details": details, **more}
    return item(f"thread.run.step.{phase}", id=id, **data, status=status, **more)


def step_delta(*calls: Item, id: str = "s1") -> Item:
    delta = {"step_details": {"type": "tool_calls", "tool_calls": list(calls)}}
    return item("thread.run.step.delta", id=id, object="thread.run.step.delta", delta=delta)


def function(arguments: str | None = "", index: int | None = None, **more: Any) -> Item:
    """A function call, or with an index a delta of one. `id`, `name` and `output` are optional."""
    body = {key: more[key] for key in ("name", "output") if key in more}
    body |= {} if arguments is None else {"arguments": arguments}
    known = {} if index is None else {"index": index}
    return {**known, **({"id": more["id"]} if "id" in more else {}), "type": "function", "function": body}


def code(
    source: str | None = None, index: int | None = None, *logs: str, id: str | None = None, first: int = 0
) -> Item:
    """A code interpreter call, or with an index a delta of one."""
    outputs = [{"index": first + place, "type": "logs", "logs": log} for place, log in enumerate(logs)]
    body: Item = {} if source is None else {"input": source}
    body |= {"outputs": outputs} if outputs or index is None else {}
    known = {} if index is None else {"index": index}
    return {**known, **({"id": id} if id else {}), "type": "code_interpreter", "code_interpreter": body}


def sse(items: Iterable[Item], *, done: bool = True) -> bytes:
    frames = [f"event: {one['event']}\ndata: {json.dumps(one['data'])}\n\n" for one in items]
    return "".join([*frames, "event: done\ndata: [DONE]\n\n" if done else ""]).encode()


# -- handlers that log their hook calls


class HookLog:
    """The log of a handler's hook calls.

    Args:
        does: By hook name, a function that the hook calls with the handler and the hook's arguments.

    Attributes:
        lines: One line for each hook call, except those of `on_event`.
        events: The names of openai's events, in order.
        calls: The names and arguments of all hook calls.
        error: The exception that the run raised.
    """

    def __init__(self, **does: Callable[..., Any]) -> None:
        self.does = does
        self.lines: list[str] = []
        self.events: list[str] = []
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.error: BaseException | None = None

    def record(self, name: str, arguments: tuple[Any, ...]) -> Any:
        self.calls.append((name, arguments))
        if name == "on_event":
            self.events.append(arguments[0].event)
        else:
            self.lines.append(" ".join([name.removeprefix("on_"), *_summary(name, arguments)]))
        does = self.does.get(name)
        return does(self, *arguments) if does is not None else None

    @property
    def outline(self) -> list[str]:
        """The lines without those of message and run step deltas."""
        return [line for line in self.lines if line.split()[0] not in ("message_delta", "run_step_delta")]

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of each call of a hook."""
        return [arguments for called, arguments in self.calls if called == name]


def _summary(name: str, arguments: tuple[Any, ...]) -> list[str]:
    """The words of a log line: an id, a delta, and the snapshot at the time of the call."""
    if name in ("on_text_created", "on_text_done"):
        return [repr(arguments[0].value)]
    if name == "on_text_delta":
        return [repr(argument.value) for argument in arguments]
    if name == "on_image_file_done":
        return [str(arguments[0].file_id)]
    if name in ("on_tool_call_created", "on_tool_call_done"):
        return [arguments[0].id, repr(_body(arguments[0]))]
    if name == "on_tool_call_delta":
        return [arguments[1].id, repr(_body(arguments[0])), repr(_body(arguments[1]))]
    if name == "on_exception":
        return [type(arguments[0]).__name__]
    return [str(argument.id) for argument in arguments if hasattr(argument, "id")]


def _body(call: Any) -> str:
    if call.type == "function":
        return call.function.arguments or ""
    if call.type == "code_interpreter":
        outputs = call.code_interpreter.outputs or []
        return (call.code_interpreter.input or "") + "".join(f"[{one.logs}]" for one in outputs if one.type == "logs")
    return ""


def _sync_hook(name: str) -> Callable[..., Any]:
    def hook(self: Any, *arguments: Any) -> None:
        self.record(name, arguments)

    return hook


def _async_hook(name: str) -> Callable[..., Any]:
    async def hook(self: Any, *arguments: Any) -> None:
        await anyio.lowlevel.checkpoint()
        result = self.record(name, arguments)
        if isinstance(result, Awaitable):
            await result

    return hook


class SyncHookLog(
    HookLog,
    type("_Sync", (AssistantEventHandler,), {name: _sync_hook(name) for name in HOOKS}),  # type: ignore[misc]
):
    """A sync handler with all hooks, which forgets `super().__init__()`."""


class AsyncHookLog(
    HookLog,
    type("_Async", (AsyncAssistantEventHandler,), {name: _async_hook(name) for name in HOOKS}),  # type: ignore[misc]
):
    """The async one."""


def hook_log(face: Face, **does: Callable[..., Any]) -> Any:
    """A logging handler for this face, sync or async."""
    return AsyncHookLog(**does) if face.is_async else SyncHookLog(**does)


# -- ways of use


async def start_with_client(face: Face, items: Iterable[Item] | bytes, handler: Any, use: Any = None) -> None:
    """Start the stream with openai's own client, and pass it the handler."""
    body = items if isinstance(items, bytes) else sse(items)
    with ModelServer(Reply(raw=body)) as server:
        async with face.client(server) as client:
            await use_client(face, client, handler, use)


async def use_client(face: Face, client: Any, handler: Any, use: Any = None, **request: Any) -> None:
    """Let the client stream a run to the handler. `use` is called with what `with` returns."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The Assistants API is deprecated", DeprecationWarning)
        options = {"thread_id": "thread_1", "assistant_id": "asst_1", **request}
        manager = client.beta.threads.runs.stream(**options, event_handler=handler)
    await within(face, manager, use or until_done)


async def start_with_stream(face: Face, items: Iterable[Item] | bytes, handler: Any, use: Any = None) -> None:
    """Pass the items and the handler to `stream` or `astream`."""
    source = items if isinstance(items, bytes) else list(items)
    manager = face.stream(source, handler)
    async with manager:
        await (use or until_done)(face, handler)


async def within(face: Face, manager: Any, use: Callable[[Face, Any], Awaitable[None]]) -> None:
    if face.is_async:
        async with manager as stream:
            await use(face, stream)
    else:
        with manager as stream:
            await use(face, stream)


async def until_done(face: Face, stream: Any) -> None:
    await call(stream.until_done)


async def call(method: Callable[[], Any]) -> Any:
    """What a method returns, on either face."""
    result = method()
    return await result if isinstance(result, Awaitable) else result


async def each(values: Any) -> list[Any]:
    """All values of an iterator, on either face."""
    return [value async for value in values] if hasattr(values, "__aiter__") else list(values)


WAYS = {"client": start_with_client, "stream": start_with_stream}
every_way = pytest.mark.parametrize("way", list(WAYS.values()), ids=list(WAYS))


async def run_handler(face: Face, way: Any, items: Iterable[Item] | bytes, handler: Any = None, **does: Any) -> Any:
    """Run a handler over these items to their end and return it; `handler.error` is what was raised."""
    handler = handler or hook_log(face, **does)
    try:
        await way(face, items, handler)
    except Exception as error:
        handler.error = error
    return handler
