"""The report of a check of a protocol, and the error that it raises."""

from __future__ import annotations

import msgspec

__all__ = ["ProtocolCheckError", "ProtocolReport"]


class ProtocolCheckError(AssertionError):
    """A protocol breaks a law. The text says which one, in which recording, at which cut or item, what was expected and
    what came.

    Attributes:
        law: the law, as a key of `ProtocolReport.checks`.
        recording: the recording's name: its path, or `recording 0` and so on; "" if no recording was involved.
    """

    def __init__(self, law: str, recording: str, text: str) -> None:
        super().__init__(f"{law}: {recording}{': ' if recording else ''}{text}")
        self.law = law
        self.recording = recording


class ProtocolReport(msgspec.Struct):
    """The report of `check_protocol`. Its `str` is a summary for people.

    Attributes:
        protocol: the protocol's name.
        recordings: the names of the recordings.
        checks: how many streams or values were checked, by law.
        notes: what was not checked and why, and what the encoder lost of the types in `cannot_express`.
    """

    protocol: str
    recordings: list[str] = []
    checks: dict[str, int] = {}
    notes: list[str] = []

    def __str__(self) -> str:
        count = len(self.recordings)
        lines = [f"{self.protocol} keeps the laws in {count} recording{'' if count == 1 else 's'}:"]
        lines += [f"  {law}: {number} checked" for law, number in self.checks.items()]
        return "\n".join(lines + [f"  note: {note}" for note in self.notes])
