"""A computer that runs code: a table of languages, each with a process of its own that keeps its state."""

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
from .output_queue import OutputQueue
from .python import PythonRunner
from .request import Limits, RunRequest, Settings
from .runner import Runner
from .shell import ShellRunner

__all__ = ["Computer"]

OUTPUT_LIMIT = 10_000_000  # characters of one run
PROCESS_LIMIT = 1000  # processes of one language

_BUILT_IN: dict[str, tuple[Callable[[Settings], Runner], tuple[str, ...]]] = {
    "python": (PythonRunner, ("py", "python3", "ipython")),
    "shell": (ShellRunner, ("bash", "sh", "terminal", "console")),
    "javascript": (JavaScriptRunner, ("js", "node", "nodejs")),
}

# Each with the id of the process that made it: a fork inherits the object, but must not end its processes.
_open_computers: weakref.WeakKeyDictionary[Computer, int] = weakref.WeakKeyDictionary()


class _ComputerDefault:
    """Stands for an argument that was left out; its text is what `help` shows."""

    def __repr__(self) -> str:
        return "<the computer's own>"


_DEFAULT: Any = _ComputerDefault()


class Computer:
    """Runs Python, shell and JavaScript code; other languages can be registered. Thread-safe.

    Each language has one process that lives from its first run (or `start`) until `close`, so variables, imports and
    the working directory live on from run to run. A language runs one piece of code at a time; different languages
    run side by side. Nothing is sandboxed: code can do whatever the user of this program can.

        with Computer(timeout=60) as computer:
            for event in computer.run("python", "print(1)"): ...
            sk.stream(computer.run("shell", "ls"), Terminal()).until_done()

    A run that passes a limit is interrupted, and killed if that does not stop it within a second; the console then
    says what happened. Going over the memory or the process limit kills it at once.

    Args:
        cwd: the directory in which code runs; None, the default, is the current one.
        env: the complete environment of the processes; None, the default, is a copy of this process's own. Without
            `PATH` in it neither `bash` nor `node` is found.
        timeout: seconds that a run may take; None, the default, is no limit.
        memory_limit: bytes of resident memory that all processes of a language may hold together; None, the default,
            is no limit. It is checked up to four times a second, so code can pass it for a moment.
        output_limit: characters that a run may print or display, 10,000,000 by default; None is no limit. What came
            before the limit is delivered.
        process_limit: processes that a language may have, 1000 by default; None is no limit.
        input: answers `input(prompt)` of Python code; called with the prompt in a thread of its own, while the run
            waits. If it returns None, or without a callback, the default, the code gets `EOFError`. What the callback
            raises is raised where the run is read. Shell and JavaScript code always has an empty stdin.
    """

    def __init__(
        self,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        memory_limit: int | None = None,
        output_limit: int | None = OUTPUT_LIMIT,
        process_limit: int | None = PROCESS_LIMIT,
        input: Callable[[str], str | None] | None = None,
    ) -> None:
        self._settings = Settings(None if cwd is None else os.fspath(cwd), env)
        self._limits = Limits(timeout, memory_limit, output_limit, process_limit)
        self._input = input
        self._lock = threading.RLock()
        self._runner_factories: dict[str, Callable[[Settings], Runner]] = {}
        self._names: dict[str, str] = {}  # the language that a name or an alias means
        self._runners: dict[str, Runner] = {}
        self._running: dict[str, Execution] = {}
        self._count = 0
        self._closed = False
        for name, (factory, aliases) in _BUILT_IN.items():
            self.register(name, factory, aliases=aliases)
        _open_computers[self] = os.getpid()

    # -- languages

    @property
    def languages(self) -> tuple[str, ...]:
        """The names of the languages that it can run, without aliases, in the order of their registration."""
        with self._lock:
            return tuple(self._runner_factories)

    @property
    def aliases(self) -> dict[str, str]:
        """The aliases, each with the language that it means: `{"py": "python", "bash": "shell", …}`."""
        with self._lock:
            return {alias: name for alias, name in self._names.items() if alias != name}

    def register(self, name: str, make_runner: Callable[[Settings], Runner], *, aliases: Iterable[str] = ()) -> None:
        """Add a language, or replace one that has not been used yet.

        Args:
            name: the language's name, in any case.
            make_runner: a `Runner` class, or a function that makes one; called once, when the language is first used.
            aliases: other names for the language, in any case.

        Raises:
            UsageError: the language has been used already.
        """
        name = name.strip().lower()
        with self._lock:
            if name in self._runners:
                raise UsageError(f"the language {name!r} is in use and cannot be registered again")
            self._runner_factories[name] = make_runner
            for alias in (name, *aliases):
                self._names[alias.strip().lower()] = name

    def language_of(self, name: str) -> str | None:
        """The language that a name or an alias means, in any case; None if it is not supported."""
        with self._lock:
            return self._names.get(name.strip().lower())

    def _runner(self, language: str) -> Runner:
        with self._lock:
            if self._closed:
                raise UsageError("the computer is closed")
            if language not in self._runners:
                self._runners[language] = self._runner_factories[language](self._settings)
            return self._runners[language]

    def start(self, language: str = "python") -> None:
        """Start a language's process in the background, for example while a model is asked or still writes the code.

        It returns at once, and does nothing if the process lives. If it cannot be started, the next run fails and
        explains why. A first Python process takes a second or so, which then is over before the code is there.

        Args:
            language: a name or an alias, `python` by default.

        Raises:
            UsageError: the language is not supported, or the computer is closed.
        """
        name = self.language_of(language)
        if name is None:
            raise UsageError(self._not_supported(language))
        self._runner(name).start()

    # -- runs

    def run(
        self,
        language: str,
        code: str,
        *,
        id: str | None = None,
        call_id: str | None = None,
        timeout: float | None = _DEFAULT,
        input: Callable[[str], str | None] | None = _DEFAULT,
    ) -> Execution:
        """A run of some code. It begins when it is first read, not now.

        An unsupported language, or code that cannot be run at all, raises no error here: the run fails, and its console
        explains why, so that a model can read it.

        Args:
            language: a name or an alias.
            code: the source code, of any length.
            id: the id of the run's first message, which must be unique in the stream that the run becomes part of;
                `execution-1`, `execution-2` … by default.
            call_id: the id of the tool call that the code came from, copied to all messages of the run.
            timeout: seconds that this run may take; None is no limit. By default the computer's own limit.
            input: the callback for this run; None refuses every `input()` of the code. By default the computer's own.

        Raises:
            UsageError: another run of this language has not ended, or the computer is closed.
        """
        name = self.language_of(language)
        with self._lock:
            self._count += 1
            id = id or f"execution-{self._count}"
        runner = None if name is None else self._runner(name)
        output = OutputQueue(lambda: None if runner is None else runner.wake())
        limits = self._limits if timeout is _DEFAULT else replace(self._limits, timeout=timeout)
        request = RunRequest(code, output, limits, self._input if input is _DEFAULT else input)
        if name is None or runner is None:
            request.result.start_error = self._not_supported(language)
        else:
            self._require_idle(name)
            request.result.start_error = _encoding_error(code) or runner.refuse(code) or ""
        return Execution(name or language, request, id, call_id, runner, claim=self._claim, free=self._free)

    def _not_supported(self, language: str) -> str:
        return f"`{language}` is not supported; this computer runs: {', '.join(self.languages)}"

    def _require_idle(self, language: str) -> None:
        if (other := self._running.get(language)) is not None:
            raise UsageError(f"{other!r} is still running; a language runs one piece of code at a time")

    def _claim(self, execution: Execution) -> None:
        """Reserve the language for a run that begins."""
        with self._lock:
            if self._closed:
                raise UsageError("the computer is closed")
            if execution.language in self._runner_factories:
                self._require_idle(execution.language)
                self._running[execution.language] = execution

    def _free(self, execution: Execution) -> None:
        with self._lock:
            if self._running.get(execution.language) is execution:
                del self._running[execution.language]

    # -- closing

    def close(self) -> None:
        """Stop all runs and end every process, also those that finished runs left behind. Returns when they have ended.

        A second call does nothing. `with` and the end of the program call it too.
        """
        with self._lock:
            self._closed = True
            running, runners = [*self._running.values()], [*self._runners.values()]
        for runner in runners:
            runner.prepare_close()
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


def _encoding_error(code: str) -> str | None:
    """Why the code cannot be written as UTF-8, which every language needs; None if it can."""
    try:
        code.encode("utf-8")
    except UnicodeEncodeError as error:
        line = code.count("\n", 0, error.start) + 1
        return f"SyntaxError: the code has half a surrogate pair, {code[error.start]!r}, in line {line}"
    return None


@atexit.register
def _close_all() -> None:
    for computer, process in [*_open_computers.items()]:
        if process == os.getpid():
            computer.close()
