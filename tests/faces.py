"""One test body on all faces of a stream: sync, asyncio and trio.

A body is an `async def` that is given a `Face`. On the sync face it runs without any event loop, in a thread of its
own: what it awaits are plain calls in the shape of the async manager's. Every body is bounded in time.
"""

from __future__ import annotations

import functools
import itertools
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import openai
import pytest

import streamkit as sk
from streamkit.handlers import HOOKS
from streamkit.testing import ModelServer

LIMIT = 50.0  # seconds a test body may take, on a machine that is busy with others
SOON = 0.1  # seconds from an event to who waits for it


class Told:
    """What a handler was told: `hooks` their names in order, `calls` with their arguments.

    Args:
        does: what is called in a hook, with the handler and the hook's arguments.
    """

    def __init__(self, **does: Callable[..., Any]) -> None:
        self.does = does
        self.told: list[tuple[str, tuple[Any, ...]]] = []

    def note(self, name: str, arguments: tuple[Any, ...]) -> Any:
        self.told.append((name, arguments))
        does = self.does.get(name)
        return does(self, *arguments) if does is not None else None

    @property
    def hooks(self) -> list[str]:
        """The hooks that were called, without `on_event`."""
        return [name for name, _ in self.told if name != "on_event"]

    def of(self, name: str) -> list[Any]:
        """What a hook was called with first, each time."""
        return [arguments[0] if arguments else None for called, arguments in self.told if called == name]

    def check_brackets(self) -> None:
        """Everything that began was done, once, and `on_end` came once and last."""
        assert self.hooks.count("on_end") == 1, self.hooks
        assert self.hooks[-1] == "on_end", self.hooks
        for created, done in (
            ("on_message_created", "on_message_done"),
            ("on_text_created", "on_text_done"),
            ("on_run_step_created", "on_run_step_done"),
            ("on_run_created", "on_run_done"),
        ):
            began, over = [_key(x) for x in self.of(created)], [_key(x) for x in self.of(done)]
            assert sorted(began) == sorted(over), (created, began, over)


def _key(told: Any) -> str:
    return str(told.id)


def _sync_hook(name: str) -> Callable[..., Any]:
    def hook(self: Any, *arguments: Any) -> None:
        self.note(name, arguments)

    return hook


def _async_hook(name: str) -> Callable[..., Any]:
    async def hook(self: Any, *arguments: Any) -> None:
        await anyio.lowlevel.checkpoint()
        result = self.note(name, arguments)
        if isinstance(result, Awaitable):
            await result

    return hook


class SyncTold(
    Told,
    type("_SyncHooks", (sk.EventHandler,), {name: _sync_hook(name) for name in HOOKS}),  # type: ignore[misc]
):
    """A handler with all hooks."""


class AsyncTold(
    Told,
    type("_AsyncHooks", (sk.AsyncEventHandler,), {name: _async_hook(name) for name in HOOKS}),  # type: ignore[misc]
):
    """A handler with all hooks, each `async def`."""


class Source:
    """A producer of items that can be held back, and tells whether it was closed.

    `went` is how many items were asked for. It waits before the item that `gate` numbers, until `open` is set.
    """

    def __init__(self, items: Iterable[Any], *, error: BaseException | None = None) -> None:
        self.items = list(items)
        self.error = error
        self.went = 0
        self.closed = False

    def generate(self) -> Iterator[Any]:
        try:
            for item in self.items:
                self.went += 1
                yield item
            if self.error is not None:
                raise self.error
        finally:
            self.closed = True

    async def generate_async(self) -> AsyncIterator[Any]:
        try:
            for item in self.items:
                self.went += 1
                await anyio.lowlevel.checkpoint()
                yield item
            if self.error is not None:
                raise self.error
        finally:
            self.closed = True


class Face:
    """A way to drive streams; this one is the sync one."""

    name = "sync"
    is_async = False

    def run(self, body: Callable[[], Any]) -> None:
        """Run a body to its end, for at most `LIMIT` seconds."""
        failed: list[BaseException] = []

        def work() -> None:
            try:
                _drive(body())
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=work, name="face", daemon=True)
        thread.start()
        thread.join(LIMIT)
        if thread.is_alive():
            pytest.fail(f"the sync face still ran after {LIMIT:.0f} seconds")
        if failed:
            raise failed[0]

    def stream(self, source: Any, *handlers: sk.Handler, **options: Any) -> Any:
        return Shaped(sk.stream(source, *handlers, **options))

    def told(self, **does: Callable[..., Any]) -> Any:
        """A handler of this face's own kind."""
        return SyncTold(**does)

    def generator(self, source: Source) -> Any:
        return source.generate()

    def generator_of(self, items: Iterable[Any], *, error: BaseException | None = None) -> Any:
        """A generator of this face's own kind."""
        return self.generator(Source(items, error=error))

    @asynccontextmanager
    async def client(self, server: ModelServer | str, **options: Any) -> AsyncIterator[Any]:
        """The real OpenAI client of this face. It never tries again."""
        url = server if isinstance(server, str) else server.url
        with openai.OpenAI(**{"base_url": url, "api_key": "any", "max_retries": 0, **options}) as client:
            yield client

    async def in_thread(self, function: Callable[[], Any]) -> Any:
        """Wait for a function that blocks."""
        return function()

    @asynccontextmanager
    async def beside(self, function: Callable[[], Any]) -> AsyncIterator[None]:
        """Run a blocking function in a thread, beside the block; its error is raised when the block is left."""
        failed: list[BaseException] = []

        def work() -> None:
            try:
                function()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=work, name="beside", daemon=True)
        thread.start()
        try:
            yield
        finally:
            await self.in_thread(lambda: thread.join(LIMIT / 2))
        assert not thread.is_alive()
        if failed:
            raise failed[0]


