"""`fields=`: string arguments of tools as messages of their own, which stream beside their calls.

    sk.stream(source, fields={"send_message.message": "text", "execute.code": "code"})

A stage between the decoder and the engine, so the same for every protocol: events in, the same events and more out.

The rule: fields add messages and change no other event of a stream. A field's message begins with its first character,
after its call did. It ends just before its call does, because until then the same key may come again. Such a repeated key
is emitted as more text if it continues what was emitted, else as one replacement, once its text is complete. The message
is completed if its call is and the arguments are complete; its content then is what `json.loads` returns of the arguments
at that path. Otherwise it ends as its call does, or as `incomplete` if the call is completed nevertheless.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar, cast

from ..errors import UsageError
from ..events import (
    OPEN_MESSAGE_STATUS,
    CallPassed,
    Created,
    Delta,
    Done,
    Event,
    MessageDone,
    RunDone,
    RunStatus,
    ToolCallCreated,
    ToolCallDelta,
)
from ..messages import (
    COMPACT_AT,
    CodeMessage,
    Message,
    ReasoningMessage,
    Status,
    TextMessage,
    ToolCallMessage,
    message_class,
)
from .json_fields import FieldText, JsonFields, join_path, split_path

__all__ = ["ArgumentFields"]

_KINDS: dict[str, type[Message]] = {"text": TextMessage, "reasoning": ReasoningMessage, "code": CodeMessage}
_FIELDS = tuple(_KINDS.values())
_LONGEST_LANGUAGE = 100  # characters; a longer text is no language's name

_E = TypeVar("_E", bound=Event)
_Keys = tuple[str | None, ...]


class _Choice(NamedTuple):
    """An argument that `fields=` names: its path, and the message that it becomes."""

    keys: _Keys
    kind: type[Message]
    language: str | None

    def fits(self, keys: Sequence[str | None]) -> bool:
        return len(keys) == len(self.keys) and all(
            mine in (None, theirs) for mine, theirs in zip(self.keys, keys, strict=True)
        )

    @property
    def paths(self) -> Iterator[str]:
        """The paths to read for it: the argument, and for code the one beside it that names the language."""
        yield join_path(self.keys)
        if self.kind is CodeMessage and self.language is None:
            yield join_path((*self.keys[:-1], "language"))


class _Text:
    """A text that grows in pieces, joined when there are many."""

    def __init__(self) -> None:
        self.length = 0
        self._whole: list[str] = []
        self._pieces: list[str] = []

    def add(self, piece: str) -> None:
        self.length += len(piece)
        self._pieces.append(piece)
        if len(self._pieces) >= COMPACT_AT:
            self._whole.append("".join(self._pieces))
            self._pieces.clear()

    @property
    def value(self) -> str:
        return "".join((*self._whole, *self._pieces))


class _Field:
    """A field's message in one call, as far as it was emitted.

    The text of a repeated key is held back until it either continues the emitted text, and is added, or is complete, and
    replaces it. Deltas after a replacement would confuse a reader that only appends.
    """

    def __init__(self, message: Message, language: str | None) -> None:
        self.message = message
        self.language = language  # as `fields=` names it
        self.created = False
        self.done = False  # whether the string is complete
        self.told = _Text()
        self.replaced = False  # after a replacement, no text can be added
        self._held: _Text | None = None

    def begin_again(self) -> None:
        """The key comes again: the next piece is the first of its new text."""
        self._held = _Text()

    def is_told(self, text: str) -> bool:
        """Whether exactly this text was emitted, and more can be added to it."""
        return self._held is None and not self.replaced and self.told.value == text

    def take(self, text: str, *, done: bool) -> tuple[str, bool]:
        """Add a piece. Returns the text to emit, and whether it replaces what was emitted."""
        self.done = done
        held = self._held
        if held is None:
            self.told.add(text)
            return text, False
        held.add(text)
        if not self.replaced and held.length >= self.told.length:
            told, value = self.told.value, held.value
            self.replaced = not value.startswith(told)
            if not self.replaced:
                self.told, self._held = held, None
                return value[len(told) :], False
        return self.release() if done else ("", False)

    def release(self) -> tuple[str, bool]:
        """The text that was held back, and whether it replaces what was emitted."""
        held, self._held = self._held, None
        if held is None or held.value == self.told.value:
            return "", False
        self.told, self.replaced = held, True
        return held.value, True


class _Call:
    """An open call: its arguments so far, and its fields' messages."""

    def __init__(self, given: Message, base: str, tools: _Tools) -> None:
        self.given = given
        self.base = base  # what its fields' ids begin with
        self.call_id = given.call_id
        self.tools = tools
        self.name = given.name
        self._choose()
        self._text = _Text()

    def _choose(self) -> None:
        """Prepare to read the arguments of the present tool."""
        self.choices = self.tools.of(self.name)
        if self.name and self.choices:
            self.tools.called.add(self.name)
        self.reader = self._reader() if self.choices else None
        self._fields: dict[str, _Field | None] = {}
        self._languages: dict[str, tuple[str, bool]] = {}

    def _reader(self) -> JsonFields:
        return JsonFields(*(path for choice in self.choices for path in choice.paths))

    def take(self, delta: Delta) -> Iterator[Event]:
        """The fields' events of a delta of the arguments."""
        if delta.replace:
            yield from self._become(delta.value, delta)
        elif delta.value:
            self._text.add(delta.value)
            yield from self._read(delta.value, delta)

    def finish(self, given: Message, cause: Event) -> Iterator[Event]:
        """The events before the call's own end. Arguments that come only with the end are emitted as one delta first."""
        if given.name and given.name != self.name:
            yield from self._rename(given.name, cause)
        self.call_id = given.call_id or self.call_id
        if self.reader is not None and given.has_content:
            if given.content and not self._text.value:
                yield _like(cause, ToolCallDelta(given.id, given.content))
                yield from self._read(given.content, cause)
            else:
                yield from self._become(given.content, cause)
        yield from self.end("completed" if given.status == "in_progress" else given.status, cause)

    def end(self, status: Status, cause: Event) -> Iterator[Event]:
        """The ends of the fields' messages, if the call ends with this status."""
        complete = self.reader is not None and self.reader.complete
        for path, field in self._fields.items():
            if field is None:
                continue
            yield from self._grow(field, field.release(), cause)
            how = "incomplete" if status == "completed" and not (complete and field.done) else status
            kind = type(field.message)
            language = field.language or self._language(path, kind) or field.message.format
            call_id = self.call_id or self.given.id
            yield _like(cause, MessageDone(kind(field.message.id, status=how, call_id=call_id, format=language)))

    # -- the arguments

    def _read(self, text: str, cause: Event) -> Iterator[Event]:
        for piece in self.reader.feed(text) if self.reader is not None else ():
            self._note_language(piece)
            yield from self._tell(piece, cause)

    def _rename(self, name: str, cause: Event) -> Iterator[Event]:
        """The tool's name changed, or is known only now."""
        yield from self.end("incomplete", cause)
        self.name = name
        self._choose()
        yield from self._read(self._text.value, cause)

    def _become(self, text: str, cause: Event) -> Iterator[Event]:
        """The arguments are replaced by this text. Fields whose text differs are emitted again."""
        told = self._text.value
        self._text = _Text()
        self._text.add(text)
        if text == told or self.reader is None:
            return
        self.reader = self._reader()
        self._languages.clear()
        values = _values(self.reader, text)
        for piece in values.values():
            self._note_language(piece)
        for path, field in self._fields.items():
            value = values.get(path) or FieldText(path, "", False)
            if field is not None and not field.is_told(value.text):
                field.begin_again()
            elif field is not None:
                field.done = value.done
                values.pop(path, None)
        for piece in values.values():
            yield from self._tell(piece, cause)

    def _tell(self, piece: FieldText, cause: Event) -> Iterator[Event]:
        """The events of a piece of a field."""
        if piece.path not in self._fields:
            self._fields[piece.path] = self._begin(piece.path)
        field = self._fields[piece.path]
        if field is None:
            return
        if piece.replace:
            field.begin_again()
        if not field.created:
            field.created = True
            yield _like(cause, field.message.created_event(field.message))
        yield from self._grow(field, field.take(piece.text, done=piece.done), cause)

    def _grow(self, field: _Field, told: tuple[str, bool], cause: Event) -> Iterator[Event]:
        text, replaces = told
        if text or replaces:
            yield _like(cause, field.message.delta_event(field.message.id, text, replaces))

    # -- the messages

    def _begin(self, path: str) -> _Field | None:
        """The field at this path; None if the path is read only as the language of another."""
        keys = split_path(path)
        choice = next((choice for choice in self.choices if choice.fits(keys)), None)
        if choice is None:
            return None
        call = self.given
        message = choice.kind(
            f"{self.base}#{path}",
            format=choice.language or self._language(path, choice.kind),
            call_id=self.call_id or call.id,
            created_at=call.created_at,
            group=call.group,
            index=call.index,
            choice=call.choice,
            run_id=call.run_id,
            step_id=call.step_id,
            metadata={"field": join_path((self.name, *keys))},
        )
        return _Field(message, choice.language)

    def _language(self, path: str, kind: type[Message]) -> str | None:
        """The argument `language` beside a piece of code, once it is known."""
        if kind is not CodeMessage:
            return None
        language, known = self._languages.get(join_path((*split_path(path)[:-1], "language")), ("", False))
        return language if known and language and len(language) <= _LONGEST_LANGUAGE else None

    def _note_language(self, piece: FieldText) -> None:
        if not piece.path.endswith("language"):
            return
        before, _ = self._languages.get(piece.path, ("", False))
        text = "" if piece.replace else before[: _LONGEST_LANGUAGE + 1]
        self._languages[piece.path] = (text + piece.text, piece.done)


