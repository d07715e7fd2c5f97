"""The output of a stream: the JSON text in its answer, while it arrives, and what it is read as in the end.

It costs nothing where nobody reads it: a reading takes the text that came since the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard, cast

from ..core.content import is_of_answer
from ..core.engine import Engine
from ..errors import OutputError, UsageError
from ..events import Event, TextDelta
from ..messages import Message, RefusalMessage, TextMessage, ToolCallMessage
from ..messages.json_tokens import space
from ..messages.json_tree import JsonTree, JsonValue
from .output_type import VALUE_KEY, OutputType

__all__ = ["StreamOutput"]

_CUT_SHORT = ("incomplete", "cancelled")


class StreamOutput:
    """The output of one stream.

    Args:
        engine: has the stream's messages.
        kind: the type of the output; None if it is not read as one.
    """

    def __init__(self, engine: Engine, kind: Any = None) -> None:
        self._engine = engine
        self.kind = kind if kind is None or isinstance(kind, OutputType) else OutputType(kind)
        self._text: TextMessage | None = None  # the answer's newest text
        self._count = 0  # how many messages were looked at for it
        self._newest: Message | None = None  # the last of them
        self._item_text: TextMessage | None = None  # the text of the elements that are handed out
        self._item_count = 0  # how many of them were
        self._read_item: Callable[[str], Any] | None = None

    # -- while it arrives

    @property
    def partial(self) -> JsonValue | None:
        """The value so far, live; None before it begins."""
        text = self._newest_text()
        if text is None:
            return None
        value: Any = self._tree(text).value
        value = value if value is None or not self._is_wrapped else value.get(VALUE_KEY)
        return cast("JsonValue", value)

    def partial_after(self, event: Event) -> JsonValue | None:
        """Return the value so far, if the event is a delta of its text and it has begun."""
        return self.partial if type(event) is TextDelta and event.snapshot is self._newest_text() else None

    def item_came(self, event: Event) -> bool | None:
        """Return True if an element of the list closed that was not handed out, None otherwise."""
        if type(event) is not TextDelta or (text := self._newest_text()) is None or event.snapshot is not text:
            return None
        if text is not self._item_text:
            self._item_text, self._item_count = text, 0
        return self.has_item or None

    @property
    def hands_out(self) -> bool:
        """Whether its elements are handed out."""
        return self._read_item is not None

    @property
    def has_item(self) -> bool:
        """Whether an element of the list has closed and was not handed out."""
        return self._item_text is not None and len(self._tree(self._item_text).items) > self._item_count

    def next_item(self) -> Any:
        """Return the next element, of which there is one.

        Raises:
            OutputError: it is not of its type.
        """
        assert self._item_text is not None
        tree, number = self._tree(self._item_text), self._item_count
        begin, end = tree.items[number]
        self._item_count += 1
        try:
            return self.item_reader()(self._item_text.content[tree.begins + begin : tree.begins + end])
        except Exception as error:  # the validator's, or of the application's own checks
            fault = f"element {number} of the output is not of its type: {_first_line(error)}"
            raise self._error("invalid", fault, self._item_text) from error

    def item_reader(self) -> Callable[[str], Any]:
        """Return what reads an element.

        Raises:
            UsageError: the stream's output is not a list.
        """
        if self._read_item is None:
            self._read_item = self._typed("output_items").item_reader()
        return self._read_item

    def _newest_text(self) -> TextMessage | None:
        """Return the answer's newest text. Each message is looked at once, unless some were taken away."""
        messages, count = self._engine.messages.all, self._count
        if count > len(messages) or (count and messages[count - 1] is not self._newest):
            self._text, count = None, 0
        if count < len(messages):
            new = (messages[index] for index in range(len(messages) - 1, count - 1, -1))
            self._text = next(filter(_is_answer, new), None) or self._text
            self._count, self._newest = len(messages), messages[-1]
        return self._text

    @property
    def _is_wrapped(self) -> bool:
        return self.kind is not None and self.kind.is_wrapped

    def _tree(self, text: TextMessage) -> OutputText:
        tree = text.json_tree(self._new_tree)
        assert isinstance(tree, OutputText)
        return tree

    def _new_tree(self) -> OutputText:
        kind = self.kind
        return OutputText() if kind is None else OutputText(kind.brackets, items_at=self._items_at)

    @property
    def _items_at(self) -> int:
        """How deep the list of the elements to hand out is; 0 if there is none."""
        assert self.kind is not None
        return 0 if self.kind.item is None else 2 if self.kind.is_wrapped else 1

    # -- in the end

    def final(self, status: str) -> Any:
        """Return what the answer is read as.

        Args:
            status: how the stream has ended, or would end now.

        Raises:
            OutputError: it cannot be.
            UsageError: the stream has no `output_type`.
        """
        kind = self._typed("get_final_output")
        if status == "requires_action":
            raise self._error("requires_action", "the run ended before its answer: it requires action")
        text, refusal = self._answer()
        run = self._engine.runs.run
        if refusal is not None or (run is not None and run.finish_reason == "refusal"):
            explained = f": {refusal.content}" if refusal is not None else ""
            raise self._error("refused", f"the model refused to answer{explained}", refusal or text)
        json = self._json(text, cut_short=status in _CUT_SHORT)
        try:
            return kind.read(json)
        except Exception as error:  # the validator's, or of the application's own checks
            raise self._error("invalid", f"the output is not of its type: {_first_line(error)}", text) from error

    def _json(self, text: TextMessage | None, *, cut_short: bool) -> str:
        """Return the JSON text in an answer. Raises as `final`."""
        tree = None if text is None else self._tree(text)
        if text is None or tree is None or tree.begin is None:
            if cut_short:
                raise self._error("incomplete", "the answer was cut short before its JSON began", text)
            wanted = f'no JSON object {{"{VALUE_KEY}": …}}' if self._is_wrapped else "no JSON"
            raise self._error("missing", f"the answer has {wanted}", text)
        if tree.end is None and tree.error is None and cut_short:
            raise self._error("incomplete", "the answer was cut short before its JSON was complete", text)
        if tree.end is None:
            fault = tree.error or "it ends before its last bracket"
            raise self._error("invalid", f"the JSON in the answer is malformed: {fault}", text)
        return text.content[tree.begin : tree.begin + tree.end]

    def _answer(self) -> tuple[TextMessage | None, RefusalMessage | None]:
        """Return the newest text and refusal of the last step that ended without a call of ours."""
        of_step: dict[str | None, list[Message]] = {step.id: [] for step in self._engine.runs.steps}
        for message in self._engine.messages.all:
            if message.choice == 0 and message.parent_id is None:
                of_step.setdefault(message.step_id, []).append(message)
        for messages in reversed(of_step.values()):
            if not any(map(_is_call, messages)):
                refusals = (one for one in reversed(messages) if isinstance(one, RefusalMessage) and one.content)
                return next(filter(_is_answer, reversed(messages)), None), next(refusals, None)
        return None, None

    def _typed(self, member: str) -> OutputType:
        if self.kind is None:
            raise UsageError(f"`{member}` needs the stream's `output_type=`")
        return self.kind

    def _error(self, reason: Any, message: str, text: Message | None = None) -> OutputError:
        error = OutputError(message, reason, "" if text is None else text.content)
        error.messages = self._engine.messages.all
        return error


