"""`fields=` of a stream, parsed: which arguments of which tools become messages.

    {"send_message.message": "text", "execute.code": "code:python", "*.inner_thoughts": "reasoning"}

A key is a tool, a dot and a path as `JsonFields` takes it; `*` in the tool's place is any tool. A value is a kind of message:
`text`, `reasoning`, `code`, or `code:` and a language.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from ..errors import UsageError
from ..messages import CodeMessage, Message, ReasoningMessage, TextMessage
from .json_paths import join_path, split_path

__all__ = ["FieldChoice", "FieldChoices"]

_KINDS: dict[str, type[Message]] = {"text": TextMessage, "reasoning": ReasoningMessage, "code": CodeMessage}
_CLASSES = tuple(_KINDS.values())

_Keys = tuple[str | None, ...]


class FieldChoice(NamedTuple):
    """An argument that `fields=` names.

    Attributes:
        keys: its path below the tool's arguments, None for `*`.
        kind: the class of the message that it becomes.
        language: the language of code, if `fields=` names one.
    """

    keys: _Keys
    kind: type[Message]
    language: str | None

    def matches(self, keys: Sequence[str | None]) -> bool:
        """Whether the path of an argument, without `*`, is one of this choice's."""
        return len(keys) == len(self.keys) and all(
            mine in (None, theirs) for mine, theirs in zip(self.keys, keys, strict=True)
        )

    @property
    def paths(self) -> Iterator[str]:
        """Yield the paths to read for it: the argument, and for code the one beside it that names the language."""
        yield join_path(self.keys)
        if self.kind is CodeMessage and self.language is None:
            yield join_path((*self.keys[:-1], "language"))


class FieldChoices:
    """The arguments that `fields=` names, by tool.

    Attributes:
        called: the names of the tools with such arguments that the stream called.

    Raises:
        UsageError: a key names no argument of a tool, or a value no kind of message.
    """

    def __init__(self, fields: Mapping[str, str]) -> None:
        if not isinstance(cast("object", fields), Mapping):
            raise UsageError(f"`fields` is a dict of 'tool.argument' to a kind of message, not {fields!r}")
        self.called: set[str] = set()
        self._by_tool: dict[str | None, list[FieldChoice]] = {}
        for field, kind in fields.items():
            tool, *keys = split_path(field)
            if not keys or "" in (tool, *keys):
                raise UsageError(f"{field!r} names no argument of a tool: 'tool.argument', as 'send_message.message'")
            self._by_tool.setdefault(tool, []).append(FieldChoice(tuple(keys), *_parse_kind(field, kind)))

    def of_tool(self, name: str | None) -> list[FieldChoice]:
        """Return the choices for this tool: those that name it first, then those for any tool. None for a call without
        a name yet."""
        return [*self._by_tool.get(name, ()), *self._by_tool.get(None, ())] if name is not None else []

    def is_made_of_field(self, message: Message) -> bool:
        """Whether a message of the source was already made from a field, which would be made here again.

        Then the source is another stream with `fields=`. The message's metadata show it, or its id, if the protocol
        between them carries no metadata. Those of sub-agents are not made again.
        """
        if message.parent_id is not None:
            return False
        field = message.metadata.get("field")
        if message.call_id is not None and isinstance(field, str) and (keys := _keys(field)):
            return any(choice.matches(keys[1:]) for choice in self.of_tool(keys[0]))
        return "#" in message.id and isinstance(message, _CLASSES) and self._is_field_id(message.id)

    def _is_field_id(self, id: str) -> bool:
        """Whether an id ends as those of the fields of a called tool."""
        paths = [_keys(id[index + 1 :]) for index, sign in enumerate(id) if sign == "#" and index]
        choices = [choice for tool in self.called for choice in self.of_tool(tool)]
        return any(choice.matches(keys) for choice in choices for keys in paths if keys)


def _parse_kind(field: str, kind: object) -> tuple[type[Message], str | None]:
    """Return the class of a field's messages, and the language of code."""
    name, colon, language = kind.partition(":") if isinstance(kind, str) else ("", "", "")
    if name not in _KINDS or (colon and (name != "code" or not language)):
        kinds = "'text', 'reasoning', 'code', or 'code:' and a language"
        raise UsageError(f"the field {field!r} can become {kinds}, not {kind!r}")
    return _KINDS[name], language or None


def _keys(path: str) -> _Keys:
    """Return the keys of a path; () if it is malformed."""
    try:
        return split_path(path)
    except UsageError:
        return ()
