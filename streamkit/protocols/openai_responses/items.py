"""The output items of the Responses API, and the messages that tell of them.

An item is one thing that the model or its provider made: a message, reasoning, a call, what a call gave. It has one
or more parts, and each part is one flat message: the first has the item's id, the others ids made from it, so that
the same item gives the same ids whether it is streamed, repeated whole at its end, or told only whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ...answers import Confirmation
from ...events import ConfirmationCreated, Event, MessageCreated, MessageDone
from ...messages import (
    Annotation,
    CodeMessage,
    ConsoleMessage,
    ImageMessage,
    Message,
    ReasoningMessage,
    RefusalMessage,
    Status,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
)
from .wire import Wire, json_text, mapping, read_part, sequence, text

__all__ = ["CALLS", "KINDS", "OUTPUTS", "PART_KINDS", "STATUSES", "Item"]


class Kind(NamedTuple):
    """A kind of part. `beside` parts are made by the call that the item tells of, and have ids of their own."""

    make: type[Message]
    format: str | None = None
    beside: str = ""


KINDS: dict[str, Kind] = {
    "text": Kind(TextMessage),
    "refusal": Kind(RefusalMessage),
    "summary": Kind(ReasoningMessage, "summary"),
    "reasoning": Kind(ReasoningMessage),
    "redacted": Kind(ReasoningMessage, "redacted"),
    "call": Kind(ToolCallMessage),
    "output": Kind(ToolOutputMessage, beside="{id}.output"),
    "result": Kind(ToolOutputMessage),
    "code": Kind(CodeMessage, "python"),
    "logs": Kind(ConsoleMessage, beside="{id}.console"),
    "plot": Kind(ImageMessage, "url", beside="{id}.image.{index}"),
    "command": Kind(CodeMessage, "shell"),
    "console": Kind(ConsoleMessage),
    "image": Kind(ImageMessage, "base64.png"),
}

PART_KINDS = {
    "output_text": "text",
    "text": "text",
    "refusal": "refusal",
    "reasoning_text": "reasoning",
    "summary_text": "summary",
}


class Call(NamedTuple):
    """How an item tells of a call: where its arguments are, who executes it, and whether it has a name of its own
    (else it is named by its type)."""

    arguments: tuple[str, ...] = ("arguments",)
    executed: bool = False
    named: bool = False


CALLS: dict[str, Call] = {
    "function_call": Call(named=True),
    "custom_tool_call": Call(("input",), named=True),
    "computer_call": Call(("action", "actions")),
    "local_shell_call": Call(("action",)),
    "apply_patch_call": Call(("operation",)),
    "tool_search_call": Call(),  # executed by whom its `execution` says
    "mcp_call": Call(executed=True, named=True),
    "mcp_approval_request": Call(executed=True, named=True),
    "web_search_call": Call(("action", "arguments"), executed=True),  # xAI has arguments, and no action
    "file_search_call": Call(("queries",), executed=True),
}

# Items that hold what a call gave, and their key for it.
OUTPUTS = {
    "function_call_output": "output",
    "custom_tool_call_output": "output",
    "local_shell_call_output": "output",
    "apply_patch_call_output": "output",
    "tool_search_output": "tools",
}

# What a message has a place of its own for; the rest of an item is metadata.
_PLACED = frozenset(
    [
        "id",
        "type",
        "status",
        "role",
        "content",
        "summary",
        "encrypted_content",
        "name",
        "call_id",
        "arguments",
        "input",
        "action",
        "actions",
        "operation",
        "queries",
        "results",
        "result",
        "output",
        "outputs",
        "tools",
        "code",
    ]
)

STATUSES: dict[str, Status] = {
    "completed": "completed",
    "incomplete": "incomplete",
    "failed": "failed",
    "cancelled": "cancelled",
}


# The types of items whose own fields say all that there is to learn of them.
_PLAIN = frozenset(("message", "reasoning"))


class _Final(NamedTuple):
    """The final form of a part: its content, and what else its message gets."""

    content: str
    more: Wire


class Item:
    """One output item, as far as it was told.

    Args:
        id: the id of its first message; `place` is its output_index, `type` the item's.
    """

    def __init__(self, id: str, type: str, place: int | None = None) -> None:
        self.id = id
        self.type = type
        self.place = place
        self.role = ""
        self.name = ""
        self.call_id = ""
        self.executed = False
        self.metadata: dict[str, Any] = {}
        self.parts: dict[tuple[str, int], str] = {}  # the message ids of the parts that were told
        self.by_id: dict[str, tuple[int, str, int]] = {}  # by message id: which part it is, its kind, its index
        self.growing: set[str] = set()  # the item_ids by which its parts grow
        self.held: dict[str, _Final] = {}  # of parts whose final form is known while the item's status is not
        self.unnamed: list[str] = []  # arguments of a call whose name is not known yet
        self.closed: set[str] = set()
        self.done = False
        self.partial = False  # a preliminary image was told
        if type not in _PLAIN:
            self.learn({})

    def learn(self, wire: Wire) -> None:
        """Take over what the item says of itself."""
        self.type = text(wire.get("type")) or self.type
        self.role = text(wire.get("role")) or self.role
        self.name = text(wire.get("name")) or self.name
        self.call_id = text(wire.get("call_id")) or self.call_id
        self.metadata |= {key: value for key, value in wire.items() if key not in _PLACED and value not in (None, [])}
        if (call := CALLS.get(self.type)) is not None:
            self.executed = call.executed or wire.get("execution", self.metadata.get("execution")) == "server"
            if not call.named:
                self.name = self.name or self.type.removesuffix("_call")
            if self.type == "custom_tool_call":
                self.metadata["custom"] = True
            elif self.type != "function_call":
                self.metadata["item_type"] = self.type
        elif self.type in OUTPUTS and self.type != "function_call_output":
            self.metadata["item_type"] = self.type
        elif self.type == "shell_call":
            self.metadata["item_type"] = self.type
            limits = mapping(wire.get("action"))
            self.metadata |= {key: limits[key] for key in limits if key != "commands" and limits[key] is not None}
            contained = mapping(self.metadata.get("environment")).get("type") == "container_reference"
            if wire and not contained:
                self.metadata["wants_output"] = True

    # -- its parts

    def tell(self, kind: str, index: int, id: str) -> None:
        """A part's message was told, by this id."""
        self.parts[kind, index] = id
        self.by_id.setdefault(id, (len(self.by_id), kind, index))

    def id_for(self, kind: str, index: int) -> str:
        """The id of a part's message."""
        known = self.parts.get((kind, index))
        if known is not None:
            return known
        if beside := KINDS[kind].beside:
            return beside.format(id=self.id, index=index)
        first = index == 0 or not self.parts  # some servers count the parts of all items on
        id = self.id if first else f"{self.id}.{index}"
        return f"{self.id}.{kind}.{index}" if id in self.by_id else id

    def message(
        self,
        kind: str,
        index: int = 0,
        content: str | None = None,
        *,
        status: Status = "in_progress",
        metadata: Wire | None = None,
        annotations: Sequence[Annotation] = (),
    ) -> Message:
        """A part's message; empty content counts as unknown, so that what was streamed stays."""
        make, format, beside = KINDS[kind]
        id = self.id_for(kind, index)
        if (kind, index) not in self.parts:
            self.tell(kind, index, id)
        fields: dict[str, Any] = {"format": format, "group": self.id, "index": index, "status": status}
        fields["content"] = content or None
        fields["metadata"] = {**({} if beside else self.metadata), **(metadata or {})}
        if make is TextMessage:
            fields["annotations"] = annotations
        if kind in ("text", "refusal"):
            fields["role"] = self.role
        elif make is not ReasoningMessage and kind != "image":
            fields["call_id"] = self.call_id or (None if kind in ("command", "console", "result") else self.id)
        if kind in ("call", "output", "result"):
            fields["name"] = self.name or None
        match kind:
            case "call":
                fields["provider_executed"] = self.executed
            case "plot":
                fields["role"] = "computer"
            case "image":
                fields["format"] = self._image_format(content)
            case _:
                pass
        return make(id, **fields)

    def _image_format(self, content: str | None) -> str:
        if content and content.startswith(("https://", "http://")):
            return "url"
        return f"base64.{text(self.metadata.get('output_format')) or 'png'}"

    def open(self, kind: str, index: int = 0) -> Iterator[Event]:
        """The beginning of a part, once."""
        if (kind, index) not in self.parts:
            yield MessageCreated(self.message(kind, index))

    def hold(self, kind: str, index: int, content: str, more: Wire) -> None:
        """Keep the final form of a part until it is known how the item ends."""
        id = self.id_for(kind, index)
        if (kind, index) not in self.parts:
            self.tell(kind, index, id)
        if id not in self.closed:
            self.held[id] = _Final(content, more)

    def close(self, kind: str, index: int, content: str | None, status: Status, **more: Any) -> Iterator[Event]:
        """The end of a part, once."""
        id = self.parts.get((kind, index))
        if id is None:
            id = self.id_for(kind, index)
            self.tell(kind, index, id)
        if id in self.closed:
            return
        self.closed.add(id)
        held = self.held.pop(id, None)
        if held is not None:
            content = content or held.content
            for key, value in held.more.items():  # annotations, and metadata
                known = more.get(key)
                more[key] = {**value, **known} if known and key == "metadata" else known or value
        yield MessageDone(self.message(kind, index, content, status=status, **more))

    def flush(self, status: Status) -> Iterator[Event]:
        """The end of those parts whose final content is known."""
        for _, kind, index in sorted(self.by_id[id] for id in self.held):
            yield from self.close(kind, index, None, status)

    def settle(self, status: Status) -> Iterator[Event]:
        """The end of the item, without its final form."""
        if self.unnamed and not self.parts:
            self.hold("call", 0, "".join(self.unnamed), {})
        for kind, index in [*self.parts]:
            yield from self.close(kind, index, None, status)
        self.done = True

    # -- the whole item

    def has_all_of(self, wire: Wire) -> bool:
        """Whether all parts of its final form have been told, and ended."""
        return self.type == "message" and len(sequence(wire.get("content"))) == len(self.closed) == len(self.parts)

    def finish(self, wire: Wire, status: Status) -> Iterator[Event]:
        """The end of the item, with its final form; `status` holds where it has none of its own."""
        self.learn(wire)
        status = STATUSES.get(text(wire.get("status")), status)
        yield from self._whole(wire, status)
        yield from self.settle(status)

    def _whole(self, wire: Wire, status: Status) -> Iterator[Event]:
        match self.type:
            case "message":
                yield from self._content(wire, status)
            case "reasoning":
                yield from self._reasoning(wire, status)
            case "code_interpreter_call":
                yield from self._code(wire, status)
            case "shell_call":
                for index, command in enumerate(sequence(mapping(wire.get("action")).get("commands"))):
                    yield from self.close("command", index, text(command), status)
            case "shell_call_output":
                yield from self._consoles(wire, status)
            case "image_generation_call":
                yield from self._image(wire, status)
            case type:
                if type in CALLS:
                    yield from self._call(wire, status)
                elif type in OUTPUTS:
                    yield from self.close("result", 0, json_text(wire.get(OUTPUTS[type])), status)

    def _content(self, wire: Wire, status: Status) -> Iterator[Event]:
        for index, part in self._numbered(wire, "content", ("text", "refusal")):
            kind = PART_KINDS.get(text(part.get("type")))
            if kind is not None:
                content, more = read_part(part)
                yield from self.close(kind, index, content, status, **more)

    def _numbered(self, wire: Wire, key: str, kinds: tuple[str, ...]) -> list[tuple[int, Wire]]:
        """The parts in a list of the item, by the index that they were streamed with: it need not be the place."""
        parts = [mapping(part) for part in sequence(wire.get(key))]
        told = sorted({index for kind, index in self.parts if kind in kinds})
        if told and told[-1] >= len(parts):
            return [*zip(told, parts, strict=False), *list(enumerate(parts, told[-1] + 1))[len(told) :]]
        return [*enumerate(parts)]

    def _reasoning(self, wire: Wire, status: Status) -> Iterator[Event]:
        found: dict[tuple[str, int], str | None] = dict.fromkeys(self.parts, None)
        for key, kind in (("summary", "summary"), ("content", "reasoning")):
            for index, part in self._numbered(wire, key, (kind,)):
                if content := text(part.get("text")):
                    found[kind, index] = content
        encrypted = text(wire.get("encrypted_content"))
        if encrypted and not found:
            found["redacted", 0] = None
        for number, ((kind, index), final) in enumerate(found.items(), 1):
            sealed = {"encrypted_content": encrypted} if encrypted and number == len(found) else {}
            yield from self.close(kind, index, final, status, metadata=sealed)

    def _call(self, wire: Wire, status: Status) -> Iterator[Event]:
        arguments = ""
        for key in CALLS[self.type].arguments:
            value = wire.get(key)
            if value is not None and not arguments:
                arguments = json_text({key: value} if isinstance(value, (list, tuple)) else value)
        id = self.id_for("call", 0)
        asks = self.type == "mcp_approval_request" and id not in self.closed
        yield from self.close("call", 0, arguments, status)
        if asks:
            subject = self.message("call", 0, arguments, status=status)
            yield ConfirmationCreated(Confirmation(self.id, subject))
        error = wire.get("error")
        output = wire.get("output") if wire.get("results") is None else wire.get("results")
        if error is not None:
            told = text(mapping(error).get("message")) or json_text(error)
            yield from self.close("output", 0, told, status, metadata={"error": True})
        elif output is not None:
            yield from self.close("output", 0, json_text(output), status)

    def _code(self, wire: Wire, status: Status) -> Iterator[Event]:
        yield from self.close("code", 0, text(wire.get("code")), status)
        outputs = [mapping(output) for output in sequence(wire.get("outputs"))]
        logs = [logs for output in outputs if (logs := text(output.get("logs")))]
        if logs and ("logs", 0) not in self.parts:
            yield from self.open("logs")
            for piece in logs:
                yield ConsoleMessage.delta_event(self.id_for("logs", 0), piece)
            yield from self.close("logs", 0, "".join(logs), status)
        urls = [url for output in outputs if (url := text(output.get("url")))]
        for index, url in enumerate(urls):
            yield from self.close("plot", index, url, status)

    def _consoles(self, wire: Wire, status: Status) -> Iterator[Event]:
        streamed = bool(self.parts)
        for index, output in enumerate(map(mapping, sequence(wire.get("output")))):
            if not streamed or ("console", index) in self.parts:
                yield from self.console(index, [output], status)

    def console(self, index: int, outputs: Sequence[Any], status: Status) -> Iterator[Event]:
        """The end of one command's console; what it printed is told here, if it was not streamed."""
        if ("console", index) not in self.parts:
            yield from self.open("console", index)
            for output in outputs:
                yield from self.print(index, mapping(output))
        outcomes = [outcome for output in outputs if (outcome := mapping(mapping(output).get("outcome")))]
        yield from self.close(
            "console", index, None, status, metadata={"outcome": dict(outcomes[-1])} if outcomes else {}
        )

    def print(self, index: int, output: Wire) -> Iterator[Event]:
        """What one command wrote to its two streams."""
        for stream in ("stdout", "stderr"):
            if printed := text(output.get(stream)):
                yield from self.open("console", index)
                id = self.id_for("console", index)
                yield ConsoleMessage.delta_event(id, printed, False, {"stream": stream})

    def _image(self, wire: Wire, status: Status) -> Iterator[Event]:
        result = text(wire.get("result"))
        id = self.id_for("image", 0)
        if result and self.partial and id not in self.closed:
            yield ImageMessage.delta_event(id, result, True)  # the image itself takes its preview's place
        yield from self.close("image", 0, result, status)
