"""The conversation as a model reads it: a view, which leaves the messages themselves unchanged.

`model_view(messages)` returns messages that `to_input` of every protocol accepts. Each call in it has one output: what
the code printed, what the tool returned, or why there is nothing. Code without a call, as in Open Interpreter's lists,
becomes the call that would have run it. Images that code displayed follow the outputs, as messages of the user.

A *round* is the calls that the model made in one answer. Its calls come first, then their outputs in the same order,
because providers accept nothing in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

from ..answers import Confirmation
from ..core.unique_ids import UniqueIds
from ..events import Event, StreamWarning
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
from ..protocols.request_content import is_of_executed_call
from .code import CODE_TOOL, FIELDS, code_arguments
from .conversation import displayed_text, image_text, model_text

__all__ = ["UNRECORDED", "model_view", "unread_images"]

UNRECORDED = "No output of this call was recorded."
_NO_OUTPUT = "(no output)"
_EDITED = "(The user edited the code before it ran; the call above shows the edited code.)\n"
_INTERRUPTED = "\n(interrupted)"


def model_view(
    messages: Iterable[Message], *, limit: int, images: bool = True, answered: Sequence[Confirmation] = ()
) -> list[Message | Confirmation]:
    """Return the messages as a model reads them.

    Args:
        messages: the conversation.
        limit: characters of one run's console output that the model reads; the middle of a longer one is left out.
        images: whether the model takes images; otherwise its outputs mention them in words.
        answered: the provider's own questions in its newest answer, which the request answers.
    """
    conversation = [message for message in messages if message.parent_id is None]
    provider_ids = {message.call_id or message.id for message in conversation if _ran_at_provider(message)}
    view = _View(limit, provider_ids, images=images, answered=answered)
    for message in conversation:
        view.add(message)
    return view.finish()


def unread_images(messages: Sequence[Message]) -> list[Event]:
    """Return a warning if the user's newest messages have an image, of which the model only reads that there is one."""
    newest = takewhile(lambda message: message.role == "user", reversed(messages))
    if not any(isinstance(message, ImageMessage) for message in newest):
        return []
    return [StreamWarning("images", "the model takes no images: it reads only that there is one", kind="image")]


class _RoundCall:
    """A call of the open round, and its results so far."""

    def __init__(self, message: ToolCallMessage, place: int) -> None:
        self.message = message
        self.place = place  # in the view
        self.output: ToolOutputMessage | None = None
        self.printed: list[str] = []
        self.images: list[ImageMessage] = []
        self.ran = False
        self.edited = False

    @property
    def has_result(self) -> bool:
        return self.output is not None or self.ran


