"""The messages of one tool call's fields: reads the call's arguments as they stream, and makes the fields' events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from ..events import Delta, Event, MessageDone, ToolCallDelta
from ..messages import COMPACT_AT, CodeMessage, Message, Status
from ..messages.json_tokens import all_plain
from .field_choices import FieldChoice, FieldChoices
from .json_fields import FieldText, JsonFields
from .json_paths import join_path, split_path

__all__ = ["CallFields", "caused_by"]

_LONGEST_LANGUAGE = 100  # characters; a longer text is not the name of a language

_E = TypeVar("_E", bound=Event)


class _GrowingText:
    """A text that grows in pieces, joined when there are many.

    Attributes:
        pieces: the newest pieces. Code that appends to it directly calls `compact` when there are `COMPACT_AT`.
    """

    __slots__ = ("_joined", "_length_joined", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._joined: list[str] = []
        self._length_joined = 0

    def add(self, piece: str) -> None:
        self.pieces.append(piece)
        if len(self.pieces) >= COMPACT_AT:
            self.compact()

    def compact(self) -> None:
        text = "".join(self.pieces)
        self._joined.append(text)
        self._length_joined += len(text)
        self.pieces.clear()

    @property
    def length(self) -> int:
        return self._length_joined + sum(map(len, self.pieces))

    @property
    def value(self) -> str:
        return "".join((*self._joined, *self.pieces))


class _Field:
    """A field's message in one call, as far as it was emitted.

    The text of a repeated key waits until it either continues the emitted text, and is added, or is complete, and replaces
    it. Deltas after a replacement would confuse a reader that only appends.
    """

    def __init__(self, message: Message, language: str | None, *, is_language: bool) -> None:
        self.message = message
        self.language = language  # as `fields=` names it
        self.is_language = is_language  # whether its text may be the language of another field
        self.created = False
        self.done = False  # whether the string is complete
        self.message_id = message.id
        self.make_delta: Any = message.delta_event
        self.emitted = _GrowingText()
        self.replaced = False  # after a replacement, no text can be added
        self._waiting: _GrowingText | None = None  # the text of a repeated key

    def begin_again(self) -> None:
        """Prepare for the new text of a key that comes again."""
        self._waiting = _GrowingText()

    @property
    def grows(self) -> bool:
        """Whether a piece of its text does no more than extend what was emitted."""
        return self.created and self._waiting is None and not self.is_language

    def has_emitted(self, text: str) -> bool:
        """Whether exactly this text was emitted, and more can be added to it."""
        return self._waiting is None and not self.replaced and self.emitted.value == text

    def add(self, text: str, *, done: bool) -> tuple[str, bool]:
        """Add a piece. Returns the text to emit, and whether it replaces what was emitted."""
        self.done = done
        waiting = self._waiting
        if waiting is None:
            self.emitted.add(text)
            return text, False
        waiting.add(text)
        if not self.replaced and waiting.length >= self.emitted.length:
            emitted, value = self.emitted.value, waiting.value
            self.replaced = not value.startswith(emitted)
            if not self.replaced:
                self.emitted, self._waiting = waiting, None
                return value[len(emitted) :], False
        return self.release() if done else ("", False)

    def release(self) -> tuple[str, bool]:
        """Return the text that waited, and whether it replaces what was emitted."""
        waiting, self._waiting = self._waiting, None
        if waiting is None or waiting.value == self.emitted.value:
            return "", False
        self.emitted, self.replaced = waiting, True
        return waiting.value, True


class CallFields:
    """The fields of an open call.

    Args:
        call: the call's message, as it was created.
        base: what the ids of the fields' messages begin with.
        choices: the arguments that become messages.
    """

    def __init__(self, call: Message, base: str, choices: FieldChoices) -> None:
        self._call = call
        self._base = base
        self._call_id = call.call_id
        self._all_choices = choices
        self._name = call.name
        self._choose()
        self._arguments = _GrowingText()
        # The field with an unfinished text, while plain text does no more than extend it.
        self._growing: _Field | None = None

    @property
    def reads_arguments(self) -> bool:
        """Whether arguments of the call's tool become messages."""
        return self._reader is not None

    @property
    def has_complete_arguments(self) -> bool:
        """Whether the arguments were read and are a complete JSON document."""
        return self._reader is not None and self._reader.complete

    def _choose(self) -> None:
        """Prepare to read the arguments of the present tool."""
        self._choices: list[FieldChoice] = self._all_choices.of_tool(self._name)
        if self._name and self._choices:
            self._all_choices.called.add(self._name)
        self._reader = self._new_reader() if self._choices else None
        self._fields: dict[str, _Field | None] = {}
        self._languages: dict[str, tuple[str, bool]] = {}  # the text, and whether it is complete

    def _new_reader(self) -> JsonFields:
        return JsonFields(*(path for choice in self._choices for path in choice.paths))

    def extend(self, events: list[Event], delta: Delta) -> None:
        """Add the fields' events of a delta of the arguments to these events."""
        text, field = delta.value, self._growing
        if field is None or delta.replace or not all_plain(text):
            events += self.feed(delta)
            return
        pieces = self._arguments.pieces
        pieces.append(text)
        field.emitted.pieces.append(text)
        make = field.make_delta
        events.append(
            make(
                field.message_id,
                text,
                position=delta.position,
                raw_item=delta.raw_item,
                item_index=delta.item_index,
            )
        )
        if len(pieces) >= COMPACT_AT:
            self._arguments.compact()
            field.emitted.compact()

    def feed(self, delta: Delta) -> Iterable[Event]:
        """Return the fields' events of a delta of the arguments."""
        reader, self._growing = self._reader, None
        if delta.replace:
            return self._replace(delta.value, delta)
        if delta.value:
            self._arguments.add(delta.value)
        if not delta.value or reader is None:
            return ()
        events = [*self._add_pieces(reader.feed(delta.value), delta)]
        if (path := reader.open_field) is not None:
            field = self._fields.get(path)
            self._growing = field if field is not None and field.grows else None
        return events

    def finish(self, call: Message, cause: Event) -> Iterator[Event]:
        """Yield the events before the call's own end. Arguments that come only with the end are emitted as one delta
        first."""
        self._growing = None
        if call.name and call.name != self._name:
            yield from self._rename(call.name, cause)
        self._call_id = call.call_id or self._call_id
        if self._reader is not None and call.has_content:
            if call.content and not self._arguments.value:
                yield caused_by(cause, ToolCallDelta(call.id, call.content))
                yield from self._read(call.content, cause)
            else:
                yield from self._replace(call.content, cause)
        yield from self.end("completed" if call.status == "in_progress" else call.status, cause)

    def end(self, status: Status, cause: Event) -> Iterator[Event]:
        """Yield the ends of the fields' messages, if the call ends with this status."""
        complete = self.has_complete_arguments
        for path, field in self._fields.items():
            if field is None:
                continue
            yield from self._emit(field, field.release(), cause)
            how = "incomplete" if status == "completed" and not (complete and field.done) else status
            kind = type(field.message)
            language = field.language or self._language(path, kind) or field.message.format
            call_id = self._call_id or self._call.id
            yield caused_by(cause, MessageDone(kind(field.message.id, status=how, call_id=call_id, format=language)))

    # -- the arguments

    def _read(self, text: str, cause: Event) -> Iterator[Event]:
        return self._add_pieces(self._reader.feed(text) if self._reader is not None else (), cause)

    def _add_pieces(self, pieces: Iterable[FieldText], cause: Event) -> Iterator[Event]:
        for piece in pieces:
            self._note_language(piece)
            yield from self._add(piece, cause)

    def _rename(self, name: str, cause: Event) -> Iterator[Event]:
        """Read the arguments again for the tool's new name."""
        yield from self.end("incomplete", cause)
        self._name = name
        self._choose()
        yield from self._read(self._arguments.value, cause)

    def _replace(self, text: str, cause: Event) -> Iterator[Event]:
        """Read the arguments again from this text. Fields with another text are emitted again."""
        before = self._arguments.value
        self._arguments = _GrowingText()
        self._arguments.add(text)
        if text == before or self._reader is None:
            return
        self._reader = self._new_reader()
        self._languages.clear()
        values = _values(self._reader, text)
        for piece in values.values():
            self._note_language(piece)
        for path, field in self._fields.items():
            value = values.get(path) or FieldText(path, "", False)
            if field is not None and not field.has_emitted(value.text):
                field.begin_again()
            elif field is not None:
                field.done = value.done
                values.pop(path, None)
        for piece in values.values():
            yield from self._add(piece, cause)

    def _add(self, piece: FieldText, cause: Event) -> Iterator[Event]:
        """Yield the events of a piece of a field."""
        if piece.path not in self._fields:
            self._fields[piece.path] = self._new_field(piece.path)
        field = self._fields[piece.path]
        if field is None:
            return
        if piece.replace:
            field.begin_again()
        if not field.created:
            field.created = True
            yield caused_by(cause, field.message.created_event(field.message))
        yield from self._emit(field, field.add(piece.text, done=piece.done), cause)

    def _emit(self, field: _Field, change: tuple[str, bool], cause: Event) -> Iterator[Event]:
        text, replaces = change
        if text or replaces:
            yield caused_by(cause, field.message.delta_event(field.message.id, text, replaces))

    # -- the messages

    def _new_field(self, path: str) -> _Field | None:
        """Return the field at this path; None if the path is read only as the language of another."""
        keys = split_path(path)
        choice = next((choice for choice in self._choices if choice.matches(keys)), None)
        if choice is None:
            return None
        call = self._call
        message = choice.kind(
            f"{self._base}#{path}",
            format=choice.language or self._language(path, choice.kind),
            call_id=self._call_id or call.id,
            created_at=call.created_at,
            group=call.group,
            index=call.index,
            choice=call.choice,
            run_id=call.run_id,
            step_id=call.step_id,
            metadata={"field": join_path((self._name, *keys))},
        )
        return _Field(message, choice.language, is_language=_may_name_language(path))

    def _language(self, path: str, kind: type[Message]) -> str | None:
        """Return the argument `language` beside a piece of code, if it is complete."""
        if kind is not CodeMessage:
            return None
        language, done = self._languages.get(join_path((*split_path(path)[:-1], "language")), ("", False))
        return language if done and language and len(language) <= _LONGEST_LANGUAGE else None

    def _note_language(self, piece: FieldText) -> None:
        if not _may_name_language(piece.path):
            return
        before, _ = self._languages.get(piece.path, ("", False))
        text = "" if piece.replace else before[: _LONGEST_LANGUAGE + 1]
        self._languages[piece.path] = (text + piece.text, piece.done)


def _may_name_language(path: str) -> bool:
    """Whether the text at this path may be the language of the code beside it."""
    return path.endswith("language")


def _values(reader: JsonFields, text: str) -> dict[str, FieldText]:
    """Return the fields in a complete text, by path."""
    values: dict[str, FieldText] = {}
    for piece in reader.feed(text):
        if piece.replace:
            del values[piece.path]
        else:
            values[piece.path] = piece
    return values


def caused_by(cause: Event, event: _E) -> _E:
    """Return this event, with the position, raw item and index of the one that caused it."""
    event.position, event.raw_item, event.item_index = cause.position, cause.raw_item, cause.item_index
    return event
