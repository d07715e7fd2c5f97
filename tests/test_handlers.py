"""Handlers: who is told what, in which order, and what a handler may be."""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import streamkit as sk
from streamkit.handlers import HOOKS

from .faces import (
    AsyncTold,
    Face,
    Source,
    SyncTold,
    async_faces,
    body,
    both_shells,
    calls,
    chat,
    every_face,
    every_pair,
    interpreter,
    sync_face,
)


async def raised_by(awaitable: Any) -> BaseException:
    with pytest.raises(BaseException) as caught:
        await awaitable
    return caught.value


@both_shells
@body
async def test_the_hooks_of_a_text_nest_as_brackets(face: Face) -> None:
    """In the order that the design gives."""
    told = face.told()
    await face.stream(chat("Hel", "lo"), told).until_done()
    delta = ["on_text_delta", "on_message_delta"]
    assert told.hooks == [
        *("on_run_created", "on_run_step_created"),
        *("on_message_created", "on_text_created", *delta, *delta, "on_text_done", "on_message_done"),
        *("on_run_step_done", "on_run_done", "on_end"),
    ]


@both_shells
@body
async def test_on_event_comes_before_the_other_hooks_of_its_event(face: Face) -> None:
    """And once for every event."""
    told = face.told()
    types = [event.type async for event in face.stream(chat("Hi"), told)]
    assert [event.type for event in told.of("on_event")] == types
    names = [name for name, _ in told.told]
    for index, name in enumerate(names):
        if name in ("on_text_delta", "on_message_created", "on_end", "on_text_done"):
            assert names[index - 1] == "on_event"


@both_shells
@body
async def test_handlers_are_told_in_their_order(face: Face) -> None:
    """Each of them all hooks of an event before the next handler is."""
    order: list[str] = []

    def noting(name: str) -> dict[str, Any]:
        return {
            hook: lambda *_, hook=hook: order.append(f"{name} {hook}") for hook in ("on_text_delta", "on_message_delta")
        }

    stream = face.stream(chat("a", "b"), face.told(**noting("first")), SyncTold(**noting("second")))
    await stream.until_done()
    once = [f"{name} {hook}" for name in ("first", "second") for hook in ("on_text_delta", "on_message_delta")]
    assert order == once * 2


@every_face
@body
async def test_a_loop_sees_an_event_after_the_handlers(face: Face) -> None:
    """And the state in between is the same."""
    told = face.told()
    async for event in face.stream(chat("Hel", "lo"), told):
        assert told.of("on_event")[-1] is event
        if isinstance(event, sk.TextDelta):
            assert told.of("on_text_delta")[-1] is event


@both_shells
@body
async def test_a_hook_sees_the_stream(face: Face) -> None:
    """Its `stream` is the manager's state, live."""
    seen: list[tuple[str, str, str]] = []

    def look(told: Any, *_: Any) -> None:
        state = told.stream
        seen.append((state.current_event.type, state.current_message_snapshot.content, state.status))

    await face.stream(chat("Hel", "lo"), face.told(on_text_delta=look)).until_done()
    assert seen == [("text_delta", "Hel", "in_progress"), ("text_delta", "Hello", "in_progress")]


def test_a_handler_on_no_stream_says_so() -> None:
    """`stream` raises."""
    with pytest.raises(sk.UsageError, match="no stream yet"):
        sk.EventHandler().stream  # noqa: B018


@async_faces
@body
async def test_a_sync_handler_works_on_an_async_stream(face: Face) -> None:
    """Beside an async one, in order."""
    first, second = SyncTold(), AsyncTold()
    assert await face.stream(chat("Hi"), first, second).get_final_text() == "Hi"
    assert first.hooks == second.hooks


