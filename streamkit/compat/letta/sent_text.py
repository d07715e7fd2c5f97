"""The text that an agent sends to its user: the `message` argument of its `send_message` calls, while they stream."""

from __future__ import annotations

from .arguments import FunctionArgumentsStreamHandler
from .normalise import FunctionCall

__all__ = ["SentText"]

_SEPARATOR = "\n\n"  # between two messages


class SentText:
    """Reads the calls of one answer after another. The texts that it returns, joined, are everything that was sent."""

    def __init__(self) -> None:
        self._calls: dict[int, _SendMessageCall] = {}  # of the current answer, by their positions
        self._latest: _SendMessageCall | None = None  # the call that added text last

    def feed(self, call: FunctionCall) -> str:
        """Return the text that a piece of a call adds."""
        reader = self._calls.get(call.position)
        if reader is None or (call.id and reader.id and call.id != reader.id):
            reader = self._calls[call.position] = _SendMessageCall()
        return self._separated(reader, reader.feed(call))

    def add(self, text: str) -> str:
        """Return the text that a complete message adds."""
        return self._separated(_SendMessageCall(), text)

    def end_answer(self) -> None:
        """End the current answer: the calls that follow are new ones."""
        self._calls.clear()

    @property
    def faults(self) -> list[str]:
        """The faults in the JSON of the current answer's calls."""
        return [reader.fault for reader in self._calls.values() if reader.fault]

    def _separated(self, reader: _SendMessageCall, text: str) -> str:
        if not text:
            return ""
        before, self._latest = self._latest, reader
        return text if before is None or before is reader else _SEPARATOR + text


class _SendMessageCall:
    """One call. Its name may arrive in pieces, but before its arguments. A call of another function adds no text."""

    def __init__(self) -> None:
        self.id: str | None = None
        self._name = ""
        self._arguments = FunctionArgumentsStreamHandler()

    def feed(self, call: FunctionCall) -> str:
        self.id = self.id or call.id
        if call.name and call.name != self._name:  # some servers repeat the name with every piece
            self._name += call.name
        if self._name != "send_message" or not call.arguments:
            return ""
        return self._arguments.process_json_chunk(call.arguments) or ""

    @property
    def fault(self) -> str | None:
        return self._arguments.error
