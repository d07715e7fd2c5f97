"""The code in a model's text, between `<code>` and `</code>`: what a `CodeAgent` of smolagents has its model write, and runs."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.reasoning_tag import overlap

__all__ = ["TaggedCode"]

_TAGS = ("<code>", "</code>")


class TaggedCode:
    """Divides one text that comes in pieces. Code has no white space at its beginning and end, as where the framework takes it out of
    the text; so several blocks of it are joined by an empty line."""

    def __init__(self) -> None:
        self._is_code = False
        self._held = ""  # what may become a tag, and white space at the end of code
        self._skips_space = False  # the tag was just now
        self._has_code = False

    def feed(self, piece: str) -> Iterator[tuple[bool, str]]:
        """Yield what is certain with this piece of the text: whether it is code, and the part."""
        part, tag, self._held = self._cut(self._held + piece)
        while tag:
            yield from self._take(part.rstrip() if self._is_code else part)
            if self._is_code or tag == _TAGS[0]:
                self._is_code, self._skips_space = not self._is_code, True
            part, tag, self._held = self._cut(self._held)
        certain = part[: len(part) - max(overlap(part, tag) for tag in self._tags)]
        certain = certain.rstrip() if self._is_code else certain
        yield from self._take(certain)
        self._held = part[len(certain) :]

    @property
    def _tags(self) -> tuple[str, ...]:
        """The tags that are none of the text here: code ends with the second one. Where there is no code, the framework adds it as well."""
        return _TAGS[1:] if self._is_code else _TAGS

    def _cut(self, text: str) -> tuple[str, str, str]:
        """Return what comes before the first tag, the tag, and what comes after it."""
        tag = min((tag for tag in self._tags if tag in text), key=text.index, default=self._tags[0])
        return text.partition(tag)

    def finish(self) -> Iterator[tuple[bool, str]]:
        """Yield the rest, where the text ends."""
        yield from self._take(self._held.rstrip() if self._is_code else self._held)
        self._held = ""

    def _take(self, part: str) -> Iterator[tuple[bool, str]]:
        begins = self._skips_space
        part = part.lstrip() if begins else part
        if part:
            self._skips_space = False
            joint = "\n\n" if self._is_code and begins and self._has_code else ""
            self._has_code = self._has_code or self._is_code
            yield self._is_code, joint + part
