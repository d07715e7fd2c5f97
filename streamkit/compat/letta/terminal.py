"""MemGPT's terminal: every message is printed as a line of its own, to the current `sys.stdout`.

Colours are used on terminals only, and `NO_COLOR` switches them off. Control characters in a model's text are shown,
not sent to the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from ...renderers.characters import printable
from ...renderers.writer import TerminalWriter
from .interfaces import AgentInterface
from .memgpt_format import FormattedLine, function_lines, kind_lines, message_lines, simple_lines, user_lines
from .normalise import as_dict

__all__ = ["CLIInterface", "TerminalLines"]


_P = ParamSpec("_P")
_F = TypeVar("_F", bound=Callable[..., None])


def put(lines: Iterable[FormattedLine]) -> None:
    """Print lines. It raises as `print` does if the output is closed."""
    writer = TerminalWriter(None)
    for line in lines:
        writer.write(line.text, line.colour)
        writer.write("\n")
    writer.flush()


def _numbered(lines: Iterable[FormattedLine], number: int) -> Iterator[FormattedLine]:
    """Yield the lines, the first one with the number of its message; without numbers for 0."""
    for line in lines:
        yield FormattedLine(f"[{number}] {line.text}" if number else line.text, line.colour)
        number = 0


class CLIInterface:
    """MemGPT's terminal without streaming: each method prints a message as one line, or as a few.

    It has no state, so the methods can also be called on the class itself.
    """

    @staticmethod
    def important_message(msg: str) -> None:
        """Print an important notice."""
        put(kind_lines("important", msg))

    @staticmethod
    def warning_message(msg: str) -> None:
        """Print a warning."""
        put(kind_lines("warning", msg))

    @staticmethod
    def internal_monologue(msg: str, msg_obj: object | None = None) -> None:
        """Print a thought of the agent: `💭 …`."""
        put(kind_lines("internal_monologue", msg))

    @staticmethod
    def assistant_message(msg: str, msg_obj: object | None = None) -> None:
        """Print a message to the user: `🤖 …`."""
        put(kind_lines("assistant", msg))

    @staticmethod
    def memory_message(msg: str, msg_obj: object | None = None) -> None:
        """Print a change of the memory: `🧠 …`."""
        put(kind_lines("memory", msg))

    @staticmethod
    def system_message(msg: str, msg_obj: object | None = None) -> None:
        """Print a system message: `🖥️ [system] …`."""
        put(kind_lines("system", msg))

    @staticmethod
    def user_message(
        msg: object, msg_obj: object | None = None, raw: bool = False, dump: bool = False, debug: bool = False
    ) -> None:
        """Print a user message, `🧑 …`, or a heartbeat, `💓 …`. Prints nothing without one of the options.

        Args:
            msg: Text, MemGPT's JSON with a `type`, or such an object.
            msg_obj: Not used.
            raw: Print text of any kind.
            dump: Print the message in MemGPT's JSON, and heartbeats.
            debug: Print all fields of MemGPT's JSON, and heartbeats.
        """
        put(user_lines(msg, raw=raw, dump=dump, debug=debug))

    @staticmethod
    def function_message(msg: object, msg_obj: object | None = None, debug: bool = False) -> None:
        """Print a function message: `⚡🟢 [function] …`, with `⚡🔴` for an error and `⚡🧠` for the memory.

        Args:
            msg: `Running name(arguments)`, `Ran …`, `Success: …`, `Error: …`, or JSON with a `status`.
            msg_obj: Not used.
            debug: Print all of them. By default only calls of MemGPT's memory functions are printed.
        """
        put(function_lines(msg, debug=debug))

    @staticmethod
    def print_messages(message_sequence: Iterable[object], dump: bool = False) -> None:
        """Print the messages of a conversation; with `dump`, all of them in full, numbered down to 1."""
        messages = list(message_sequence)
        for index, message in enumerate(messages):
            put(_numbered(message_lines(message, dump=dump), len(messages) - index if dump else 0))

    @staticmethod
    def print_messages_simple(message_sequence: Iterable[object]) -> None:
        """Print the messages of a conversation as a talk, without function results."""
        for message in message_sequence:
            put(simple_lines(message))

    @staticmethod
    def print_messages_raw(message_sequence: Iterable[object]) -> None:
        """Print the messages of a conversation as dicts."""
        put(FormattedLine(printable(str(as_dict(message)))) for message in message_sequence)

    @staticmethod
    def step_yield() -> None:
        """The agent waits for the user. Prints nothing."""

    @staticmethod
    def step_complete() -> None:
        """A step of the agent ended. Prints nothing."""


AgentInterface.register(CLIInterface)  # not a subclass: static methods cannot override methods of an instance


class _LineMethod(Generic[_P]):
    """A method that can be called on the class, too. There it is `CLIInterface`'s: nothing is being streamed."""

    def __init__(self, method: Callable[Concatenate[Any, _P], None]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, instance: object, owner: type[TerminalLines]) -> Callable[_P, None]:
        if instance is not None:
            return MethodType(self._method, instance)
        function: Callable[_P, None] = getattr(owner.nonstreaming_interface, self._method.__name__)
        return function


