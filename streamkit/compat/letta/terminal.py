"""MemGPT's terminal: every message as a line of its own, on `sys.stdout` as it is at that moment.

Colours are for terminals alone, and `NO_COLOR` is heeded. What a model writes is text there, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...renderers.characters import printable
from ...renderers.writer import TerminalWriter
from .interfaces import AgentInterface
from .memgpt_format import Line, function_lines, kind_lines, message_lines, simple_lines, user_lines
from .normalise import as_given

__all__ = ["CLIInterface", "TerminalLines"]


def put(lines: Iterable[Line]) -> None:
    """Print lines. A terminal that went away is the caller's to notice: it raises as `print` does."""
    paper = TerminalWriter(None)
    for line in lines:
        paper.write(line.text, line.colour)
        paper.write("\n")
    paper.flush()


def _numbered(lines: Iterable[Line], number: int) -> Iterator[Line]:
    """The first line with the number of its message before it."""
    for line in lines:
        yield Line(f"[{number}] {line.text}" if number else line.text, line.colour)
        number = 0


class CLIInterface:
    """MemGPT's terminal without streaming. It has no state: each method can be called on the class itself."""

    @staticmethod
    def important_message(msg: str) -> None:
        """Something to be seen."""
        put(kind_lines("important", msg))

    @staticmethod
    def warning_message(msg: str) -> None:
        """Something went wrong."""
        put(kind_lines("warning", msg))

    @staticmethod
    def internal_monologue(msg: str, msg_obj: object | None = None) -> None:
        """`💭 …`"""
        put(kind_lines("internal_monologue", msg))

    @staticmethod
    def assistant_message(msg: str, msg_obj: object | None = None) -> None:
        """`🤖 …`"""
        put(kind_lines("assistant", msg))

    @staticmethod
    def memory_message(msg: str, msg_obj: object | None = None) -> None:
        """`🧠 …`"""
        put(kind_lines("memory", msg))

    @staticmethod
    def system_message(msg: str, msg_obj: object | None = None) -> None:
        """`🖥️ [system] …`"""
        put(kind_lines("system", msg))

    @staticmethod
    def user_message(
        msg: object, msg_obj: object | None = None, raw: bool = False, dump: bool = False, debug: bool = False
    ) -> None:
        """`🧑 …`, `💓 …` for a heartbeat; only with one of `raw` (any text), `dump` or `debug` (MemGPT's JSON)."""
        put(user_lines(msg, raw=raw, dump=dump, debug=debug))

    @staticmethod
    def function_message(msg: object, msg_obj: object | None = None, debug: bool = False) -> None:
        """`⚡🟢 [function] …`, `⚡🔴` for an error, `⚡🧠` for the memory, which is shown without `debug`, too."""
        put(function_lines(msg, debug=debug))

    @staticmethod
    def print_messages(message_sequence: Iterable[object], dump: bool = False) -> None:
        """A conversation. With `dump`, all of it, numbered down to 1."""
        messages = list(message_sequence)
        for place, message in enumerate(messages):
            put(_numbered(message_lines(message, dump=dump), len(messages) - place if dump else 0))

    @staticmethod
    def print_messages_simple(message_sequence: Iterable[object]) -> None:
        """A conversation: who said what, without what functions gave."""
        for message in message_sequence:
            put(simple_lines(message))

    @staticmethod
    def print_messages_raw(message_sequence: Iterable[object]) -> None:
        """A conversation's messages as dicts."""
        put(Line(printable(str(as_given(message)))) for message in message_sequence)

    @staticmethod
    def step_yield() -> None:
        """The agent waits for the user. Nothing is shown."""

    @staticmethod
    def step_complete() -> None:
        """A step is over. Nothing is shown."""


AgentInterface.register(CLIInterface)  # by name: methods that need no instance are no overrides of others that do


class TerminalLines(AgentInterface):
    """What the streaming terminals print in whole lines: `CLIInterface`'s, each on a line of its own."""

    nonstreaming_interface = CLIInterface

    def _start_line(self) -> None:
        """Interrupt what is being printed, if anything is."""
        raise NotImplementedError

    def important_message(self, msg: str) -> None:
        self._start_line()
        self.nonstreaming_interface.important_message(msg)

    def warning_message(self, msg: str) -> None:
        self._start_line()
        self.nonstreaming_interface.warning_message(msg)

    def internal_monologue(self, msg: str, msg_obj: object | None = None) -> None:
        self._start_line()
        self.nonstreaming_interface.internal_monologue(msg, msg_obj)

    def assistant_message(self, msg: str, msg_obj: object | None = None) -> None:
        self._start_line()
        self.nonstreaming_interface.assistant_message(msg, msg_obj)

    def memory_message(self, msg: str, msg_obj: object | None = None) -> None:
        self._start_line()
        self.nonstreaming_interface.memory_message(msg, msg_obj)

    def system_message(self, msg: str, msg_obj: object | None = None) -> None:
        self._start_line()
        self.nonstreaming_interface.system_message(msg, msg_obj)

    def user_message(
        self, msg: object, msg_obj: object | None = None, raw: bool = False, dump: bool = False, debug: bool = False
    ) -> None:
        self._start_line()
        self.nonstreaming_interface.user_message(msg, msg_obj, raw, dump, debug)

    def function_message(self, msg: object, msg_obj: object | None = None, debug: bool = False) -> None:
        self._start_line()
        self.nonstreaming_interface.function_message(msg, msg_obj, debug)

    def print_messages(self, message_sequence: Iterable[object], dump: bool = False) -> None:
        self._start_line()
        self.nonstreaming_interface.print_messages(message_sequence, dump)

    def print_messages_simple(self, message_sequence: Iterable[object]) -> None:
        self._start_line()
        self.nonstreaming_interface.print_messages_simple(message_sequence)

    def print_messages_raw(self, message_sequence: Iterable[object]) -> None:
        self._start_line()
        self.nonstreaming_interface.print_messages_raw(message_sequence)

    def step_yield(self) -> None:
        """The agent waits for the user. Nothing is shown."""

    def step_complete(self) -> None:
        """A step is over. Nothing is shown."""
