"""The tool calls of a run step, decoded to flat messages.

A call becomes one flat message with the call's id. Its console output, images and results have ids made from that
(`id.console`, `id.image.0`, `id.output`), so the same thing has the same id in every stream: a step that is completed in
a later stream has the outputs that were submitted for it before, under the same ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...events import CallPassed, Delta, Event, MessageCreated, MessageDone, MetadataHeld
from ...messages import CodeMessage, ConsoleMessage, ImageMessage, Message, Status, ToolCallMessage, ToolOutputMessage
from ..final_forms import ItemForm, content_key
from ..values import WireObject, as_object, as_objects, as_text, is_object, parse_json, text_or_json
from .wire import Warn, nonempty_values

__all__ = ["TOOLS", "AssistantsCall", "content_of"]

TOOLS = ("function", "code_interpreter", "file_search")
"""The kinds of calls that the API documents."""


def content_of(kind: str, body: WireObject) -> str:
    """Return the arguments of a call of this kind, or its code, in its final form."""
    return text_or_json(body.get("input" if kind == "code_interpreter" else "arguments"))


class AssistantsCall:
    """One tool call, and the flat messages of its outputs.

    The call is created with its first piece, once its name is there; then its content grows, by `add_delta`; its content
    is done when an output arrives or the call ends; the call is done when nothing more of it can come.

    Args:
        id: of its first flat message: the call's own, unless another call has that.
        call_id: the call's own id; "" where it is not there yet.
        type: its kind, such as `function`.
        step_id: of its step, if that began in this stream.
        index: its place among the calls of its step.
        warn: makes a warning.
    """

    def __init__(self, id: str, call_id: str, type: str, step_id: str | None, index: int, warn: Warn) -> None:
        self.id = id
        self.call_id = call_id
        self.type = type
        self.index = index
        self.is_done = False
        self._step_id = step_id
        self._warn = warn
        self._name = "" if type == "function" else type
        self._is_created = False
        self._is_content_done = False
        self._initial_piece: str | None = None  # what the call had when its step began; a first delta may repeat it
        self._pieces_before_name: list[str] = []
        self._is_passed = False  # the engine has ended it, as its arguments are complete
        self._has_open_console = False
        self._image_ids: set[str] = set()
        self._body: WireObject = {}  # of a call that neither is a function's nor has code
        self._pieces: list[str] = []  # of its content, until that is done
        self._content: int | None = None  # a key of the content, once that is done

    @property
    def takes_pieces(self) -> bool:
        """Whether a further piece of its arguments, or of its code, does no more than extend them."""
        is_open = self._is_created and not (self._is_content_done or self.is_done)
        return is_open and self._initial_piece is None and self.type in ("function", "code_interpreter")

    def add_delta(self, entry: WireObject, *, is_initial: bool = False) -> Iterator[Event]:
        """Add an entry of a delta to the call; `is_initial` if its step began with it."""
        self.call_id = self.call_id or as_text(entry.get("id"))
        body = as_object(entry.get(self.type))
        if self.is_done:
            if body:
                fault = f"a delta came for tool call {self.call_id!r}, which was done; it was skipped"
                yield self._warn("delta-after-done", fault, "thread.run.step.delta")
            return
        match self.type:
            case "function":
                self._name = self._name or as_text(body.get("name"))
                yield from self._add_content(body.get("arguments"), is_initial=is_initial)
                if output := body.get("output"):
                    yield from self._complete_content(None, "completed")
                    yield self._output(output)
            case "code_interpreter":
                yield from self._add_content(body.get("input"), is_initial=is_initial)
                yield from self._add_code_outputs(as_objects(body.get("outputs")))
            case _:
                self._body = {**self._body, **nonempty_values(body, body)}
                yield from self._create()

    @property
    def form(self) -> ItemForm:
        """The key by which a repeated call is found."""
        content = self._content if self._is_content_done else content_key("".join(self._pieces))
        return ItemForm(self.type, self.call_id, name=self._name, content=content)

    def passed(self) -> Iterator[Event]:
        """Another call of the step begins after it."""
        if self.type == "function" and self._is_created and not self._is_content_done:
            self._is_passed = is_object(parse_json("".join(self._pieces)))
            yield CallPassed(self._message(status="completed"))

    def end_with(self, entry: WireObject, status: Status) -> Iterator[Event]:
        """End the call with its final form. A function's call without an output still waits for that."""
        if not (self._is_content_done or self._is_passed):  # outputs are submitted under the id that the run waits for
            self.call_id = as_text(entry.get("id")) or self.call_id
        if self.is_done:
            return
        body = as_object(entry.get(self.type))
        match self.type:
            case "function":
                self._name = self._name or as_text(body.get("name"))
                output = body.get("output")
                yield from self._complete_content(text_or_json(body.get("arguments")), status)
                if output is not None:
                    yield self._output(output)
                self.is_done = output is not None or status != "completed"
                return
            case "code_interpreter":
                yield from self._complete_code(body, status)
            case _:
                self._body = {**self._body, **nonempty_values(body, body)}
        yield from self.close(status)

    def close(self, status: Status) -> Iterator[Event]:
        """End the call's open messages."""
        if self.is_done:
            return
        self.is_done = True
        if self.type in ("function", "code_interpreter"):
            yield from self._complete_content(None, status)
            if self._has_open_console:
                yield MessageDone(self._console(status=status))
            return
        results = self._body.get("results")
        rest = {key: value for key, value in self._body.items() if key != "results"}
        if self.type == "file_search":
            yield from self._complete_content("", status, rest)
        else:
            yield from self._complete_content(text_or_json(rest) if rest else "", status)
        if results is not None:
            yield self._output(results)

    # -- the call itself

    def _add_content(self, value: Any, *, is_initial: bool) -> Iterator[Event]:
        """Add a piece of the arguments, or of the code."""
        piece = text_or_json(value)
        is_repeated = bool(piece) and self._initial_piece == piece
        if is_initial:
            self._initial_piece = piece
        elif piece:
            self._initial_piece = None
        if self._is_content_done:
            if piece:
                fault = f"a piece of tool call {self.call_id!r} came after its output; it was skipped"
                yield self._warn("delta-after-done", fault, "thread.run.step.delta")
            return
        if self.type == "function" and not self._name:
            if piece and not is_repeated:
                self._pieces_before_name.append(piece)
                yield MetadataHeld(None, len(piece))
            return
        yield from self._create()
        if piece and not is_repeated:
            yield self.delta(piece)

    @property
    def _message_class(self) -> type[Message]:
        return CodeMessage if self.type == "code_interpreter" else ToolCallMessage

    def delta(self, piece: str) -> Delta:
        """Return the event of a piece of its arguments, or of its code."""
        self._pieces.append(piece)
        make_delta: Any = self._message_class.delta_event
        delta: Delta = make_delta(self.id, piece)
        return delta

    def _create(self) -> Iterator[Event]:
        if self._is_created:
            return
        self._is_created = True
        yield MessageCreated(self._message())
        earlier, self._pieces_before_name = self._pieces_before_name, []
        yield from map(self.delta, earlier)

    def _complete_content(
        self, content: str | None, status: Status, metadata: WireObject | None = None
    ) -> Iterator[Event]:
        """Emit the end of the arguments, or of the code; without content, what was streamed stays."""
        if self._is_content_done:
            if content:  # the engine compares it
                yield MessageDone(self._message(content=content))
            return
        self._is_content_done = True
        if self._pieces_before_name and not content:
            content = "".join(self._pieces_before_name)
        self._content = content_key(content or "".join(self._pieces))
        self._pieces.clear()
        yield MessageDone(self._message(content=content or None, status=status, metadata=metadata))

    def _message(self, **fields: Any) -> Message:
        if self.type == "code_interpreter":
            return CodeMessage(self.id, format="python", **self._links, **fields)
        is_executed = self.type != "function"
        name = self._name or None
        return ToolCallMessage(self.id, name=name, provider_executed=is_executed, **self._links, **fields)

    @property
    def _links(self) -> dict[str, Any]:
        """The fields that all its flat messages have."""
        return {"call_id": self.call_id or self.id, "step_id": self._step_id}

    def _output(self, output: Any) -> Event:
        """Return the tool's result."""
        content, name = text_or_json(output), self._name or None
        return MessageDone(ToolOutputMessage(f"{self.id}.output", content=content, name=name, **self._links))

    # -- outputs of code

    def _add_code_outputs(self, outputs: list[WireObject]) -> Iterator[Event]:
        for output in outputs:
            if logs := as_text(output.get("logs")):
                yield from self._add_logs(logs)
            yield from self._add_image(output)

    def _add_logs(self, logs: str) -> Iterator[Event]:
        yield from self._complete_content(None, "completed")  # code that runs is complete
        if not self._has_open_console:
            self._has_open_console = True
            yield MessageCreated(self._console())
        yield ConsoleMessage.delta_event(f"{self.id}.console", logs)

    def _add_image(self, output: WireObject) -> Iterator[Event]:
        file_id = as_text(as_object(output.get("image")).get("file_id"))
        if not file_id or file_id in self._image_ids:
            return
        yield from self._complete_content(None, "completed")
        index = len(self._image_ids)
        self._image_ids.add(file_id)
        image = ImageMessage(
            f"{self.id}.image.{index}", role="computer", format="file_id", content=file_id, index=index, **self._links
        )
        yield MessageDone(image)

    def _complete_code(self, body: WireObject, status: Status) -> Iterator[Event]:
        """Yield the final form of the code and of its outputs."""
        yield from self._complete_content(as_text(body.get("input")), status)
        outputs = as_objects(body.get("outputs"))
        logs = [piece for output in outputs if (piece := as_text(output.get("logs")))]
        if not self._has_open_console:
            for piece in logs:
                yield from self._add_logs(piece)
        if self._has_open_console:
            self._has_open_console = False
            yield MessageDone(self._console(status=status, content="".join(logs) or None))
        for output in outputs:
            yield from self._add_image(output)

    def _console(self, **fields: Any) -> ConsoleMessage:
        return ConsoleMessage(f"{self.id}.console", **self._links, **fields)