@async_faces
@body
async def test_a_plain_handler_may_have_some_async_hooks_on_an_async_stream(face: Face) -> None:
    """Also where only the result shows that it has to be awaited."""
    awaited: list[str] = []

    async def note(text: str) -> None:
        await anyio.lowlevel.checkpoint()
        awaited.append(text)

    def decorated(function: Any) -> Any:
        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            return function(*arguments)

        return call

    class Mixed(sk.EventHandler):
        async def on_text_created(self, message: sk.TextMessage) -> None:  # type: ignore[override]
            await note("created")

        @decorated
        async def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:  # type: ignore[override]
            await note(delta.value)

        def on_text_done(self, message: sk.TextMessage) -> Any:
            return note("done")

    await face.stream(chat("Hel", "lo"), Mixed()).until_done()
    assert awaited == ["created", "Hel", "lo", "done"]


@async_faces
@body
async def test_an_async_handler_may_have_plain_hooks(face: Face) -> None:
    class Counting(sk.AsyncEventHandler):
        count = 0

        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> Any:
            self.count += 1

        async def on_text_done(self, message: sk.TextMessage) -> None:
            await super().on_text_done(message)
            self.count += 10

    counting = Counting()
    await face.stream(chat("Hel", "lo"), counting).until_done()
    assert counting.count == 12


@pytest.mark.parametrize("hook", ["on_text_delta", "on_end", "on_event"])
def test_an_async_hook_on_a_sync_stream_is_refused_before_any_request(hook: str) -> None:
    """At construction; the error names the hook. The handler is free afterwards."""

    async def asynchronous(self: Any, *arguments: Any) -> None:
        pass

    kind = type("Asynchronous", (sk.EventHandler,), {hook: asynchronous})
    asked: list[int] = []
    other = sk.EventHandler()
    with pytest.raises(sk.UsageError, match=rf"Asynchronous\.{hook} is async.*astream"):
        sk.stream(lambda: asked.append(1), other, kind())
    assert asked == []
    sk.stream([], other).close()


def test_async_handlers_of_every_kind_are_refused_on_a_sync_stream() -> None:
    """Hooks that are attributes of one object, `handle`, and what `Throttled` wraps."""

    async def hook(*arguments: Any) -> None:
        pass

    handler = sk.EventHandler()
    handler.on_text_delta = hook  # type: ignore[method-assign,assignment]

    class Root(sk.Handler):
        async def handle(self, event: sk.Event) -> None:
            pass

    class Whole(sk.EventHandler):
        async def handle(self, event: sk.Event) -> None:
            pass

    for refused in (handler, AsyncTold(), sk.AsyncEventHandler(), Root(), Whole(), sk.Throttled(AsyncTold(), 1)):
        with pytest.raises(sk.UsageError, match="async"):
            sk.stream([], refused)


@sync_face
@body
async def test_a_hook_that_turns_out_to_be_async_is_not_silently_not_run(face: Face) -> None:
    """What gives an awaitable on a sync stream ends it."""

    async def note() -> None:
        pass

    class Hidden(sk.EventHandler):
        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> Any:
            return note()

    error = await raised_by(face.stream(chat("Hi"), Hidden()).until_done())
    assert isinstance(error, sk.UsageError)
    assert "on_text_delta" in str(error)


def test_a_near_miss_of_a_hooks_name_warns() -> None:
    """It names the hook that was meant; other names do not."""
    for miss, meant in (("on_text_deltas", "on_text_delta"), ("on_tool_calls_done", "on_tool_call_done")):
        with pytest.warns(UserWarning, match=f"{miss} is not a hook.*{meant}"):
            type("Misspelt", (sk.EventHandler,), {miss: lambda self: None})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        type("Own", (sk.EventHandler,), {"on_fire": lambda self: None, "render": lambda self: None})


def test_what_is_no_handler_is_refused() -> None:
    """A class in place of an object, a function, None."""
    for wrong in (sk.EventHandler, print, None, "handler"):
        with pytest.raises(sk.UsageError, match="not a handler"):
            sk.stream([], wrong)  # type: ignore[arg-type]


