"""Async streams that are ended at random moments, in random ways, while they are read in random ways.

    python -m tests.endurance.async_cancels --rounds 200 --seed 1 --on asyncio,trio

A seed decides how a source sleeps, who reads it, and who ends it after how many rounds of the event loop. At the end the
stream has ended once for its handlers, its source is closed, the task that read it goes on unless it was cancelled itself,
and a cancellation of its own is never lost.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread

import streamkit as sk

from ..faces import AsyncTold, SyncTold, chat

__all__ = ["main", "rounds"]

READING = ("events", "text_deltas", "chunks", "until_done", "nested", "a task for each")
ENDING = ("cancel", "cancel in a thread", "close", "scope", "task", "cancel, then task", "task, then cancel", "break")
OF_THE_TASK = ("task", "cancel, then task", "task, then cancel")


class Sleepy:
    """A source that sleeps in another way before each item, and cleans up with sleeps of its own, undisturbed by scopes.

    Attributes:
        began, closed: how often.
    """

    def __init__(self, dice: random.Random, backend: str, *, ends: bool) -> None:
        self.dice, self.ends = dice, ends
        self.began = self.closed = 0
        self._ways: list[Callable[[float], Any]] = [_turns, anyio.sleep, _in_a_scope, _for_another_task]
        if backend == "asyncio":
            self._ways += [lambda s: asyncio.create_task(asyncio.sleep(s)), lambda s: asyncio.shield(asyncio.sleep(s))]

    async def items(self) -> AsyncIterator[Any]:
        self.began += 1
        try:
            for item in chat(*"abcdefgh", finish="stop" if self.ends else None):
                if self.dice.random() < 0.8:
                    await self.dice.choice(self._ways)(self.dice.randrange(4) * 1e-4)
                yield item
            if not self.ends:
                await anyio.sleep_forever()
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    await _turns(self.dice.randrange(3) * 1e-4)
            finally:
                self.closed += 1


async def _turns(seconds: float) -> None:
    for _ in range(round(seconds * 1e4)):
        await anyio.lowlevel.checkpoint()


async def _in_a_scope(seconds: float) -> None:
    with anyio.fail_after(60):
        await anyio.sleep(seconds)


async def _for_another_task(seconds: float) -> None:
    is_over = anyio.Event()

    async def end() -> None:
        await anyio.sleep(seconds)
        is_over.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end)
        await is_over.wait()


class Round:
    """One stream, how it is read, and how it is ended."""

    def __init__(self, seed: int, backend: str) -> None:
        self.dice = dice = random.Random(seed)
        self._backend = backend
        self.reading = dice.choice(READING)
        self.ending = dice.choice([how for how in ENDING if backend == "asyncio" or how not in OF_THE_TASK])
        self.source = Sleepy(dice, backend, ends=dice.random() < 0.3)
        # A hook that sleeps may be cut short by its own task's cancellation.
        self.told: Any = (SyncTold if self.ending in (*OF_THE_TASK, "scope") else AsyncTold)()
        self.outer = Sleepy(dice, backend, ends=True)
        is_nested = self.reading == "nested"
        if is_nested:
            self.told = AsyncTold() if isinstance(self.told, AsyncTold) else _Nesting()
            self.told.does["on_text_created"] = self._read_nested
        self.stream: Any = sk.astream((self.outer if is_nested else self.source).items(), self.told)
        self.end = ""  # what became of the reading task
        self.scope = anyio.CancelScope()

    async def _read_nested(self, *_: Any) -> None:
        del self.told.does["on_text_created"]
        async with contextlib.aclosing(self.stream.read_nested(self.source.items())) as events:
            async for _event in events:
                pass

    async def read(self) -> None:
        self.task: Any = asyncio.current_task() if self._backend == "asyncio" else None
        try:
            with self.scope:
                async with self.stream:
                    await self._read()
                await _turns(2e-4)  # the task is not cancelled
        except asyncio.CancelledError:
            self.end = "cancelled"
            raise
        self.end = "cancelled" if self.scope.cancelled_caught else "goes on"

    async def _read(self) -> None:
        if self.reading in ("until_done", "nested"):
            await self.stream.until_done()
            return
        if self.stream.ended:
            return
        values = {"text_deltas": lambda: self.stream.text_deltas, "chunks": lambda: self.stream.chunks("anthropic")}
        loop = aiter(values.get(self.reading, lambda: self.stream)())
        steps = self.dice.randrange(20) if self.ending == "break" else 1000
        # One who wants the next event while another task closes the stream is refused.
        with contextlib.suppress(StopAsyncIteration, *([sk.UsageError] if self.ending == "close" else [])):
            for _ in range(steps):
                await (_in_a_task(loop) if self.reading == "a task for each" else anext(loop))
                if self.dice.random() < 0.2:
                    await anyio.lowlevel.checkpoint()

    async def stop(self) -> None:
        while not self.stream.started:  # before that, nothing is to be ended
            await anyio.lowlevel.checkpoint()
        await _turns(self.dice.randrange(60) * 1e-4)
        match self.ending:
            case "cancel":
                self.stream.cancel()
            case "cancel in a thread":
                await anyio.to_thread.run_sync(self.stream.cancel)
            case "close":
                await self.stream.close()
                assert self.stream.ended
            case "scope":
                self.scope.cancel()
            case "break":
                await anyio.sleep(0.01)
                self.stream.cancel()
            case _:
                if self.ending == "cancel, then task":
                    self.stream.cancel()
                    await _turns(self.dice.randrange(3) * 1e-4)
                self.was_cancelled = self.task.cancel()
                if self.ending == "task, then cancel":
                    self.stream.cancel()

    was_cancelled = False

    async def run(self) -> None:
        with anyio.fail_after(20):
            if self.ending in OF_THE_TASK:
                reader = asyncio.create_task(self.read())
                await _turns(1e-4)
                await self.stop()
                await asyncio.wait([reader])
                assert reader.cancelled() or not self.was_cancelled, "the task's cancellation is lost"
            else:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self.read)
                    tasks.start_soon(self.stop)
        self.check()

    def check(self) -> None:
        assert self.stream.ended
        assert self.source.closed == self.source.began
        assert self.end == "goes on" or self.ending in (*OF_THE_TASK, "scope"), self.end
        if self.task is not None and self.ending not in OF_THE_TASK:
            assert self.task.cancelling() == 0, "a cancellation is left"
        self.told.check_brackets()


async def _in_a_task(loop: Any) -> None:
    """The next value, in a task of its own."""
    values: list[Any] = []
    errors: list[Exception] = []

    async def step() -> None:
        try:
            values.append(await anext(loop))
        except StopAsyncIteration:
            pass
        except sk.UsageError as error:
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(step)
    if errors:
        raise errors[0]
    if not values:
        raise StopAsyncIteration


class _Nesting(SyncTold):
    """Plain hooks, but for one that reads a source."""

    async def on_text_created(self, message: Any) -> None:  # type: ignore[override]
        self.told.append(("on_text_created", (message,)))
        if (does := self.does.get("on_text_created")) is not None:
            await does(self, message)


def rounds(count: int, seed: int, backend: str) -> tuple[Counter[str], list[str]]:
    """That many rounds. Returns how often each ending met a stream that ended how, and the faults."""
    seen: Counter[str] = Counter()
    faults: list[str] = []

    async def run() -> None:
        for number in range(seed * 1_000_000, seed * 1_000_000 + count):
            one = Round(number, backend)
            try:
                await one.run()
            except (Exception, BaseExceptionGroup) as error:
                faults.append(f"{backend}, seed {number}, {one.reading}, ended by {one.ending}: {error!r}")
            seen[f"{one.ending}: {one.stream.status}"] += 1

    anyio.run(run, backend=backend)
    return seen, faults


def main(arguments: list[str] | None = None) -> int:
    """The command. Returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--on", default="asyncio,trio")
    options = parser.parse_args(arguments)
    failed = 0
    for backend in options.on.split(","):
        seen, faults = rounds(options.rounds, options.seed, backend)
        print(f"{backend}: {options.rounds} rounds, {len(faults)} faults;", dict(sorted(seen.items())))
        print(*faults[:20], sep="\n")
        failed += len(faults)
    return min(failed, 1)


if __name__ == "__main__":
    raise SystemExit(main())