def _is_answer(message: Message) -> TypeGuard[TextMessage]:
    """Whether a message is a text of the answer."""
    return isinstance(message, TextMessage) and is_of_answer(message)


def _is_call(message: Message) -> bool:
    """Whether a message is a call that the application or the agent answers."""
    is_call = isinstance(message, ToolCallMessage) and not message.provider_executed
    return is_call and message.status == "completed"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).replace("\n", " ")


class OutputText(JsonTree):
    """Finds the JSON in a text, and reads it: it begins at the first bracket that is the first character of the text or of a line,
    but for white space, and ends where that closes.

    Args:
        brackets: with which it may begin.
        items_at: how deep the list of the elements to note is: 1 for the document itself, 2 for one at `VALUE_KEY`; 0 for none.

    Attributes:
        begin: the index in the text at which it begins; None before that. Other indexes count from there.
        items: the indexes at which each element of the list begins and ends.
    """

    def __init__(self, brackets: str = "{[", items_at: int = 0) -> None:
        super().__init__()
        self._brackets = brackets
        self._items_at = items_at
        self.begin: int | None = None
        self.items: list[tuple[int, int]] = []
        self._searched = 0  # characters before the piece, while it has not begun
        self._at_line = True  # nothing but white space stands before them in their line
        self._list: Any = None  # the list of the elements to note
        self._item_begins = 0

    @property
    def begins(self) -> int:
        """The index at which it has begun."""
        assert self.begin is not None
        return self.begin

    def feed(self, piece: str) -> None:
        if self.begin is None:
            if (at := self._find(piece)) is None:
                self._searched += len(piece)
                return
            self.begin = self._searched + at
            piece = piece[at:]
        if self.end is None:
            super().feed(piece)

    def _find(self, piece: str) -> int | None:
        """Return where in the piece the JSON begins."""
        at = 0
        while True:
            if self._at_line:
                at = space(piece, at).end()
                if at == len(piece):
                    return None
                if piece[at] in self._brackets:
                    return at
                self._at_line = False
            at = piece.find("\n", at) + 1
            if not at:
                return None
            self._at_line = True

    # -- the elements of its list

    def _put(self, value: Any) -> None:
        if self._inside is self._list:
            self._item_begins = self._value_begins
        super()._put(value)

    def _enter(self, is_object: int) -> None:
        at = self._at
        super()._enter(is_object)
        if len(self._is_object) == self._items_at and not is_object and (self._items_at == 1 or at == VALUE_KEY):
            self._list = self._inside
            self.items.clear()  # of an equal key before

    def _end_value(self, at: int) -> int:
        if self._inside is self._list:
            self.items.append((self._item_begins, self._position + at))
        return super()._end_value(at)
