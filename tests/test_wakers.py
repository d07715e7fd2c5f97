"""Threads that wait for the next event of a run are woken one after the other, and none waits for what another one does.
Tasks are woken from any thread, and miss nothing that comes before they wait."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from streamkit.relay import MemoryRelay
from streamkit.relay.wakers import TaskWaker, ThreadWaker, _AsyncioWaker, task_waker, wake_next

PATIENCE = 20.0  # seconds


def asleep(waker: ThreadWaker) -> threading.Thread:
    """A thread that waits."""
    thread = threading.Thread(target=waker.wait, args=(PATIENCE,), daemon=True)
    thread.start()
    while not waker.waits:
        time.sleep(0)
    return thread


def has_ended(thread: threading.Thread) -> bool:
    thread.join(PATIENCE / 2)
    return not thread.is_alive()


def line_of(*wakers: ThreadWaker) -> deque[ThreadWaker]:
    line = deque(wakers)
    for waker in wakers:
        waker.line = line
    return line


def test_only_the_first_thread_in_a_line_that_waits_is_woken() -> None:
    """The others are left to it."""
    busy, first, second = ThreadWaker(), ThreadWaker(), ThreadWaker()
    first.waits = second.waits = True
    line = line_of(busy, first, second)
    wake_next(line)
    assert [*line] == [second]


def test_each_thread_in_a_line_wakes_the_next_one() -> None:
    wakers = [ThreadWaker() for _ in range(5)]
    threads = [*map(asleep, wakers)]
    wake_next(line_of(*wakers))
    assert all(map(has_ended, threads))


def test_a_line_passes_a_thread_that_does_not_wait() -> None:
    """It would not wake the next one before it waits again."""
    busy, waker = ThreadWaker(), ThreadWaker()
    thread = asleep(waker)
    wake_next(line_of(busy, waker))
    assert has_ended(thread)


def test_a_thread_that_was_not_woken_goes_on_with_the_line() -> None:
    """Its turn may have come just then."""
    late, waker = ThreadWaker(), ThreadWaker()
    thread = asleep(waker)
    line = line_of(late, waker)
    line.popleft()
    late.wait(0)
    assert has_ended(thread)


@pytest.mark.parametrize("pause", [0.001, 60.0])
def test_threads_that_are_slow_or_leave_keep_no_event_from_others(
    monkeypatch: pytest.MonkeyPatch, pause: float
) -> None:
    """They get each one while the slow ones are at the first, whether waits end by themselves in the middle or not at all."""
    monkeypatch.setattr("streamkit.relay.memory.run.MemoryRun.first_wait", lambda self, timeout: pause)
    monkeypatch.setattr("streamkit.relay.memory.run.GRACE", 600.0)  # of the waits after the first
    relay = MemoryRelay()
    writer = relay.open("run", control=lambda control: None)
    readings = [relay.read("run") for _ in range(12)]
    counts, changed, may_go_on = [0] * 12, threading.Condition(), threading.Event()

    def read(number: int) -> None:
        while (entries := readings[number].pull()) is not None:
            with changed:
                counts[number] += len(entries)
                changed.notify_all()
            if number % 4 == 0:
                may_go_on.wait(PATIENCE)
            elif number % 4 == 1:
                readings[number].close()

    threads = [threading.Thread(target=read, args=(number,), daemon=True) for number in range(12)]
    for thread in threads:
        thread.start()
    for count in range(1, 31):
        writer.append([b"{}"])
        if count % 2:
            readings[count % 12].wake()
        with changed:
            assert changed.wait_for(lambda count=count: {*counts[2::4], *counts[3::4]} == {count}, PATIENCE)
    may_go_on.set()
    writer.end("completed")
    assert all(map(has_ended, threads))
    assert counts[0::4] == [30] * 3


class Interrupted(ThreadWaker):
    """While it is entered among those that wait, another thread does something."""

    then: Callable[[], object] | None = None

    def __hash__(self) -> int:
        if self.then is not None:
            thread = threading.Thread(target=self.then, daemon=True)
            self.then = None
            thread.start()
            thread.join(PATIENCE / 20)  # or it has to wait until this thread goes on
        return id(self)


@pytest.mark.parametrize("comes", ["an event", "a question", "the end"])
def test_what_comes_while_a_reader_begins_to_wait_is_not_missed(comes: str) -> None:
    """It has not looked in vain, or it is woken."""
    relay = MemoryRelay()
    writer = relay.open("run", control=lambda control: None)
    reading, waker = relay.read("run"), Interrupted()
    writer.append([b"{}"])
    assert reading.take(waker)
    waker.then = {
        "an event": partial(writer.append, [b"{}"]),
        "a question": partial(writer.ask, "q", {}, [b"{}"]),
        "the end": partial(writer.end, "completed"),
    }[comes]
    taken = reading.take(waker)
    if isinstance(taken, float):
        thread = threading.Thread(target=waker.wait, args=(PATIENCE,), daemon=True)
        thread.start()
        assert has_ended(thread)
        taken = reading.take(waker)
    assert taken is None if comes == "the end" else taken


class InterruptedTaskWaker(_AsyncioWaker):
    """As `Interrupted`, of a task on asyncio."""

    then: Callable[[], object] | None = None

    def __hash__(self) -> int:
        if self.then is not None:
            thread = threading.Thread(target=self.then, daemon=True)
            self.then = None
            thread.start()
            thread.join(PATIENCE / 20)
        return id(self)


@pytest.mark.parametrize("comes", ["an event", "the end"])
def test_what_comes_while_a_task_begins_to_wait_is_not_missed(comes: str) -> None:
    """As on a thread. The task waits without looking at the clock or the lock, which is how it waits from token to token."""

    async def main() -> None:
        relay = MemoryRelay()
        writer = relay.open("run", control=lambda control: None)
        reading = relay.read("run")
        waker = reading._waker = InterruptedTaskWaker(task_waker()._calls, asyncio.get_running_loop())
        writer.append([b"{}"])
        assert await reading.apull()
        waker.then = partial(writer.append, [b"{}"]) if comes == "an event" else partial(writer.end, "completed")
        with anyio.fail_after(PATIENCE):
            taken = await reading.apull()
        assert taken if comes == "an event" else taken is None
        assert waker.then is None
        reading.close()

    anyio.run(main)


async def wake_before(waker: TaskWaker) -> None:
    waker.wake()


async def wake_from_a_thread(waker: TaskWaker) -> None:
    await anyio.to_thread.run_sync(waker.wake)


async def wake_twice(waker: TaskWaker) -> None:
    waker.wake()
    waker.wake()


async def wake_after_a_cancelled_wait(waker: TaskWaker) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await waker.wait(PATIENCE)
    waker.wake()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("wake", [wake_before, wake_from_a_thread, wake_twice, wake_after_a_cancelled_wait])
def test_a_task_that_was_woken_before_it_waits_does_not_wait(
    backend: str, wake: Callable[[TaskWaker], Awaitable[None]]
) -> None:
    """From whichever thread, and however often."""

    async def main() -> None:
        waker = task_waker()
        await wake(waker)
        with anyio.fail_after(PATIENCE / 2):
            await waker.wait(PATIENCE)
        waker.close()

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_task_that_waits_is_woken_from_its_event_loop_and_from_other_threads(backend: str) -> None:
    """Each time it waits, and what woke it is forgotten then."""

    async def main() -> None:
        waker, count = task_waker(), 0

        async def wait() -> None:
            nonlocal count
            for _ in range(4):
                await waker.wait(PATIENCE)
                count += 1

        with anyio.fail_after(PATIENCE / 2):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                for number in range(4):
                    await anyio.wait_all_tasks_blocked()
                    assert count == number
                    if number % 2:
                        await anyio.to_thread.run_sync(waker.wake)
                    else:
                        waker.wake()
                    while count == number:
                        await anyio.lowlevel.checkpoint()
        waker.close()

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_wait_ends_by_itself(backend: str) -> None:
    """After about as many seconds as it was told, the second time, too, and after one that could have taken longer."""

    async def main() -> None:
        waker = task_waker()

        async def wait() -> None:
            await waker.wait(100 * PATIENCE)

        with anyio.fail_after(PATIENCE):
            await waker.wait(0.001)
            await waker.wait(0.001)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                waker.wake()
            await waker.wait(0.001)
        waker.close()

    anyio.run(main, backend=backend)
