"""A computer that runs code: languages, each in a living process of its own."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread

from ..errors import UsageError
from .execution import Execution
from .javascript import JavaScriptRunner
from .output_queue import Feed
from .python import PythonRunner
from .request import Limits, RunRequest, Settings
from .runner import Runner
from .shell import ShellRunner

__all__ = ["Computer"]

OUTPUT = 10_000_000  # characters of one run
PROCESSES = 1000  # that one language's process may have below it

_BUILT_IN: dict[str, tuple[Callable[[Settings], Runner], tuple[str, ...]]] = {
    "python": (PythonRunner, ("py", "python3", "ipython")),
    "shell": (ShellRunner, ("bash", "sh", "terminal", "console")),
    "javascript": (JavaScriptRunner, ("js", "node", "nodejs")),
}
_SAME: Any = object()

_living: weakref.WeakSet[Computer] = weakref.WeakSet()


class Computer:
    """Runs python, shell and javascript; others register. All of it is thread-safe.

    Each language has one process, which lives from its first run (or `start`) until `close`, so that its state lives on.
    It runs one piece of code at a time. Nothing is confined: code can do what the user can who runs this.

        with Computer() as computer:
            for event in computer.run("python", "print(1)"): ...
            sk.stream(computer.run("shell", "ls"), Terminal()).until_done()

    Args:
        cwd: where code runs; the current directory otherwise.
        env: the environment, in place of this process's own.
        timeout: seconds that a run may take; None for any time.
        memory_limit: bytes that a language's processes may hold together. It is looked at a few times a second.
        output_limit: characters that a run may print or display; then it is stopped, and what was told stays told. None:
            no limit.
        process_limit: processes that a language may have.
        input: answers `input(prompt)` of Python code, in a thread of its own; None as its answer, or in its place,
            refuses: `EOFError`. The shell's and node's stdin is empty.
    """

    def __init__(
        self,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        memory_limit: int | None = None,
        output_limit: int | None = OUTPUT,
        process_limit: int | None = PROCESSES,
        input: Callable[[str], str | None] | None = None,
    ) -> None:
        self._settings = Settings(None if cwd is None else os.fspath(cwd), env)
        self._limits = Limits(timeout, memory_limit, output_limit, process_limit)
        self._input = input
        self._lock = threading.RLock()
        self._makers: dict[str, Callable[[Settings], Runner]] = {}
        self._aliases: dict[str, str] = {}
        self._runners: dict[str, Runner] = {}
        self._running: dict[str, Execution] = {}
        self._count = 0
        self._closed = False
        self._owner = os.getpid()
        for name, (make, aliases) in _BUILT_IN.items():
            self.register(name, make, aliases=aliases)
        _living.add(self)

    # -- languages

    @property
    def languages(self) -> tuple[str, ...]:
        """The names of what it can run, without their aliases."""
        with self._lock:
            return tuple(self._makers)

    @property
    def aliases(self) -> dict[str, str]:
        """Other names that languages are known by, and which language each means."""
        with self._lock:
            return {alias: name for alias, name in self._aliases.items() if alias != name}

    def register(self, name: str, make_runner: Callable[[Settings], Runner], *, aliases: Iterable[str] = ()) -> None:
        """Let it run another language, or the same one otherwise. `make_runner` is called when it is first wanted.

        Raises:
            UsageError: the language has been used already.
        """
        name = name.strip().lower()
        with self._lock:
            if name in self._runners:
                raise UsageError(f"{name!r} runs already, and cannot be registered anew")
            self._makers[name] = make_runner
            for alias in (name, *aliases):
                self._aliases[alias.strip().lower()] = name

    def language_of(self, name: str) -> str | None:
        """The language that a name or an alias means, None if it is not supported."""
        with self._lock:
            return self._aliases.get(name.strip().lower())

    def _runner(self, language: str) -> Runner:
        with self._lock:
            if self._closed:
                raise UsageError("the computer is closed")
            if language not in self._runners:
                self._runners[language] = self._makers[language](self._settings)
            return self._runners[language]

    def start(self, language: str = "python") -> None:
        """Make a language ready in the background, as while a model still writes the code. Returns at once.

        Raises:
            UsageError: the language is not supported, or the computer is closed.
        """
        known = self.language_of(language)
        if known is None:
            raise UsageError(self._unknown(language))
        self._runner(known).start()

    # -- runs

    def run(
        self,
        language: str,
        code: str,
        *,
        id: str | None = None,
        call_id: str | None = None,
        timeout: float | None = _SAME,
        input: Callable[[str], str | None] | None = _SAME,
    ) -> Execution:
        """A run, which begins when it is first read. What is wrong with the language or the code is told in its console.

        Args:
            id: of its first message; unique in the stream that it becomes a part of.
            call_id: of the call whose code this is.
            timeout, input: in place of the computer's own.

        Raises:
            UsageError: a run of this language is going on, or the computer is closed.
        """
        known = self.language_of(language)
        with self._lock:
            self._count += 1
            id = id or f"execution-{self._count}"
        feed = Feed(lambda: runner.wake() if runner is not None else None)
        limits = self._limits if timeout is _SAME else replace(self._limits, timeout=timeout)
        request = RunRequest(code, feed, limits, self._input if input is _SAME else input)
        runner = None
        if known is None:
            request.outcome.cause = self._unknown(language)
        else:
            runner = self._runner(known)
            self._refuse_second(known)
            request.outcome.cause = _fault_of(code) or runner.refuse(code) or ""
        return Execution(known or language, request, id, call_id, runner, claim=self._claim, free=self._free)

    def _unknown(self, language: str) -> str:
        return f"`{language}` is not supported; this computer runs: {', '.join(self.languages)}"

    def _refuse_second(self, language: str) -> None:
        if (other := self._running.get(language)) is not None:
            raise UsageError(f"{other!r} is going on; a language runs one piece of code at a time")

    def _claim(self, execution: Execution) -> None:
        with self._lock:
            if self._closed:
                raise UsageError("the computer is closed")
            if execution.language in self._makers:
                self._refuse_second(execution.language)
                self._running[execution.language] = execution

    def _free(self, execution: Execution) -> None:
        with self._lock:
            if self._running.get(execution.language) is execution:
                del self._running[execution.language]

    # -- its end

    def close(self) -> None:
        """Stop what runs and end every process. Returns when that is done; a second time does nothing."""
        with self._lock:
            self._closed = True
            running, runners = [*self._running.values()], [*self._runners.values()]
        for runner in runners:
            runner.hurry()
        for execution in running:
            execution.close()
        for runner in runners:
            runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.close)


def _fault_of(code: str) -> str | None:
    """What no language can take."""
    try:
        code.encode("utf-8")
    except UnicodeEncodeError as error:
        line = code.count("\n", 0, error.start) + 1
        return f"SyntaxError: the code has half a surrogate pair, {code[error.start]!r}, in line {line}"
    return None


@atexit.register
def _close_all() -> None:
    for computer in [*_living]:
        if computer._owner == os.getpid():  # pyright: ignore[reportPrivateUsage]  # a fork has no part in it
            computer.close()
