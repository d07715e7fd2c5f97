"""What an agent says to its user, out of what its model says: the text of `send_message`, and nothing else."""

from __future__ import annotations

from .arguments import FunctionArgumentsStreamHandler
from .normalise import Call

__all__ = ["Said"]

_GAP = "\n\n"  # between two things that are said


class Said:
    """Reads the calls of one answer after another. All that it gives, joined, is what was said."""

    def __init__(self) -> None:
        self._calls: dict[int, _Spoken] = {}
        self._spoke: _Spoken | None = None  # who said something last

    def piece(self, call: Call) -> str:
        """What a piece of a call adds."""
        spoken = self._calls.get(call.place)
        if spoken is None or (call.id and spoken.id and call.id != spoken.id):
            spoken = self._calls[call.place] = _Spoken()
        return self._after(spoken, spoken.take(call))

    def whole(self, text: str) -> str:
        """Something that was said whole."""
        return self._after(_Spoken(), text)

    def end_answer(self) -> None:
        """The calls that come next are others."""
        self._calls.clear()

    @property
    def faults(self) -> list[str]:
        """What is wrong with the arguments of what is being said."""
        return [spoken.fault for spoken in self._calls.values() if spoken.fault]

    def _after(self, spoken: _Spoken, text: str) -> str:
        if not text:
            return ""
        before, self._spoke = self._spoke, spoken
        return text if before is None or before is spoken else _GAP + text


class _Spoken:
    """One call. Its name may come in pieces, but before its arguments."""

    def __init__(self) -> None:
        self.id: str | None = None
        self._name = ""
        self._reader = FunctionArgumentsStreamHandler()

    def take(self, call: Call) -> str:
        self.id = self.id or call.id
        if call.name and call.name != self._name:  # some servers say it with every piece
            self._name += call.name
        if self._name != "send_message" or not call.arguments:
            return ""
        return self._reader.process_json_chunk(call.arguments) or ""

    @property
    def fault(self) -> str | None:
        return self._reader.error
