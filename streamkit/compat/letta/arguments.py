"""The text of one argument of a tool call, read while the JSON of the arguments streams."""

from __future__ import annotations

from ...core.json_fields import JsonFields
from ...core.json_paths import join_path

__all__ = ["FunctionArgumentsStreamHandler"]


class FunctionArgumentsStreamHandler:
    """Reads the text of one argument of a tool call from the pieces of its JSON, wherever these are cut.

        >>> handler = FunctionArgumentsStreamHandler()
        >>> handler.process_json_chunk('{"mess')
        >>> handler.process_json_chunk('age": "Good mor')
        'Good mor'

    The returned texts, joined, equal what `json.loads` has for `json_key`; of a key that occurs twice, the first value.

    Args:
        json_key: The name of the argument. Default: `message`.
    """

    def __init__(self, json_key: str = "message") -> None:
        self.json_key = json_key
        self.reset()

    def reset(self) -> None:
        """Start over: the next piece begins another call."""
        self._fields = JsonFields(join_path([self.json_key]))
        self._is_repeated = False

    def process_json_chunk(self, chunk: str) -> str | None:
        """Return the text that a piece of the JSON adds to the argument; None if it adds nothing."""
        added: list[str] = []
        for piece in self._fields.feed(chunk):
            # The key occurs a second time: the text that was already returned cannot be taken back.
            self._is_repeated = self._is_repeated or piece.replace
            if not self._is_repeated:
                added.append(piece.text)
        return "".join(added) or None

    @property
    def error(self) -> str | None:
        """The fault of the JSON; None if it is valid so far. Nothing is read after an error."""
        return self._fields.error
