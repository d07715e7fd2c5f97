"""The tool calls of a run's step, and the flat messages that tell of them.

Calls grow side by side. Each is one flat message with the call's id; what it printed, drew or gave has ids made from it
(`id.console`, `id.image.0`, `id.output`), so that the same thing gives the same ids wherever it is told: the outputs of
a step that is completed in a later stream are those that were given to it before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...events import Event, MessageCreated, MessageDone
from ...messages import CodeMessage, ConsoleMessage, ImageMessage, Message, Status, ToolCallMessage, ToolOutputMessage
from .wire import Warn, Wire, integer, json_text, kept, kind_of, mapping, objects, text

__all__ = ["Call", "Step"]

_TOOLS = ("function", "code_interpreter", "file_search")


class Call:
    """One tool call of a step, as far as it was told.

    Args:
        id: the id of its first flat message, which is the call's, unless another call has it already.
    """

    def __init__(self, id: str, call_id: str, type: str, step_id: str | None, warn: Warn) -> None:
        self.id = id
        self.call_id = call_id
        self.type = type
        self.step_id = step_id
        self.warn = warn
        self.name = "" if type == "function" else type
        self.opened = False
        self.closed = False
        self.done = False
        self.given: str | None = None
        self.unnamed: list[str] = []  # arguments of a function whose name is not known yet
        self.printing = False
        self.drawn: set[str] = set()
        self.body: Wire = {}

    def feed(self, entry: Wire, *, first: bool = False) -> Iterator[Event]:
        """A piece of the call."""
        self.call_id = self.call_id or text(entry.get("id"))
        body = mapping(entry.get(self.type))
        if self.done:
            if body:
                fault = f"a delta came for tool call {self.call_id!r}, which was done; it was dropped"
                yield self.warn("delta-after-done", fault, "thread.run.step.delta")
            return
        match self.type:
            case "function":
                self.name = self.name or text(body.get("name"))
                yield from self._write(body.get("arguments"), first=first)
                if output := body.get("output"):
                    yield from self._close(None, "completed")
                    yield from self._give(output)
            case "code_interpreter":
                yield from self._write(body.get("input"), first=first)
                yield from self._show(objects(body.get("outputs")))
            case _:
                self.body = {**self.body, **kept(body, body)}
                yield from self._open()

    def finish(self, entry: Wire, status: Status) -> Iterator[Event]:
        """The call is over, with its final form."""
        self.call_id = self.call_id or text(entry.get("id"))
        if self.done:
            return
        body = mapping(entry.get(self.type))
        match self.type:
            case "function":
                self.name = self.name or text(body.get("name"))
                output = body.get("output")
                yield from self._close(json_text(body.get("arguments")), status)
                if output is not None:
                    yield from self._give(output)
                self.done = output is not None or status != "completed"
                return
            case "code_interpreter":
                yield from self._ran(body, status)
            case _:
                self.body = {**self.body, **kept(body, body)}
        yield from self.settle(status)

    def settle(self, status: Status) -> Iterator[Event]:
        """What is open of the call is over."""
        if self.done:
            return
        self.done = True
        if self.type in ("function", "code_interpreter"):
            yield from self._close(None, status)
            if self.printing:
                yield MessageDone(self._console(status=status))
            return
        results = self.body.get("results")
        rest = {key: value for key, value in self.body.items() if key != "results"}
        search = self.type == "file_search"
        yield from self._close("" if search or not rest else json_text(rest), status, rest if search else {})
        if results is not None:
            yield from self._give(results)

    def _write(self, value: Any, *, first: bool) -> Iterator[Event]:
        """A piece of the arguments, or of the code."""
        piece = json_text(value)
        repeated = bool(piece) and self.given == piece
        if first:
            self.given = piece
        elif piece:
            self.given = None
        if self.closed:
            if piece:
                fault = f"a piece of tool call {self.call_id!r} came after what it gave; it was dropped"
                yield self.warn("delta-after-done", fault, "thread.run.step.delta")
            return
        if self.type == "function" and not self.name:
            if piece and not repeated:
                self.unnamed.append(piece)
            return
        yield from self._open()
        if piece and not repeated:
            make: Any = self._make.delta_event
            yield make(self.id, piece)

    @property
    def _make(self) -> type[Message]:
        return CodeMessage if self.type == "code_interpreter" else ToolCallMessage

    def _open(self) -> Iterator[Event]:
        if self.opened:
            return
        self.opened = True
        yield MessageCreated(self._message())
        make: Any = self._make.delta_event
        held, self.unnamed = self.unnamed, []
        for piece in held:
            yield make(self.id, piece)

    def _close(self, content: str | None, status: Status, metadata: Wire | None = None) -> Iterator[Event]:
        if self.closed:
            return
        self.closed = True
        if self.unnamed and not content:
            content = "".join(self.unnamed)
        yield MessageDone(self._message(content=content or None, status=status, metadata=metadata))

    def _message(self, **fields: Any) -> Message:
        fields["call_id"] = self.call_id or self.id
        fields["step_id"] = self.step_id
        if self.type == "code_interpreter":
            return CodeMessage(self.id, format="python", **fields)
        executed = self.type != "function"
        return ToolCallMessage(self.id, name=self.name or None, provider_executed=executed, **fields)

    def _give(self, output: Any) -> Iterator[Event]:
        """What the tool gave."""
        more: dict[str, Any] = {"call_id": self.call_id or self.id, "step_id": self.step_id, "name": self.name or None}
        yield MessageDone(ToolOutputMessage(f"{self.id}.output", content=json_text(output), **more))

    # -- what code gave

    def _show(self, outputs: list[Wire]) -> Iterator[Event]:
        for output in outputs:
            if logs := text(output.get("logs")):
                yield from self._print(logs)
            yield from self._draw(output)

    def _print(self, logs: str) -> Iterator[Event]:
        yield from self._close(None, "completed")  # what runs is written
        if not self.printing:
            self.printing = True
            yield MessageCreated(self._console())
        yield ConsoleMessage.delta_event(f"{self.id}.console", logs)

    def _draw(self, output: Wire) -> Iterator[Event]:
        file_id = text(mapping(output.get("image")).get("file_id"))
        if not file_id or file_id in self.drawn:
            return
        yield from self._close(None, "completed")
        id = f"{self.id}.image.{len(self.drawn)}"
        more: dict[str, Any] = {"call_id": self.call_id or self.id, "step_id": self.step_id, "index": len(self.drawn)}
        self.drawn.add(file_id)
        yield MessageDone(ImageMessage(id, role="computer", format="file_id", content=file_id, **more))

    def _ran(self, body: Wire, status: Status) -> Iterator[Event]:
        """The final form of code, and of what it gave."""
        yield from self._close(text(body.get("input")), status)
        outputs = objects(body.get("outputs"))
        logs = [piece for output in outputs if (piece := text(output.get("logs")))]
        if not self.printing:
            for piece in logs:
                yield from self._print(piece)
        if self.printing:
            self.printing = False
            yield MessageDone(self._console(status=status, content="".join(logs) or None))
        for output in outputs:
            yield from self._draw(output)

    def _console(self, **fields: Any) -> ConsoleMessage:
        return ConsoleMessage(f"{self.id}.console", call_id=self.call_id or self.id, step_id=self.step_id, **fields)


class Step:
    """One step of a run, as far as it was told.

    Args:
        announced: whether it begins in this stream; if not, it began in an earlier one.
        unused: gives an id that no flat message of this stream has, from the one that is wanted.
    """

    def __init__(self, id: str, warn: Warn, unused: Callable[[str], str], *, announced: bool = True) -> None:
        self.id = id
        self.warn = warn
        self.unused = unused
        self.announced = announced
        self.calls: dict[int, Call] = {}
        self.by_id: dict[str, Call] = {}
        self.latest: Call | None = None
        self.done = False
        self._next = 0  # beyond every index that was told

    def begin(self, details: Wire) -> Iterator[Event]:
        """The step begins, perhaps with calls already."""
        if not self.calls:
            for position, entry in enumerate(objects(details.get("tool_calls"))):
                yield from self.grow(position, entry, first=True)

    def grow(self, position: int, entry: Wire, *, first: bool = False) -> Iterator[Event]:
        """A piece of the call that an entry of a delta names."""
        call = self._find(position, entry, first=first)
        if call is not None:
            self.latest = call
            yield from call.feed(entry, first=first)

    def finish(self, details: Wire, status: Status) -> Iterator[Event]:
        """The step is over, with the final form of its calls."""
        entries = objects(details.get("tool_calls"))
        final = {text(entry.get("id")) for entry in entries} - {""}
        spare = iter([call for _, call in sorted(self.calls.items()) if call.call_id not in final])
        for entry in entries:
            call = self.by_id.get(text(entry.get("id"))) or next(spare, None)
            if call is None or (entry.get("type") and call.type != kind_of(entry, _TOOLS)):
                call = self._enter(self._next, entry)
            if call is not None:
                yield from call.finish(entry, status)
        yield from self.settle(status)

    def answer(self, entry: Wire) -> Iterator[Event]:
        """A call that the run waits for is all there."""
        call = self.by_id.get(text(entry.get("id"))) or self._enter(self._next, entry)
        if call is not None:
            yield from call.finish(entry, "completed")

    def settle(self, status: Status) -> Iterator[Event]:
        """What is open of the step is over."""
        for call in self.calls.values():
            yield from call.settle(status)
        self.done = True

    def _find(self, position: int, entry: Wire, *, first: bool) -> Call | None:
        id, index = text(entry.get("id")), integer(entry.get("index"))
        known = self.by_id.get(id) if id else None
        if known is not None and (index is None or self.calls.get(index) is known):
            return known
        if index is None:
            if id or first:
                return self._enter(self._next, entry)
            if self.latest is not None and not position:
                return self.latest
            index = position
        call = self.calls.get(index)
        if call is None:
            return self._enter(index, entry)
        if id and call.call_id and call.call_id != id:  # a server that counts no calls
            return known or self._enter(self._next, entry)
        if id:
            self.by_id.setdefault(id, call)
        return call

    def _enter(self, index: int, entry: Wire) -> Call | None:
        """A new call; None of something that is not known to be one."""
        kind = kind_of(entry, _TOOLS)
        if not kind:
            return None
        index = self._next if index in self.calls else index
        self._next = max(self._next, index + 1)
        call_id = text(entry.get("id"))
        id = self.unused(call_id or f"{self.id or 'step'}.{index}")
        call = Call(id, call_id, kind, (self.id or None) if self.announced else None, self.warn)
        self.calls[index] = call
        if call_id:
            self.by_id.setdefault(call_id, call)
        return call