@both_shells
@body
async def test_a_forgotten_super_init_is_harmless(face: Face) -> None:
    """A handler may also have attributes of any name, and be empty and false."""

    class Own(sk.EventHandler):
        def __init__(self) -> None:
            self.calls: list[str] = []
            self.messages = self.events = self.hooks = 0

        def __len__(self) -> int:
            return 0

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
            self.calls.append(delta.value)

    own, other = Own(), Own()
    await face.stream(chat("Hel", "lo"), own, other).until_done()
    assert own.calls == other.calls == ["Hel", "lo"]


@both_shells
@pytest.mark.parametrize(
    ("base", "named"),
    [(sk.Throttled, r"super\(\).__init__\(handler, interval\)"), (sk.Recorder, r"super\(\).__init__\(path\)")],
)
@body
async def test_a_forgotten_super_init_that_has_arguments_is_told_at_once(face: Face, base: Any, named: str) -> None:
    """At construction, before any request; the other handlers are free."""

    class Own(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.mine = 1

    other = SyncTold()
    for handlers in ((other, Own()), (Own(), other), (other, sk.Throttled(Own(), 1))):
        with pytest.raises(sk.UsageError, match="Own.__init__ has to call " + named):
            face.stream(lambda: pytest.fail("a request was sent"), *handlers)
    assert await face.stream(chat("Hi"), other).get_final_text() == "Hi"


@both_shells
@body
async def test_hooks_may_be_attributes_of_one_object(face: Face) -> None:
    """Set on the handler itself."""
    texts: list[str] = []
    handler = sk.EventHandler()
    handler.on_text_delta = lambda delta, snapshot: texts.append(delta.value)  # type: ignore[method-assign,assignment,misc]
    await face.stream(chat("Hel", "lo"), handler).until_done()
    assert texts == ["Hel", "lo"]


@both_shells
@body
async def test_a_handler_may_be_used_again_after_the_end(face: Face) -> None:
    """However that stream ended."""
    told = face.told()
    await face.stream(chat("a"), told).until_done()
    await raised_by(face.stream(chat("b", finish=None), told).until_done())
    async with face.stream(chat("c"), told):
        pass
    stream = face.stream(chat("d"), told)
    await stream.until_done()
    assert told.stream.messages == stream.messages
    assert told.hooks.count("on_end") == 4


@both_shells
@body
async def test_a_handler_serves_one_live_stream_at_a_time(face: Face) -> None:
    """The second is refused at construction; the first goes on, and the second's other handlers are free."""
    told, other = face.told(), face.told()
    async with face.stream(chat("Hel", "lo"), told) as stream:
        async for _ in stream:
            break
        with pytest.raises(sk.UsageError, match="live stream already"):
            face.stream(chat("x"), other, told)
        with pytest.raises(sk.UsageError, match="live stream already"):
            face.stream(chat("x"), sk.Throttled(told, 1))
        with pytest.raises(sk.UsageError, match="twice"):
            face.stream(chat("x"), other, other)
        assert await stream.get_final_text() == "Hello"
    await face.stream(chat("x"), other).until_done()


@both_shells
@body
async def test_the_root_is_told_every_event(face: Face) -> None:
    """`Handler.handle`, which may be async on an async stream."""
    types: list[str] = []

    class Plain(sk.Handler):
        def handle(self, event: sk.Event) -> Any:
            types.append(event.type)
            return len(types)

    class Asynchronous(sk.Handler):
        async def handle(self, event: sk.Event) -> None:
            await anyio.lowlevel.checkpoint()
            types.append(event.type)

    given = [event.type async for event in face.stream(chat("Hel", "lo"), Asynchronous() if face.is_async else Plain())]
    assert types == given
    assert types[-1] == "stream_end"


@both_shells
@body
async def test_a_handler_may_pass_events_on_to_another(face: Face) -> None:
    """`handle` of an event handler calls its hooks."""
    inner = face.told()

    class Outer(sk.Handler):
        def handle(self, event: sk.Event) -> Any:
            return inner.handle(event)

    direct = face.told()
    await face.stream(chat("Hel", "lo"), Outer(), direct).until_done()
    assert inner.hooks == direct.hooks


def test_every_hook_is_declared_with_its_docstring() -> None:
    """The handlers have exactly the hooks of the events."""
    declared = {name for name in vars(sk.Hooks) if name.startswith("on_")}
    assert declared == set(HOOKS)
    assert all(getattr(sk.Hooks, name).__doc__ for name in HOOKS)


# -- Throttled


@both_shells
@body
async def test_throttled_joins_deltas_and_loses_none(face: Face) -> None:
    """The first is told at once, the rest before the message is done."""
    told = face.told()
    await face.stream(chat("a", "b", "c", "d"), sk.Throttled(told, 3600)).until_done()
    assert [delta.value for delta in told.of("on_text_delta")] == ["a", "bcd"]
    told.check_brackets()
    names = told.hooks
    assert names.index("on_text_done") > max(i for i, name in enumerate(names) if name == "on_text_delta")


@both_shells
@body
async def test_throttled_without_an_interval_tells_everything(face: Face) -> None:
    """As without it."""
    plain, throttled = face.told(), face.told()
    await face.stream(chat("a", "b", "c"), plain, sk.Throttled(throttled, 0)).until_done()
    assert plain.hooks == throttled.hooks


@both_shells
@body
async def test_throttled_tells_the_last_piece_of_a_stream_that_fails(face: Face) -> None:
    """Before its done hook."""
    told = face.told()
    stream = face.stream(chat("a", "b", "c", finish=None), sk.Throttled(told, 3600))
    await raised_by(stream.until_done())
    assert "".join(delta.value for delta in told.of("on_text_delta")) == "abc"
    told.check_brackets()


@both_shells
@body
async def test_throttled_keeps_what_parallel_calls_say_apart(face: Face) -> None:
    """Each message has its own interval."""
    told = face.told()
    await face.stream(calls("one", "two"), sk.Throttled(told, 3600)).until_done()
    assert {delta.message_id: delta.value for delta in told.of("on_tool_call_delta")}.keys() == {
        message.id for message in told.of("on_tool_call_done")
    }


@both_shells
@body
async def test_an_error_behind_throttled_ends_the_stream(face: Face) -> None:
    """As any hook's."""

    def fail(*_: Any) -> None:
        raise LookupError("inner")

    inner, other = face.told(on_text_delta=fail), face.told()
    error = await raised_by(face.stream(chat("a", "b"), sk.Throttled(inner, 3600), other).until_done())
    assert isinstance(error, LookupError)
    other.check_brackets()
    assert inner.hooks.count("on_end") == 1


@both_shells
@body
async def test_throttled_hands_on_its_stream(face: Face) -> None:
    """The inner handler has `stream`, and may answer."""
    source = Source(interpreter())
    told = face.told(on_confirmation=lambda told, asked: told.stream.pending[asked.id].approve())
    await face.stream(face.generator(source), sk.Throttled(told, 3600)).until_done()
    assert told.of("on_console_output")


@pytest.mark.parametrize("interval", [0, 3600])
def test_throttled_leaves_the_raw_items_to_handlers_that_take_them(interval: float) -> None:
    """A stream then decodes bytes directly, as without it."""
    items: list[Any] = []

    class Receiver(sk.EventHandler):
        def receive(self, batch: Any) -> None:
            items.extend(batch)

    plain = sk.stream(chat("a"), sk.Throttled(sk.EventHandler(), interval))
    taking = sk.stream(chat("a"), sk.Throttled(sk.Throttled(Receiver(), interval), interval))
    assert not plain._receivers
    for stream in (plain, taking):
        stream.until_done()
    assert items


def test_throttled_makes_nothing_to_await_of_what_it_holds_back() -> None:
    """An async handler gets a coroutine for what is passed on, and none is left unawaited."""

    class Told(sk.AsyncEventHandler):
        pass

    throttled = sk.Throttled(Told(), 3600)
    first = throttled.handle(sk.TextDelta("m", "a"))
    assert inspect.iscoroutine(first)
    first.close()
    assert throttled.handle(sk.TextDelta("m", "b")) is None


def test_no_thread_is_left_behind() -> None:
    """A sync stream begins none."""
    before = set(threading.enumerate())
    sk.stream(iter(chat("Hi")), SyncTold()).until_done()
    assert set(threading.enumerate()) <= before  # those of earlier tests may end meanwhile


def test_a_subclass_may_use_any_private_name_of_its_own() -> None:
    """What streams ask of handlers has names that no subclass has by chance."""

    class Busy(sk.EventHandler):
        def __init__(self) -> None:
            self._stream = self._plan = self._needs_async = self._call = self._calls = "mine"
            self.told: list[str] = []

        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
            self.told.append(delta.value)

    busy = Busy()
    sk.stream(chat("a", "b"), busy).until_done()
    assert (busy.told, busy._stream) == (["a", "b"], "mine")
    assert busy.stream.status == "completed"


def test_a_stream_that_never_started_does_not_keep_its_handler() -> None:
    """Nothing was sent. If it starts after all, it says who has the handler now, and tells it nothing."""
    handler = Teller()
    never = sk.stream(chat("a"), handler)
    sk.stream(chat("b"), handler).until_done()
    told = [*handler.told]
    with pytest.raises(sk.UsageError, match="Teller was passed to another stream"):
        never.until_done()
    never.close()
    assert handler.told == told
    assert handler.stream.status == "completed"


def test_a_hooks_stop_iteration_is_raised_as_it_is() -> None:
    """Though Python lets no generator raise one."""

    class Stops(sk.EventHandler):
        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
            raise StopIteration("mine")

    stream = sk.stream(chat("a"), Stops())
    with pytest.raises(StopIteration, match="mine"):
        stream.until_done()
    assert isinstance(stream.error, StopIteration)


class Teller(sk.Handler):
    """Writes down all that it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def handle(self, event: sk.Event, /) -> None:
        self.told.append(event.type)


def test_a_hook_that_is_assigned_among_deltas_is_called_from_the_next_other_event_on() -> None:
    """As the guide says: the rest of the row of deltas goes to the hook that was there before."""
    first: list[str] = []
    late: list[str] = []

    def take(delta: sk.events.TextDelta, snapshot: sk.Message) -> None:
        late.append(delta.value)

    class First(sk.EventHandler):
        def on_text_delta(self, delta: sk.events.TextDelta, snapshot: sk.Message) -> None:
            first.append(delta.value)
            if delta.value == "1":
                setattr(self, "on_text_delta", take)  # noqa: B010  # the class declares it as a method

    deltas = [sk.events.TextDelta("m", str(number)) for number in range(4)]
    done = sk.events.TextDone(sk.TextMessage("m", content="0123"))
    sk.stream([*deltas, done, sk.events.TextDelta("n", "x"), sk.events.StreamEnd()], First()).until_done()
    assert (first, late) == (["0", "1", "2", "3"], ["x"])


WRONG_NAMES = {
    "on_error": "on_",
    "on_message": "on_message_",
    "on_text": "on_text_",
    "on_tool_call": "on_tool_call_",
    "on_code": "on_code_",
    "on_done": "on_",
    "on_finish": "on_",
}


@pytest.mark.parametrize("kind", [sk.EventHandler, sk.AsyncEventHandler])
@pytest.mark.parametrize(("name", "nearest"), WRONG_NAMES.items())
def test_a_method_that_is_no_hook_is_warned_about_once_when_its_handler_is_bound(
    kind: type[Any], name: str, nearest: str
) -> None:
    handler = type(f"Wrong{name}{kind.__name__}", (kind,), {name: lambda self: None})
    with pytest.warns(UserWarning, match=f"{name} is not a hook.*; the nearest hook is {nearest}") as caught:
        sk.astream([], handler())
        sk.astream([], handler())
    assert len(caught) == 1


@every_pair
@both_shells
@pytest.mark.parametrize("awaits", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["", "throttled"])
@body
async def test_a_hook_that_returns_a_value_is_warned_about_once(face: Face, awaits: bool, wrapped: bool) -> None:
    """Of every kind of event, and of `async def` hooks as well. What a lambda returns says nothing."""

    class Returns(sk.EventHandler):
        def on_tool_call_done(self, call: sk.ToolCallMessage) -> Any:
            return "42"

        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> Any:
            return len(delta.value)

    class Awaited(sk.EventHandler):
        async def on_tool_call_done(self, call: sk.ToolCallMessage) -> Any:
            await anyio.lowlevel.checkpoint()
            return "42"

        async def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> Any:
            return len(delta.value)

    async def stream(handler: Any) -> None:
        if not wrapped:
            handler.on_text_done = lambda message: message.content
        texts = [sk.events.TextDelta("t", "Hello"), sk.events.TextDelta("t", " you")]
        calls = [sk.events.ToolCallDone(sk.ToolCallMessage(id, name="f", content="{}")) for id in ("a", "b")]
        await face.stream([*texts, *calls, sk.events.StreamEnd(status="completed")], handler).until_done()

    kind: Any = Awaited if face.is_async and awaits else Returns
    with pytest.warns(UserWarning) as caught:
        for _ in range(2):
            await stream(sk.Throttled(kind(), 0) if wrapped else kind())
    assert [(str(one.message).partition(f"{kind.__name__}.")[2], one.filename) for one in caught] == [
        ("on_text_delta returned 5, which is not used: a hook returns nothing", __file__),
        (
            "on_tool_call_done returned '42', which is not used: a hook returns nothing; a tool call is answered by "
            "`respond`",
            __file__,
        ),
    ]


def test_the_hook_of_an_application_s_event_is_none_of_them() -> None:
    class LateEventOfHandlers(sk.Event):
        pass

    class Waits(sk.EventHandler):
        def on_late_event_of_handlers(self, event: LateEventOfHandlers) -> None:
            pass

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sk.stream([], Waits())


@both_shells
@pytest.mark.parametrize("name", ["on_console_output", "on_console_delta"])
@body
async def test_console_output_has_two_names(face: Face, name: str) -> None:
    seen: list[str] = []
    handler = type("Console", (sk.EventHandler,), {name: lambda self, delta, snapshot: seen.append(delta.value)})()
    for one in (handler, sk.Throttled(handler, 0)):
        seen.clear()
        await face.stream(
            [sk.events.ConsoleDelta("c", "hi"), sk.events.StreamEnd(status="completed")], one
        ).until_done()
        assert seen == ["hi"]


async def _slowly_too_few(self: Any, delta: Any) -> None:
    """An `async def` hook without a snapshot."""


async def _slowly(self: Any, delta: Any, snapshot: Any) -> None:
    """An `async def` hook."""


class _Callable:
    """An object that is called as a function is."""

    def __call__(self, *, delta: Any) -> None:
        pass


def _logged(hook: Any) -> Any:
    """A decorator whose hooks take anything, and pass on what it wants."""

    @functools.wraps(hook)
    def log(self: Any, *arguments: Any) -> Any:
        return hook(self, *arguments[:1])

    return log


def _with_one_argument(hook: Any) -> Any:
    """A decorator whose hooks take too little, whatever the decorated one takes."""

    @functools.wraps(hook)
    def narrow(self: Any, delta: Any) -> Any:
        return hook(self, delta, None)

    return narrow


WRONG_HOOKS = {
    "too few": ("on_text_delta", lambda self, delta: None),
    "too many": ("on_text_delta", lambda self, delta, snapshot, more: None),
    "one where there are none": ("on_end", lambda self, status: None),
    "no event": ("on_event", lambda self: None),
    "a keyword that is required": ("on_usage", lambda self, usage, *, more: None),
    "async": ("on_text_delta", _slowly_too_few),
    "a decorator's": ("on_text_delta", _with_one_argument(_slowly)),
    "static": ("on_text_delta", staticmethod(lambda delta: None)),
    "of a class": ("on_text_delta", classmethod(lambda cls, delta: None)),
    "partial": ("on_text_delta", staticmethod(functools.partial(lambda snapshot: None))),
    "an object": ("on_text_delta", _Callable()),
    "handle": ("handle", lambda self, event, more: None),
    "receive": ("receive", lambda self: None),
}
RIGHT_HOOKS = {
    "more, with values": ("on_text_delta", lambda self, delta, snapshot, more=None: None),
    "any": ("on_text_delta", lambda self, delta, *rest: None),
    "one with a value where there are none": ("on_end", lambda self, status=None: None),
    "async": ("on_text_delta", _slowly),
    "a decorator's": ("on_text_delta", _logged(lambda self, delta: None)),
    "static": ("on_text_delta", staticmethod(lambda delta, snapshot: None)),
    "of a class": ("on_text_delta", classmethod(lambda cls, delta, snapshot: None)),
    "partial": ("on_text_delta", staticmethod(functools.partial(lambda more, delta, snapshot: None, None))),
    "written in C": ("on_text_delta", print),
}


@pytest.mark.parametrize("root", [sk.EventHandler, sk.AsyncEventHandler])
@pytest.mark.parametrize(("name", "hook"), WRONG_HOOKS.values(), ids=WRONG_HOOKS)
def test_a_hook_that_cannot_take_its_arguments_is_refused_when_it_is_bound(
    root: type[Any], name: str, hook: Any
) -> None:
    """Before the request. Of a decorated hook, what the decorator returned counts: that is what is called."""
    with pytest.raises(sk.UsageError, match=rf"Wrong\.{name} cannot be called with its arguments: it is {name}\("):
        sk.astream([], type("Wrong", (root,), {name: hook})())


def test_a_hook_behind_another_handler_is_checked_when_that_is_bound() -> None:
    handler = type("Wrong", (sk.EventHandler,), {"on_end": lambda self, status: None})()
    with pytest.raises(sk.UsageError, match=r"Wrong\.on_end cannot be called with its arguments"):
        sk.stream([], sk.Throttled(handler, 1))
    handler.on_end = lambda: None
    sk.stream(chat("a"), sk.Throttled(handler, 1)).until_done()


@pytest.mark.parametrize(("name", "hook"), WRONG_HOOKS.values(), ids=WRONG_HOOKS)
def test_a_hook_that_was_assigned_and_cannot_take_its_arguments_is_refused_as_well(name: str, hook: Any) -> None:
    handler: Any = sk.EventHandler()
    if name.startswith("on_"):
        setattr(handler, name, hook.__get__(handler) if hasattr(hook, "__get__") else hook)
        with pytest.raises(sk.UsageError, match=f"cannot be called with its arguments: it is {name}"):
            sk.astream([], handler)


@both_shells
@pytest.mark.parametrize(("name", "hook"), RIGHT_HOOKS.values(), ids=RIGHT_HOOKS)
@body
async def test_a_hook_that_can_take_its_arguments_is_called(face: Face, name: str, hook: Any) -> None:
    if face.is_async or hook is not _slowly:
        await face.stream(chat("a"), type("Right", (sk.EventHandler,), {name: hook})()).until_done()