def _line_method(method: _F) -> _F:
    """Return a `_LineMethod` that the type checkers take for a method of an instance, as the one that it overrides."""
    return cast("_F", _LineMethod(method))  # the checkers refuse a descriptor in the place of a method


class TerminalLines(AgentInterface):
    """The methods that a streaming terminal shares with `CLIInterface`. What is being streamed is ended first. They can be
    called on the class itself, as in MemGPT."""

    nonstreaming_interface = CLIInterface

    def _start_line(self) -> None:
        """End what is being streamed, so that the next text begins a line."""
        raise NotImplementedError

    @_LineMethod
    def important_message(self, msg: str) -> None:
        """As `CLIInterface.important_message`."""
        self._start_line()
        self.nonstreaming_interface.important_message(msg)

    @_LineMethod
    def warning_message(self, msg: str) -> None:
        """As `CLIInterface.warning_message`."""
        self._start_line()
        self.nonstreaming_interface.warning_message(msg)

    @_line_method
    def internal_monologue(self, msg: str, msg_obj: object | None = None) -> None:
        """As `CLIInterface.internal_monologue`."""
        self._start_line()
        self.nonstreaming_interface.internal_monologue(msg, msg_obj)

    @_line_method
    def assistant_message(self, msg: str, msg_obj: object | None = None) -> None:
        """As `CLIInterface.assistant_message`."""
        self._start_line()
        self.nonstreaming_interface.assistant_message(msg, msg_obj)

    @_LineMethod
    def memory_message(self, msg: str, msg_obj: object | None = None) -> None:
        """As `CLIInterface.memory_message`."""
        self._start_line()
        self.nonstreaming_interface.memory_message(msg, msg_obj)

    @_LineMethod
    def system_message(self, msg: str, msg_obj: object | None = None) -> None:
        """As `CLIInterface.system_message`."""
        self._start_line()
        self.nonstreaming_interface.system_message(msg, msg_obj)

    @_line_method
    def user_message(
        self, msg: object, msg_obj: object | None = None, raw: bool = False, dump: bool = False, debug: bool = False
    ) -> None:
        """As `CLIInterface.user_message`."""
        self._start_line()
        self.nonstreaming_interface.user_message(msg, msg_obj, raw, dump, debug)

    @_line_method
    def function_message(self, msg: object, msg_obj: object | None = None, debug: bool = False) -> None:
        """As `CLIInterface.function_message`."""
        self._start_line()
        self.nonstreaming_interface.function_message(msg, msg_obj, debug)

    @_LineMethod
    def print_messages(self, message_sequence: Iterable[object], dump: bool = False) -> None:
        """As `CLIInterface.print_messages`."""
        self._start_line()
        self.nonstreaming_interface.print_messages(message_sequence, dump)

    @_LineMethod
    def print_messages_simple(self, message_sequence: Iterable[object]) -> None:
        """As `CLIInterface.print_messages_simple`."""
        self._start_line()
        self.nonstreaming_interface.print_messages_simple(message_sequence)

    @_LineMethod
    def print_messages_raw(self, message_sequence: Iterable[object]) -> None:
        """As `CLIInterface.print_messages_raw`."""
        self._start_line()
        self.nonstreaming_interface.print_messages_raw(message_sequence)

    @staticmethod
    def step_yield() -> None:
        """The agent waits for the user. Prints nothing."""

    @staticmethod
    def step_complete() -> None:
        """A step of the agent ended. Prints nothing."""
