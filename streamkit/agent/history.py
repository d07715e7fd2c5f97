"""The conversation as a model is told it: a view, which changes nothing in it.

`told(messages)` gives messages that `to_input` of every protocol takes. Each call in it has its output: what the code
printed, what the tool gave, or why there is nothing. Code without a call, as it stands in Open Interpreter's lists, is
told as the call that it would have been. Images that code displayed are shown by the user after the outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..answers import Confirmation
from ..messages import (
    CodeMessage,
    ConsoleMessage,
    ImageMessage,
    Message,
    ReasoningMessage,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
)
from ..protocols.open_interpreter.input import truncate
from .code import CODE_TOOL, FIELDS, arguments_of

__all__ = ["NOT_RUN", "told"]

NOT_RUN = "Not run: the conversation went on without it."
_SILENT = "(no output)"
_EDITED = "(The user edited the code before it ran: above is what ran.)\n"
_INTERRUPTED = "\n(interrupted)"


class _Call:
    """A call, and what came of it."""

    def __init__(self, message: ToolCallMessage, place: int) -> None:
        self.message = message
        self.place = place  # among what is told
        self.answer: ToolOutputMessage | None = None
        self.printed: list[str] = []
        self.images: list[ImageMessage] = []
        self.ran = False
        self.edited = False

    @property
    def over(self) -> bool:
        """Whether anything came of it."""
        return self.answer is not None or self.ran


class _View:
    """The messages as they are told, and the calls whose outputs are still to be told."""

    def __init__(self, limit: int, taken: set[str], *, images: bool, answered: Sequence[Confirmation]) -> None:
        self._limit = limit
        self._images = images
        self._answered = {confirmation.subject.id: confirmation for confirmation in answered}
        self._told: list[Message | Confirmation] = []
        self._calls: dict[str, _Call] = {}  # of the round that goes on, by the call's own id
        self._ids = taken  # of calls
        self._again: dict[str, int] = {}  # how often each was used
        self._dropped: set[str] = set()
        self._elsewhere: dict[str, str] = {}  # calls and code that a provider ran, with their types
        self._last: _Call | None = None  # what runs that has no call of its own belongs to
        self._step: tuple[str | None, str | None] = (None, None)

    def add(self, message: Message) -> None:
        match message:
            case ToolCallMessage() if message.metadata.get("item_type") == "mcp_approval_request":
                # A question is told once, with its answer: told again, it would let the call run again.
                if message.id in self._answered:
                    self._say(message)
                    self._told.append(self._answered[message.id])
            case ToolCallMessage() if _is_providers(message):
                self._elsewhere[message.call_id or message.id] = message.type
                self._say(message)
            case ToolCallMessage():
                self._call(message)
            case CodeMessage():
                self._code(message)
            case ToolOutputMessage():
                self._output(message)
            case Message() if message.role == "computer":
                self._computer(message)
            case ReasoningMessage() if message.status != "completed":
                pass  # unsigned, or half of it
            case _:
                self._say(message)

    def whole(self) -> list[Message | Confirmation]:
        self._end_round()
        return self._told

    def _say(self, message: Message) -> None:
        """What the user or the assistant says. Outputs come before it, unless it is part of what made the calls."""
        if self._calls and not self._goes_on(message):
            self._end_round()
        if message.role == "assistant":
            self._step = (message.run_id, message.step_id)
        self._told.append(message)

    def _goes_on(self, message: Message) -> bool:
        """Whether this is part of the round that the open calls are of."""
        if message.role in ("user", "system"):
            return False
        if (message.run_id, message.step_id) != self._step:
            return False
        return message.step_id is not None or not any(call.over for call in self._calls.values())

    # -- calls and what came of them

    def _call(self, message: ToolCallMessage) -> None:
        key = message.call_id or message.id
        if message.status != "completed":
            self._dropped.add(key)  # half a call is none
            return
        self._dropped.discard(key)
        if key in self._calls:
            self._end_round()
        self._say(message)
        called = message.copy()
        called.call_id = self._unused(key or f"call-{len(self._told)}")
        self._begin(key, called)

    def _begin(self, key: str, call: ToolCallMessage) -> None:
        self._told[-1] = call
        self._calls[key] = self._last = _Call(call, len(self._told) - 1)

    def _unused(self, id: str) -> str:
        """The id, or another one: some servers count each answer's calls from 0."""
        free = id
        while free in self._ids:
            self._again[id] = self._again.get(id, 1) + 1
            free = f"{id}.{self._again[id]}"
        self._ids.add(free)
        return free

    def _code(self, message: CodeMessage) -> None:
        call = self._calls.get(message.call_id or "")
        if call is None and message.call_id is not None and _is_providers(message):
            self._elsewhere.setdefault(message.call_id, message.type)
            self._say(message)
        elif call is None:
            if message.call_id not in self._dropped:
                self._synthesise(message)
        elif "edited" in message.metadata:
            call.edited = True
            call.message = self._told[call.place] = _code_call(message, call.message)  # as it was run

    def _synthesise(self, message: CodeMessage) -> None:
        self._say(message)
        call = _code_call(message, message)
        call.call_id = self._unused(message.call_id or f"call-{message.id or len(self._told)}")
        self._begin(message.call_id or call.call_id, call)

    def _output(self, message: ToolOutputMessage) -> None:
        call = self._calls.get(message.call_id or "")
        if call is not None:
            call.answer = message
        elif self._elsewhere.get(message.call_id or "") == "tool_call":
            self._say(message)

    def _computer(self, message: Message) -> None:
        """What a run showed; without a call's id, of the newest one."""
        call = self._calls.get(message.call_id or "") or (self._last if message.call_id is None else None)
        if call is None and message.call_id in self._elsewhere:
            self._say(message)
        elif call is None and message.call_id not in self._dropped:
            if said := self._shown(message):
                self._say(TextMessage(role="user", content=f"The computer shows:\n{said}"))
                self._show([message] if isinstance(message, ImageMessage) else [])
        elif call is not None:
            call.ran = True
            call.images += [message] if isinstance(message, ImageMessage) else []
            call.printed.append(self._shown(message))

    def _shown(self, message: Message) -> str:
        match message:
            case ConsoleMessage():
                return message.content + (_INTERRUPTED if message.status == "cancelled" else "")
            case ImageMessage() if self._wire(message) is not None:
                return ""
            case TextMessage():
                return message.content
            case _:
                where = f": {message.content}" if message.format in ("path", "file_id") else ""
                what = message.type if where or isinstance(message, ImageMessage) else message.format or message.type
                return f"[displayed: {what}{where}]\n"

    def _end_round(self) -> None:
        """Tell the outputs of the round's calls, in the calls' order."""
        calls, self._calls = [*self._calls.values()], {}
        self._last, self._step = None, (None, None)
        self._told += [self._answer(call) for call in calls]
        self._show([image for call in calls for image in call.images])

    def _answer(self, call: _Call) -> ToolOutputMessage:
        message = call.message
        text, metadata = NOT_RUN, {}
        if call.answer is not None:
            text, metadata = call.answer.content, dict(call.answer.metadata)
        elif call.ran:
            text = (_EDITED if call.edited else "") + (truncate("".join(call.printed), self._limit) or _SILENT)
        text = text.encode("utf-8", "replace").decode("utf-8")  # no request can hold half a surrogate pair
        return ToolOutputMessage(
            f"{message.id}.output", name=message.name, call_id=message.call_id, content=text, metadata=metadata
        )

    # -- images

    def _show(self, images: Iterable[Message]) -> None:
        wire = [image for message in images if (image := self._wire(message)) is not None]
        if wire:
            many = "This image was" if len(wire) == 1 else f"These {len(wire)} images were"
            self._told += [TextMessage(role="user", content=f"{many} displayed:"), *wire]

    def _wire(self, message: Message) -> ImageMessage | None:
        """The image as a user would show it; None where no provider takes it."""
        format = message.format or ""
        if not self._images or not (format in ("url", "base64") or format.startswith("base64.")):
            return None
        return ImageMessage(
            message.id, role="user", format="base64.png" if format == "base64" else format, content=message.content
        )


def told(
    messages: Iterable[Message], *, limit: int, images: bool = True, answered: Sequence[Confirmation] = ()
) -> list[Message | Confirmation]:
    """The messages for a model. Output of code is cut to `limit` characters; without `images` each is told in words.
    `answered` are the provider's own questions that the newest answer asked."""
    given = list(messages)
    taken = {message.call_id or message.id for message in given if _is_providers(message)}
    view = _View(limit, taken, images=images, answered=answered)
    for message in given:
        view.add(message)
    return view.whole()


def _is_providers(message: Message) -> bool:
    """Whether a provider ran this."""
    if isinstance(message, ToolCallMessage):
        return message.provider_executed
    return (
        isinstance(message, CodeMessage) and message.call_id is not None and message.metadata.get("field") not in FIELDS
    )


def _code_call(code: CodeMessage, like: Message) -> ToolCallMessage:
    """The call that runs this code."""
    return ToolCallMessage(
        like.id,
        name=CODE_TOOL,
        call_id=like.call_id,
        content=arguments_of(code.format or "", code.content),
        group=like.group,
        index=like.index,
        run_id=like.run_id,
        step_id=like.step_id,
    )