class AsyncFace(Face):
    """The async one, on one of anyio's backends."""

    is_async = True

    def __init__(self, backend: str) -> None:
        self.name = backend

    def run(self, body: Callable[[], Any]) -> None:
        async def bounded() -> None:
            with anyio.fail_after(LIMIT):
                await body()

        anyio.run(bounded, backend=self.name)

    def stream(self, source: Any, *handlers: sk.Handler, **options: Any) -> Any:
        return sk.astream(source, *handlers, **options)

    def told(self, **does: Callable[..., Any]) -> Any:
        return AsyncTold(**does)

    def generator(self, source: Source) -> Any:
        return source.generate_async()

    @asynccontextmanager
    async def client(self, server: ModelServer | str, **options: Any) -> AsyncIterator[Any]:
        url = server if isinstance(server, str) else server.url
        options = {"base_url": url, "api_key": "any", "max_retries": 0, **options}
        async with openai.AsyncOpenAI(**options) as client:
            yield client

    async def in_thread(self, function: Callable[[], Any]) -> Any:
        with anyio.CancelScope(shield=True):
            return await anyio.to_thread.run_sync(function)


class Shaped:
    """A sync manager in the shape of the async one."""

    def __init__(self, manager: sk.StreamManager) -> None:
        self.manager = manager

    def __getattr__(self, name: str) -> Any:
        return getattr(self.manager, name)

    async def __aenter__(self) -> Shaped:
        self.manager.__enter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        self.manager.__exit__(*raised)

    async def __aiter__(self) -> AsyncIterator[Any]:
        for event in self.manager:
            yield event

    @property
    def text_deltas(self) -> Any:
        return _shape(self.manager.text_deltas)

    @property
    def partial_outputs(self) -> Any:
        return _shape(self.manager.partial_outputs)

    def output_items(self) -> Any:
        return _shape(self.manager.output_items())

    async def get_final_output(self) -> Any:
        return self.manager.get_final_output()

    def chunks(self, protocol: str) -> Any:
        return _shape(self.manager.chunks(protocol))

    async def until_done(self) -> None:
        self.manager.until_done()

    async def close(self) -> None:
        self.manager.close()

    async def get_final_text(self) -> str:
        return self.manager.get_final_text()

    async def get_final_messages(self) -> list[sk.Message]:
        return self.manager.get_final_messages()

    async def get_final_run(self) -> sk.Run:
        return self.manager.get_final_run()

    async def get_final_run_steps(self) -> list[sk.RunStep]:
        return self.manager.get_final_run_steps()


async def _shape(values: Iterable[Any]) -> AsyncIterator[Any]:
    for value in values:
        yield value


def _drive(coroutine: Any) -> None:
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise AssertionError("a body of the sync face waited for something asynchronous")


FACES: Mapping[str, Face] = {"sync": Face(), "asyncio": AsyncFace("asyncio"), "trio": AsyncFace("trio")}

every_face = pytest.mark.parametrize("face", list(FACES.values()), ids=list(FACES))
async_faces = pytest.mark.parametrize("face", [FACES["asyncio"], FACES["trio"]], ids=["asyncio", "trio"])


def both_shells(test: Callable[..., Any]) -> Callable[..., Any]:
    """Run a test on the sync face and on one event loop: its name decides on which, so that half of the tests run on each.

    For what comes before and after a stream's shells. Where it is the shell that matters, as for whatever waits, is stopped, or runs
    beside something else, `every_face` has all three.
    """
    loop = ("asyncio", "trio")[zlib.crc32(test.__name__.encode()) % 2]
    return pytest.mark.parametrize("face", [FACES["sync"], FACES[loop]], ids=["sync", loop])(test)


sync_face = pytest.mark.parametrize("face", [FACES["sync"]], ids=["sync"])