class _Tools:
    """The arguments that `fields=` names, by tool."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        if not isinstance(cast("object", fields), Mapping):
            raise UsageError(f"`fields` is a dict of 'tool.argument' to a kind of message, not {fields!r}")
        self.called: set[str] = set()
        self._chosen: dict[str | None, list[_Choice]] = {}
        for field, kind in fields.items():
            tool, *keys = split_path(field)
            if not keys or "" in (tool, *keys):
                raise UsageError(f"{field!r} names no argument of a tool: 'tool.argument', as 'send_message.message'")
            self._chosen.setdefault(tool, []).append(_Choice(tuple(keys), *_kind(field, kind)))

    def of(self, name: str | None) -> list[_Choice]:
        """The arguments of this tool: those named for it first, then those named for any tool."""
        return [*self._chosen.get(name, ()), *self._chosen.get(None, ())] if name is not None else []

    def derives(self, message: Message) -> bool:
        """Whether a message is a field's that is made here again: the source is another stream, which made it of the same
        call. Its metadata show it, or its id if the protocol carries no metadata."""
        field = message.metadata.get("field")
        if message.call_id is not None and isinstance(field, str) and (keys := _keys(field)):
            return any(choice.fits(keys[1:]) for choice in self.of(keys[0]))
        return "#" in message.id and isinstance(message, _FIELDS) and self._names_field(message.id)

    def _names_field(self, id: str) -> bool:
        """Whether an id is that of a field of a tool that was called."""
        paths = [_keys(id[place + 1 :]) for place, sign in enumerate(id) if sign == "#" and place]
        chosen = [choice for tool in self.called for choice in self.of(tool)]
        return any(choice.fits(keys) for choice in chosen for keys in paths if keys)


class ArgumentFields:
    """Makes messages of the arguments of one stream's tool calls: events in, the same events and the fields' out.

    Args:
        fields: `tool.path` to `text`, `reasoning`, `code` or `code:python`. A path is as `JsonFields` takes it, and `*`
            in the tool's place is any tool. Of several that fit, the first counts that names the tool.

    Raises:
        UsageError: a key names no argument of a tool, or a kind is none of these.
    """

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._tools = _Tools(fields)
        self.fields = dict(fields)
        self._open: dict[str, _Call | None] = {}  # as in the engine, by id; None for what is no call
        self._ids: set[str] = set()
        self._again: dict[str, int] = {}
        self._dropped: set[str] = set()

    def has_fields(self, name: str | None) -> bool:
        """Whether arguments of this tool become messages."""
        return bool(self._tools.of(name))

    def feed(self, events: Iterable[Event]) -> list[Event]:
        """These events, with the events of fields among them. Fields that the source itself emits are left out."""
        out: list[Event] = []
        for event in events:
            if event.message_id is not None and event.message_id in self._dropped:
                continue
            match event:
                case Delta():
                    out += self._delta(event)
                case Created():
                    out += self._created(event)
                case Done():
                    out += self._done(event)
                case CallPassed():
                    out += self._passed(event)
                case RunDone(run=run):
                    out += self._end(run.status, event)
                    out.append(event)
                case _:
                    out.append(event)
        return out

    def finish(self, status: RunStatus) -> list[Event]:
        """The ends of fields whose calls are still open at the source's end, if the run ends with this status."""
        return [*self._end(status, Event())]

    def _end(self, status: RunStatus, cause: Event) -> Iterator[Event]:
        how = OPEN_MESSAGE_STATUS.get(status) or cast("Status", status)  # an emitter may send a status of its own
        for call in self._open.values():
            if call is not None:
                yield from call.end(how, cause)
        self._open.clear()

    def _delta(self, event: Delta) -> Iterator[Event]:
        begins = event.message_id not in self._open and bool(event.value or event.metadata or event.replace)
        family = event.family or TextMessage
        if begins and self._tools.derives(family(event.message_id)):
            self._dropped.add(event.message_id)
            return
        yield event
        if begins:
            self._begin(family(event.message_id))
        elif not (event.value or event.metadata or event.replace):
            return
        call = self._open[event.message_id]
        if call is not None:
            yield from call.take(event)

    def _created(self, event: Created) -> Iterator[Event]:
        given = event.message
        if self._tools.derives(given):
            self._dropped.add(given.id)
            return
        yield event
        if given.id not in self._open:
            self._begin(given)

    def _done(self, event: Done) -> Iterator[Event]:
        given = event.message
        if given.id in self._dropped or self._tools.derives(given):
            return
        if given.id not in self._open:
            if given.id in self._ids:
                yield event
                return
            call = self._begin(given)
            if call is not None and call.reader is not None and given.content:
                yield _like(event, ToolCallCreated(given))
        call = self._open.pop(given.id)
        if call is not None:
            yield from call.finish(given, event)
        yield event

    def _passed(self, event: CallPassed) -> Iterator[Event]:
        """Another call begins. If this one has all its arguments, the engine ends it here."""
        call = self._open.get(event.message.id)
        if call is not None and call.reader is not None and call.reader.complete:
            del self._open[event.message.id]
            yield from call.finish(event.message, event)
        yield event

    def _begin(self, given: Message) -> _Call | None:
        """Note a message that begins. A repeated id gets a number appended, as the engine does it."""
        id = base = given.id
        if id in self._ids:
            self._again[id] = self._again.get(id, 1) + 1
            base = f"{id}.{self._again[id]}"
        self._ids.add(id)
        is_call = message_class(given.type, given.format, given.role) is ToolCallMessage
        self._open[id] = call = _Call(given, base, self._tools) if is_call else None
        return call


def _kind(field: str, kind: object) -> tuple[type[Message], str | None]:
    """The class of a field's messages, and the language of code."""
    name, colon, language = kind.partition(":") if isinstance(kind, str) else ("", "", "")
    if name not in _KINDS or (colon and (name != "code" or not language)):
        kinds = "'text', 'reasoning', 'code', or 'code:' and a language"
        raise UsageError(f"the field {field!r} can become {kinds}, not {kind!r}")
    return _KINDS[name], language or None


def _keys(path: str) -> _Keys:
    """The keys of a path; () if it is malformed."""
    try:
        return split_path(path)
    except UsageError:
        return ()


def _values(reader: JsonFields, text: str) -> dict[str, FieldText]:
    """The fields in a complete text, by path."""
    values: dict[str, FieldText] = {}
    for piece in reader.feed(text):
        if piece.replace:
            del values[piece.path]
        else:
            values[piece.path] = piece
    return values


def _like(cause: Event, event: _E) -> _E:
    """This event, with the position, raw item and index of the one that caused it."""
    event.position, event.raw_item, event.item_index = cause.position, cause.raw_item, cause.item_index
    return event
