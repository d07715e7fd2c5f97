"""The text of one argument of a call, out of pieces of the arguments' JSON."""

from __future__ import annotations

from ...core.json_fields import JsonFields, join_path

__all__ = ["FunctionArgumentsStreamHandler"]


class FunctionArgumentsStreamHandler:
    """Gives the text of one argument of a call while its JSON streams, wherever the pieces are cut.

        >>> handler = FunctionArgumentsStreamHandler()
        >>> handler.process_json_chunk('{"mess')
        >>> handler.process_json_chunk('age": "Good mor')
        'Good mor'

    All pieces together give what `json.loads` gives for `json_key`, the first time that it is there.
    """

    def __init__(self, json_key: str = "message") -> None:
        self.json_key = json_key
        self.reset()

    def reset(self) -> None:
        """The next piece begins another call."""
        self._fields = JsonFields(join_path([self.json_key]))
        self._over = False

    def process_json_chunk(self, chunk: str) -> str | None:
        """What this piece adds to the argument's text, None if nothing."""
        told: list[str] = []
        for piece in self._fields.feed(chunk):
            self._over = self._over or piece.replace  # the key came again: what was told cannot be taken back
            if not self._over:
                told.append(piece.text)
        return "".join(told) or None

    @property
    def error(self) -> str | None:
        """What is wrong with the JSON, if it is none: nothing is read after that."""
        return self._fields.error
