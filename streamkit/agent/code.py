"""The code that a model runs: the tool for it, which code of a call may run, and one run of it on the computer.

Code runs only if the call is complete, its JSON can be read in one way alone, and the code is exactly what the stream's
`CodeMessage` showed."""

from __future__ import annotations

import contextvars
import inspect
import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple, cast

from ..core.engine import Engine
from ..errors import UsageError
from ..events import ConsoleCreated, ConsoleDelta, ConsoleDone, Event
from ..messages import CodeMessage, ConsoleMessage, Message, ToolCallMessage
from .calls import call_id_of
from .computer_protocol import Computing, Running

__all__ = [
    "CODE_TOOL",
    "FIELDS",
    "INTERRUPT_PERIOD",
    "CodeRun",
    "ProposedCode",
    "RejectedCode",
    "check_auto_run",
    "code_arguments",
    "code_schema",
    "console_of",
    "read_code",
    "runs_without_confirmation",
    "unsupported_language",
]


CODE_TOOL = "execute"
FIELDS = {f"{CODE_TOOL}.code": "code"}
"""`fields=` of an agent's streams: the code argument becomes a `CodeMessage`."""

_SYNONYMS = {"language": "format", "code": "content"}  # the keys of a flat message, which some models use


class ProposedCode(NamedTuple):
    """Code that may run once it is approved. `message` is the one that showed it; `language` is in lower case."""

    language: str
    source: str
    message: CodeMessage


class RejectedCode(NamedTuple):
    """Why the code of a call cannot run, as the model reads it."""

    reason: str


def code_schema(languages: Collection[str]) -> dict[str, Any]:
    """Return the schema of the tool that runs code in these languages."""
    return {
        "name": CODE_TOOL,
        "description": (
            "Run code on the user's computer. Variables, imports and files persist from one run to the next. "
            "Returns what the code printed; images that it displays are shown."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "language": {"type": "string", "enum": list(languages), "description": "the language of the code"},
                "code": {"type": "string", "description": "the complete code"},
            },
            "required": ["language", "code"],
            "additionalProperties": False,
        },
    }


def code_arguments(language: str, source: str) -> str:
    """Return the JSON arguments of a call that runs this code."""
    return json.dumps({"language": language, "code": source}, ensure_ascii=False)


def read_code(call: ToolCallMessage, code_messages: Iterable[CodeMessage]) -> ProposedCode | RejectedCode:
    """Return the code that a call asks to run, or why it cannot run.

    Args:
        call: a call of `CODE_TOOL`.
        code_messages: those of the call's step.
    """
    try:
        language, source = _language_and_source(call)
    except _Rejection as rejection:
        return RejectedCode(str(rejection))
    for message in code_messages:
        shown = message.call_id == call_id_of(call) and message.status == "completed"
        if shown and (message.format, message.content) == (language, source):
            return ProposedCode(language.strip().lower(), source, message)
    return RejectedCode("the code that was shown to the user is not the code of the call, or not in its language")


class _Rejection(Exception):
    """The reason why a call's arguments cannot be read."""


def _language_and_source(call: ToolCallMessage) -> tuple[str, str]:
    if call.status != "completed":
        raise _Rejection("the call was cut short")
    arguments = _arguments(call.content or "{}")
    for key, synonym in _SYNONYMS.items():
        if synonym in arguments and arguments.get(key) != arguments[synonym]:
            raise _Rejection(f"its arguments have different values for {key!r} and {synonym!r}")
    language, source = arguments.get("language"), arguments.get("code")
    if not isinstance(language, str) or not language.strip():
        raise _Rejection("its arguments name no language")
    if not isinstance(source, str):
        raise _Rejection("its arguments contain no code")
    if not source.strip():
        raise _Rejection("its code is empty")
    return language, source


