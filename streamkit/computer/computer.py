"""A computer that runs code: a table of languages, each with a process of its own that keeps its state."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread

from ..arguments import check_callable, check_count, check_kind, check_seconds
from ..errors import UsageError
from .background_run import BackgroundRun, RunningRuns
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

_open_computers: weakref.WeakSet[Computer] = weakref.WeakSet()


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

    Leaving `with` ends all processes, as `close` does. So does dropping the last reference to the computer and its runs,
    soon after.

    A run that passes a limit is interrupted, and killed if that does not stop it within a second; the console then
    says what happened. Going over the memory or the process limit kills it at once.

    Args:
        cwd: the directory in which code runs; None, the default, is the current one.
        env: the complete environment of the processes; None, the default, is this process's own without what looks
            like a secret, such as `OPENAI_API_KEY`: `default_environment()` says by which rule. `os.environ` hands on
            everything. Without `PATH` in it neither `bash` nor `node` is found.
        timeout: seconds that a run may take; None, the default, means no limit.
        memory_limit: bytes of resident memory that all processes of a language may hold together; None, the default,
            means no limit. It is checked up to twenty times a second, so code can pass it for a moment.
        output_limit: characters that a run may print or display, 10,000,000 by default; None means no limit. What came
            before the limit is delivered.
        process_limit: processes that a language may have, 1000 by default; None means no limit. It is checked as the memory
            limit is, also between two runs, as is the memory limit.
        input: answers `input(prompt)` of Python code; called with the prompt in a thread of its own, while the run
            waits. If it returns None, or without a callback, the default, the code gets `EOFError`. What the callback
            raises is raised where the run is read. Shell and JavaScript code always has an empty stdin.

    Raises:
        UsageError: an argument is of another kind.
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
        _check_run_arguments(timeout, input)
        check_count("memory_limit", memory_limit, or_none=True)
        check_count("output_limit", output_limit, least=0, or_none=True)
        check_count("process_limit", process_limit, or_none=True)
        check_kind("env", env, Mapping)
        self._settings = Settings(None if cwd is None else os.fspath(cwd), env)
        self._limits = Limits(timeout, memory_limit, output_limit, process_limit)
        self._input = input
        self._lock = threading.RLock()
        self._running = RunningRuns()
        self._runner_factories: dict[str, Callable[[Settings], Runner]] = {}
        self._names: dict[str, str] = {}  # the language that a name or an alias means
        self._runners: dict[str, Runner] = {}
        self._count = 0
        for name, (factory, aliases) in _BUILT_IN.items():
            self.register(name, factory, aliases=aliases)
        _open_computers.add(self)
        weakref.finalize(self, _end_lost, self._running, self._runners).atexit = False

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
            UsageError: the language has been used already, or an argument is of another kind.
        """
        _check_text("name", name)
        check_callable("make_runner", make_runner)
        name = name.strip().lower()
        with self._lock:
            if name in self._runners:
                raise UsageError(f"the language {name!r} is in use and cannot be registered again")
            self._runner_factories[name] = make_runner
            for alias in (name, *aliases):
                self._names[alias.strip().lower()] = name

    def language_of(self, name: str) -> str | None:
        """Return the language that a name or an alias means, in any case; None if it is not supported."""
        with self._lock:
            return self._names.get(name.strip().lower())

    def _runner(self, language: str) -> Runner:
        with self._lock:
            self._running.check_open()
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
        """Return a run of some code. It begins when it is first read, not now.

        An unsupported language, or code that cannot be run at all, raises no error here: the run fails, and its console
        explains why, so that a model can read it.

        Args:
            language: a name or an alias.
            code: the source code, of any length.
            id: the id of the run's first message, which must be unique in the stream that the run becomes part of;
                `execution-1`, `execution-2` … by default.
            call_id: the id of the tool call that the code came from, copied to all messages of the run.
            timeout: seconds that this run may take; None means no limit. By default the computer's own limit.
            input: the callback for this run; None refuses every `input()` of the code. By default the computer's own.

        Raises:
            UsageError: another run of this language has not ended, the computer is closed, or an argument is of another
                kind.
        """
        _check_text("language", language)
        _check_text("code", code)
        _check_run_arguments(None if timeout is _DEFAULT else timeout, None if input is _DEFAULT else input)
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
            self._running.check_idle(name)
            request.result.start_error = _encoding_error(code) or runner.refuse(code) or ""
        return Execution(BackgroundRun(id, name or language, request, runner, self._running), call_id, self)

    def _not_supported(self, language: str) -> str:
        languages = ", ".join(self.languages)
        return (
            f"`{language}` is not supported; this computer runs: {languages}; others are added with `computer.register`"
        )

    # -- closing

    def close(self) -> None:
        """Stop all runs and end every process, also those that finished runs left behind. Returns when they have ended.

        The reader of such a run gets the rest of its output, and how it ended. A second call does nothing. `with` and the end
        of the program call it too. A computer that nothing refers to any more is closed as well, by a thread of its own. In a
        fork of the program it does nothing.
        """
        if self._running.in_fork:
            return
        running = self._running.close()
        with self._lock:
            runners = [*self._runners.values()]
        for runner in runners:
            runner.prepare_close()
        for run in running:
            run.close(abandon=False)
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


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise UsageError(f"`{name}` is a `str`, not {value!r}")


def _check_run_arguments(timeout: object, input: object) -> None:
    check_seconds("timeout", timeout, or_none=True)
    check_callable("input", input)


def _encoding_error(code: str) -> str | None:
    """Why the code cannot be written as UTF-8, which every language needs; None if it can."""
    try:
        code.encode("utf-8")
    except UnicodeEncodeError as error:
        line = code.count("\n", 0, error.start) + 1
        return f"SyntaxError: the code has half a surrogate pair, {code[error.start]!r}, in line {line}"
    return None


def _end_lost(running: RunningRuns, runners: dict[str, Runner]) -> None:
    """End the processes of a computer that is garbage."""
    if runners and not running.in_fork:
        for runner in runners.values():
            runner.prepare_close()
        with contextlib.suppress(RuntimeError):  # the program is at its end, which `_close_all` was called for
            # Not a `threading.Thread`: to start one takes a lock, which the collecting thread may hold.
            _thread.start_new_thread(_close_runners, ([*runners.values()],))


def _close_runners(runners: Iterable[Runner]) -> None:
    for runner in runners:
        runner.close()


@atexit.register
def _close_all() -> None:
    for computer in [*_open_computers]:
        computer.close()
    _close_runners(Runner.with_processes())