def every_pair(test: Callable[..., Any]) -> Callable[..., Any]:
    """Thin out the cases of the `parametrize` marks below: any two values of different marks meet, in place of all of them.

    A fault that one value or two together bring about is found as by all combinations.
    """
    marks = [mark for mark in test.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    axes = [_cases_of(*mark.args, **mark.kwargs) for mark in reversed(marks)]
    combinations = [*itertools.product(*(range(len(cases)) for _, cases in axes))]
    pairs = {places: frozenset(itertools.combinations(enumerate(places), 2)) for places in combinations}
    left = set().union(*pairs.values())
    chosen: list[Any] = []
    while left:
        best = max(combinations, key=lambda places: len(left & pairs[places]))
        left -= pairs[best]
        cases = [cases[place] for (_, cases), place in zip(axes, best, strict=True)]
        values, given = (
            [value for case in cases for value in case.values],
            [mark for case in cases for mark in case.marks],
        )
        chosen.append(pytest.param(*values, marks=given, id="-".join(case.id for case in cases)))
    names = [name for names, _ in axes for name in names]
    others = [mark for mark in test.pytestmark if mark.name != "parametrize"]  # type: ignore[attr-defined]
    test.pytestmark = [*others, pytest.mark.parametrize(names, chosen).mark]  # type: ignore[attr-defined]
    return test


def _cases_of(names: Any, values: Iterable[Any], ids: Any = None) -> tuple[list[str], list[Any]]:
    """The names of a `parametrize` mark, and its values as `pytest.param` with ids."""
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    listed, cases = [*values], []
    ids = [*map(ids, listed)] if callable(ids) else [None] * len(listed) if ids is None else [*ids]
    for value, id in zip(listed, ids, strict=True):
        case = value if hasattr(value, "marks") else pytest.param(*([value] if len(names) == 1 else value))
        shown = "-".join(str(getattr(one, "__name__", one)) for one in case.values)
        cases.append(pytest.param(*case.values, marks=case.marks, id=case.id or (shown if id is None else str(id))))
    return names, cases


def body(test: Callable[..., Any]) -> Callable[..., None]:
    """Make an `async def` test with a `face` a test that runs on it."""

    @functools.wraps(test)
    def run(**given: Any) -> None:
        given["face"].run(lambda: test(**given))

    return run


# -- streams in memory


async def is_soon(delay: Callable[[], Awaitable[float]]) -> None:
    """Something comes at once: of five measured delays one is short. The machine may have been busy during the others."""
    delays: list[float] = []
    while not delays or delays[-1] >= SOON:
        assert len(delays) < 5, delays
        delays.append(await delay())


def chat(*pieces: str, finish: str | None = "stop") -> list[dict[str, Any]]:
    """Chat Completions chunks that say these pieces. Without `finish` they are cut off."""

    def chunk(delta: Mapping[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": dict(delta), "finish_reason": reason}
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}

    chunks = [chunk({"role": "assistant", "content": ""})]
    chunks += [chunk({"content": piece}) for piece in pieces]
    return [*chunks, chunk({}, finish)] if finish else chunks


def ask(client: Any, **options: Any) -> Callable[[], Any]:
    """A chat request that is not sent yet."""
    messages = [{"role": "user", "content": "Hello"}]
    return lambda: client.chat.completions.create(**{"model": "m", "messages": messages, "stream": True, **options})


def ask_responses(client: Any, **options: Any) -> Callable[[], Any]:
    """A Responses request that is not sent yet."""
    return lambda: client.responses.create(**{"model": "m", "input": "Hello", "stream": True, **options})


def interpreter(*, confirmation: Any = None, ran: list[str] | None = None) -> list[Any]:
    """What a code-running agent yields. It runs its code when it is asked for what follows the confirmation."""
    code = {"role": "assistant", "type": "code", "format": "python"}
    console = {"role": "computer", "type": "console"}
    message = {"role": "assistant", "type": "message"}
    asked = {"type": "code", "format": "python", "content": "34/24"} if confirmation is None else confirmation
    return [
        {**code, "start": True},
        {**code, "content": "34/"},
        {**code, "content": "24"},
        {**code, "end": True},
        {"role": "computer", "type": "confirmation", "format": "execution", "content": asked},
        {**console, "start": True},
        {**console, "format": "active_line", "content": 1},
        {**console, "format": "output", "content": "1.41"},
        {**console, "format": "active_line", "content": None},
        {**console, "end": True},
        {**message, "start": True},
        {**message, "content": "About 1.4."},
        {**message, "end": True},
    ]


ASKED = 5  # how many items of `interpreter` there are up to its question; one more, and the code has run


def calls(*named: str, finish: str = "tool_calls") -> list[dict[str, Any]]:
    """Chat Completions chunks that call these tools, each with the arguments {"n": its place}."""
    chunks = chat(finish=None)
    for place, name in enumerate(named):
        function = {"name": name, "arguments": f'{{"n": {place}}}'}
        call = {"index": place, "id": f"call_{place}", "type": "function", "function": function}
        chunks.append(_with_delta(chunks[0], {"tool_calls": [call]}))
    return [*chunks, _with_delta(chunks[0], {}, finish)]


def _with_delta(chunk: dict[str, Any], delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