class _View:
    """The messages of the view so far, and the open round: calls whose outputs follow."""

    def __init__(self, limit: int, used_ids: set[str], *, images: bool, answered: Sequence[Confirmation]) -> None:
        self._limit = limit
        self._images = images
        self._answered = {confirmation.subject.id: confirmation for confirmation in answered}
        self._messages: list[Message | Confirmation] = []
        self._calls: dict[str, _RoundCall] = {}  # of the open round, by the call's own id
        self._ids = UniqueIds(separator="_")  # of calls: some servers number each answer's from 0
        for id in used_ids:
            self._ids.unused(id)
        self._dropped: set[str] = set()  # ids of calls that were cut short
        self._at_provider: dict[str, str] = {}  # type of the message (call or code) by id, of what a provider ran
        self._last: _RoundCall | None = None  # output without a call's id belongs to it
        self._step: tuple[str | None, str | None] = (None, None)  # run and step of the open round

    def add(self, message: Message) -> None:
        """Take the next message of the conversation."""
        match message:
            case Message(recipient="user"):
                pass  # not for the model
            case ToolCallMessage() if message.metadata.get("item_type") == "mcp_approval_request":
                # Sent once, with its answer: sent again, an approval would let the call run again.
                if message.id in self._answered:
                    self._append(message)
                    self._messages.append(self._answered[message.id])
            case ToolCallMessage() if _ran_at_provider(message):
                self._at_provider[message.call_id or message.id] = message.type
                self._append(message)
            case ToolCallMessage():
                self._add_call(message)
            case Message() if message.role == "assistant" and message.status == "failed":
                pass  # the fragment of an answer that failed, as older conversations have it
            case CodeMessage():
                self._add_code(message)
            case ToolOutputMessage():
                self._add_output(message)
            case Message() if message.role == "computer":
                self._add_result(message)
            case ReasoningMessage() if message.status != "completed":
                pass  # incomplete, so unsigned: no provider accepts it back
            case ImageMessage() if message.role == "user" and not self._images:
                self._append(TextMessage(role="user", content=image_text(message)))
            case _:
                self._append(message)

    def finish(self) -> list[Message | Confirmation]:
        """Return the view, after the last message."""
        self._end_round()
        return self._messages

    def _append(self, message: Message) -> None:
        """A message of the user or the assistant. It ends the open round, unless it is of the answer that made the calls."""
        if self._calls and not self._continues_round(message):
            self._end_round()
        if message.role == "assistant":
            self._step = (message.run_id, message.step_id)
        self._messages.append(message)

    def _continues_round(self, message: Message) -> bool:
        """Whether the message is of the answer that made the open round's calls."""
        if message.role in ("user", "system"):
            return False
        if (message.run_id, message.step_id) != self._step:
            return False
        return message.step_id is not None or not any(call.has_result for call in self._calls.values())

    # -- calls and their results

    def _add_call(self, message: ToolCallMessage) -> None:
        key = message.call_id or message.id
        if message.status != "completed":
            self._dropped.add(key)  # it cannot be answered, so the model does not see it
            return
        self._dropped.discard(key)
        if key in self._calls:
            self._end_round()
        self._append(message)
        call = message.copy()
        call.call_id = self._ids.unused(key or f"call-{len(self._messages)}")
        self._open_call(key, call)

    def _open_call(self, key: str, call: ToolCallMessage) -> None:
        """Put the call in the place of the message that was added last, and await its result."""
        self._messages[-1] = call
        self._calls[key] = self._last = _RoundCall(call, len(self._messages) - 1)

    def _add_code(self, message: CodeMessage) -> None:
        call = self._calls.get(message.call_id or "")
        if call is None and message.call_id is not None and _ran_at_provider(message):
            self._at_provider.setdefault(message.call_id, message.type)
            self._append(message)
        elif call is None:
            if message.call_id not in self._dropped:
                self._call_for_code(message)
        elif "edited" in message.metadata:
            call.edited = True
            call.message = self._messages[call.place] = _code_call(message, call.message)

    def _call_for_code(self, message: CodeMessage) -> None:
        """Add code that has no call as the call that would have run it."""
        self._append(message)
        call = _code_call(message, message)
        call.call_id = self._ids.unused(message.call_id or f"call-{message.id or len(self._messages)}")
        self._open_call(message.call_id or call.call_id, call)

    def _add_output(self, message: ToolOutputMessage) -> None:
        call = self._calls.get(message.call_id or "") or (self._last if message.call_id is None else None)
        if call is not None:
            call.output = message
        elif self._at_provider.get(message.call_id or "") == "tool_call" or is_of_executed_call(message):
            self._append(message)
        elif message.call_id not in self._dropped:
            self._append(TextMessage(role="user", content=f"The output of a tool:\n{message.content}"))

    def _add_result(self, message: Message) -> None:
        """A message that running code produced. Without a call's id it belongs to the newest call."""
        call = self._calls.get(message.call_id or "") or (self._last if message.call_id is None else None)
        if call is None and message.call_id in self._at_provider:
            self._append(message)
        elif call is None and message.call_id not in self._dropped:
            if self._calls:
                self._end_round()
            if text := model_text(self._as_text(message), self._limit):
                self._append(TextMessage(role="user", content=f"The computer shows:\n{text}"))
            self._show([message])
        elif call is not None:
            call.ran = True
            call.images += [message] if isinstance(message, ImageMessage) else []
            call.printed.append(self._as_text(message))

    def _as_text(self, message: Message) -> str:
        """Return what the call's output says of the message: nothing, if it is an image that the model sees."""
        match message:
            case ConsoleMessage():
                return message.content + (_INTERRUPTED if message.status == "cancelled" else "")
            case ImageMessage() if self._as_user_image(message) is not None:
                return ""
            case TextMessage():
                return message.content
            case _:
                return displayed_text(message)

    def _end_round(self) -> None:
        """Add the outputs of the round's calls, in the order of the calls, then the images that they displayed."""
        calls, self._calls = [*self._calls.values()], {}
        self._last, self._step = None, (None, None)
        self._messages += [self._output_of(call) for call in calls]
        self._show([image for call in calls for image in call.images])

    def _output_of(self, call: _RoundCall) -> ToolOutputMessage:
        message = call.message
        text, metadata = UNRECORDED, {}
        if call.output is not None:
            text, metadata = truncate(call.output.content, self._limit), dict(call.output.metadata)
            if "action" in metadata:
                text = call.output.content  # a record, which is bounded and begins with what happened
        elif call.ran:
            text = model_text("".join(call.printed), self._limit) or _NO_OUTPUT
        if call.ran and call.edited:
            text = _EDITED + text
        text = text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate cannot be sent
        return ToolOutputMessage(
            f"{message.id}.output", name=message.name, call_id=message.call_id, content=text, metadata=metadata
        )

    # -- images

    def _show(self, images: Iterable[Message]) -> None:
        shown = [image for message in images if (image := self._as_user_image(message)) is not None]
        if shown:
            subject = "This image was" if len(shown) == 1 else f"These {len(shown)} images were"
            self._messages += [TextMessage(role="user", content=f"{subject} displayed:"), *shown]

    def _as_user_image(self, message: Message) -> ImageMessage | None:
        """Return the image as a message of the user; None if the model, or every provider, does not take it."""
        format = message.format or ""
        if (
            not isinstance(message, ImageMessage)
            or not self._images
            or not (format in ("url", "base64") or format.startswith("base64."))
        ):
            return None
        return ImageMessage(
            message.id, role="user", format="base64.png" if format == "base64" else format, content=message.content
        )


def _ran_at_provider(message: Message) -> bool:
    """Whether the message is a call or code that the provider itself ran."""
    if isinstance(message, ToolCallMessage):
        return message.provider_executed
    return (
        isinstance(message, CodeMessage) and message.call_id is not None and message.metadata.get("field") not in FIELDS
    )


def _code_call(code: CodeMessage, like: Message) -> ToolCallMessage:
    """Return the call that runs this code, in the place of the message `like`."""
    return ToolCallMessage(
        like.id,
        name=CODE_TOOL,
        call_id=like.call_id,
        content=code_arguments(code.format or "", code.content),
        group=like.group,
        index=like.index,
        run_id=like.run_id,
        step_id=like.step_id,
    )