def _arguments(text: str) -> Mapping[str, Any]:
    try:
        arguments = json.loads(text, object_pairs_hook=_unambiguous_object, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise _Rejection(f"its arguments are not valid JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise _Rejection("its arguments are not a JSON object")
    return cast("dict[str, Any]", arguments)  # `_unambiguous_object` made it


def _reject_constant(constant: str) -> object:
    """Python's parser accepts `NaN` and `Infinity`, which are not JSON."""
    raise ValueError(f"{constant} is not allowed")


def _unambiguous_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. One that repeats a key with another value is rejected, because parsers disagree on what it
    means."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values and values[key] != value:
            raise _Rejection(f"its arguments contain {key!r} twice, with different values")
        values[key] = value
    return values


# -- the rule that says which code runs without a confirmation


def check_auto_run(auto_run: Any) -> bool | Callable[[CodeMessage], bool]:
    """Return the value of `auto_run=`, checked.

    Raises:
        UsageError: it is neither a bool nor a plain function.
    """
    if isinstance(auto_run, bool) or (callable(auto_run) and not inspect.iscoroutinefunction(auto_run)):
        return cast("bool | Callable[[CodeMessage], bool]", auto_run)  # a function's types cannot be checked
    raise UsageError(f"`auto_run` is True, False or a plain function of the code message, not {auto_run!r}")


def runs_without_confirmation(auto_run: Any, code: CodeMessage) -> bool:
    """Whether `auto_run` lets this code run.

    Raises:
        UsageError: `auto_run` is not a rule, or the function raised, or did not return a bool.
    """
    rule = check_auto_run(auto_run)
    if isinstance(rule, bool):
        return rule
    try:
        allowed = cast("object", rule(code))  # checked here, for callers without a type checker
    except Exception as error:
        raise UsageError(f"`auto_run` raised {type(error).__name__}: {error}") from error
    if not isinstance(allowed, bool):
        raise UsageError(f"`auto_run` returns True or False, not {allowed!r}: write `bool(...)` around it")
    return allowed


_MOST_UNREAD = 1000  # events that wait to be read before the run has to wait
# Seconds after which a thread that waits looks for Ctrl-C: a signal that comes just before the wait does not end it.
INTERRUPT_PERIOD = 0.25
_GRACE = 5.0  # seconds that an interrupted run has to end by itself

# The languages of computers that run an agent's code now. Another agent on the same computer waits for its turn.
_turns = threading.Condition()
_busy: set[tuple[int, str]] = set()


def console_of(call: ToolCallMessage, errors: str | None = None) -> ConsoleMessage:
    """Return the console of a call's code, with its output on stderr alone; empty without that."""
    metadata = {"stderr": [[0, len(errors)]]} if errors else {}
    return ConsoleMessage(f"{call.id}.console", call_id=call_id_of(call), content=errors, metadata=metadata)


def unsupported_language(call: ToolCallMessage, language: str, computer: Computing) -> list[Event]:
    """Return the console that says that the computer does not run this language, as events."""
    text = f"{language} is not supported here; this computer runs: {', '.join(computer.languages)}"
    text += "; the application adds others with `computer.register`\n" if hasattr(computer, "register") else "\n"
    console = console_of(call)
    return [
        ConsoleCreated(console),
        ConsoleDelta(console.id, text, metadata={"stream": "stderr"}),
        ConsoleDone(console_of(call, text)),
    ]


class CodeRun:
    """A run of code, which a thread of its own reads from the computer. Events that nobody reads any more are not lost: the
    messages of the run are complete whenever it has ended, and however.

    Args:
        computer: runs the code.
        code: the code.
        call: the call that asked for it.
        before: called in its thread before it begins; `read` raises its error.
        around: returns a context in which it runs, in its thread.

    Attributes:
        began: whether the computer began the run.
        finished: whether the run came to its own end.
    """

    def __init__(
        self,
        computer: Computing,
        code: ProposedCode,
        call: ToolCallMessage,
        before: Callable[[], None] | None = None,
        around: Callable[[ToolCallMessage], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._computer = computer
        self._before = before
        self._code = code
        self._call_id = call_id_of(call)
        self._around = partial(around, call)
        self.began = False
        self.finished = False
        self._running: Running | None = None
        self._engine = Engine()  # makes the run's messages, apart from the stream's
        self._unread: list[Event] = []
        self._changed = threading.Condition()  # guards the attributes below, and `_unread`
        self._closing = False
        self._ended = False
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    # -- for the source that reads it

    def read(self) -> list[Event]:
        """Wait for events, and return all that are there; none at the end. Begins the run.

        Raises:
            Exception: the computer's.
        """
        with self._changed:
            if self._thread is None and not self._closing:
                work = contextvars.copy_context().run
                self._thread = threading.Thread(target=work, args=(self._work,), name="streamkit-code", daemon=True)
                self._thread.start()
            while not self._changed.wait_for(lambda: self._unread or self._ended or self._closing, INTERRUPT_PERIOD):
                pass
            if self._closing:
                return []
            events, self._unread = self._unread, []
            self._changed.notify_all()
            if not events and self._error is not None:
                raise self._error
            return events

    def interrupt(self) -> None:
        """Make the run end soon. May be called from any thread; returns at once."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        with _turns:
            _turns.notify_all()
        if self._running is not None:
            self._running.interrupt()

    def close(self) -> None:
        """End the run, by force if need be, and return when it has ended and all of its output is in `messages`."""
        if not self._ended:
            self.interrupt()
        if self._thread is not None:
            self._thread.join(_GRACE)
        if self._running is not None:
            self._running.close()
        if self._thread is not None:
            self._thread.join()
        if self._closing and (repeat_loss := getattr(self._running, "repeat_loss", None)) is not None:
            repeat_loss()  # no handler gets the events that came while it was closed

    # -- for the turn, once it is closed

    def messages(self) -> list[Message]:
        """Return the messages of the run, as far as it came."""
        for _ in self._engine.end("completed" if self.finished else "cancelled"):
            pass
        return self._engine.messages.all

    # -- in the run's own thread

    def _work(self) -> None:
        language_of: Any = getattr(self._computer, "language_of", str)  # of a computer with aliases
        process = (id(self._computer), str(language_of(self._code.language)))
        if self._waits_for(process):
            try:
                with self._around():
                    self._run()
            except BaseException as error:
                self._error = error
            finally:
                with _turns:
                    _busy.discard(process)
                    _turns.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _waits_for(self, process: tuple[int, str]) -> bool:
        """Wait until no other agent runs code there. False: the run was closed first."""
        with _turns:
            _turns.wait_for(lambda: self._closing or process not in _busy)
            if self._closing:
                return False
            _busy.add(process)
            return True

    def _run(self) -> None:
        if self._before is not None:
            self._before()
        running = self._computer.run(self._code.language, self._code.source, call_id=self._call_id)
        with self._changed:
            if self._closing:
                return
            self._running, self.began = running, True
        for event in running:
            for _ in self._engine.complete_event(event):
                pass
            with self._changed:
                self._unread.append(event)
                self._changed.notify_all()
                self._changed.wait_for(lambda: len(self._unread) < _MOST_UNREAD or self._closing)
        with self._changed:
            self.finished = not self._closing
