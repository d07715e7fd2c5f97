"""smolagents: what `agent.run(…, stream=True)` yields, of a `ToolCallingAgent` and of a `CodeAgent`; also `model.generate_stream(…)`.

Terminal rule: a run is complete with its `FinalAnswerStep`; a model's own stream, which has deltas alone, with its end. The items are
documented at https://huggingface.co/docs/smolagents/reference/agents.

Deltas come with `stream_outputs=True` alone; the `ToolCall`s after them say the calls again. The answer is what the tool `final_answer`
is called with, or what code returns with a function of this name: it becomes the run's last text, and neither a call nor an output. Where
it comes in deltas, so does the text. Of a call, or code, that failed, the error stands in the `ActionStep` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from ...core.json_fields import JsonFields
from ...events import Event, RunStep, RunStepDone, Usage
from ...messages import CodeMessage, ConsoleMessage, TextMessage
from ..values import WireObject, as_count, as_object, as_objects, as_text, text_or_json, text_or_none, usage_of
from .decoder import FrameworkDecoder, fields_of
from .shape import framework_of
from .tagged_code import TaggedCode

__all__ = ["Decoder"]

_ANSWER = "final_answer"  # the tool, and the type of a step that has nothing but the answer
_CODE = "python_interpreter"  # what a `CodeAgent` calls with its code
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "ChatMessageStreamDelta": ("content", "tool_calls", "token_usage"),
    "ToolCall": ("name", "arguments", "id"),
    "ToolOutput": ("id", "observation", "is_final_answer"),
    "PlanningStep": ("model_output_message", "token_usage"),
    "ActionStep": ("step_number", "model_output_message", "observations", "error", "token_usage"),
    "FinalAnswerStep": ("output",),
}


class _Response:
    """What was read of one response of the model."""

    def __init__(self) -> None:
        self.has_deltas = False
        self.text = TaggedCode()
        self.answer = JsonFields("answer")  # of the arguments of `final_answer`
        self.answered: list[str] = []  # the pieces of the answer
        self.calls: dict[Any, bool] = {}  # those in deltas, by index: whether it calls `final_answer`
        self.call_ids: set[str | None] = set()
        self.unanswered: dict[str | None, None] = {}  # those of the calls without an output, in order
        self.usage = Usage()  # as its deltas count it
        self.runs_code = False
        self.code_id: str | None = None  # the call id of the code that runs


class Decoder(FrameworkDecoder):
    """Decodes the items of a run."""

    name = "smolagents"
    kind_key = "kind"

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._response = _Response()
        self._is_responding = False  # the step of this response is not over
        self._is_run = False  # there is more than deltas
        self._step_number: Any = None  # that of the agent's newest step
        self._is_at_limit = False  # of steps, so that the model is asked for an answer once more

    def item_of(self, value: Any) -> Any:
        """Return a dict of an item, with the fields that are read."""
        if framework_of(value) != self.name:
            return value
        kind = type(value).__name__
        item = fields_of(value, _FIELDS.get(kind, ()))
        return {
            "kind": kind,
            **{name: _PLAIN[name](found) if name in _PLAIN else found for name, found in item.items()},
        }

    def feed(self, item: WireObject) -> Iterator[Event]:
        """Yield the events of one item."""
        self._is_run = self._is_run or item.get("kind") != "ChatMessageStreamDelta"
        return super().feed(item)

    def finish(self) -> Iterator[Event]:
        """Yield the end of a model's own stream, or of a run that was cut off."""
        if self._is_responding and not self._is_run:
            yield from self._end_text()
            if self._response.usage.total_tokens:
                yield self._response.usage
            yield from self._end_run()
        yield from super().finish()

    # -- a response

    def _respond(self) -> Iterator[Event]:
        """Begin a response, and with it a step, if none is open."""
        if not self._is_responding:
            self._is_responding, self._response = True, _Response()
            yield from self._begin_step()

    def _read_delta(self, item: WireObject) -> Iterator[Event]:
        yield from self._respond()
        self._response.has_deltas = True
        self._response.usage += usage_of(as_object(item.get("token_usage")))
        yield from self._extend_parts(self._response.text.feed(as_text(item.get("content"))))
        for call in as_objects(item.get("tool_calls")):
            yield from self._extend_call(call)

    def _extend_parts(self, parts: Iterable[tuple[bool, str]]) -> Iterator[Event]:
        """Add parts of the model's text, which is code or not, to the message that has it."""
        for is_code, part in parts:
            kind = CodeMessage if is_code else TextMessage
            if kind not in self._open:
                yield from self._begin(kind, kind, **({"format": "python"} if is_code else {}))
            yield from self._extend(kind, part)

    def _end_text(self) -> Iterator[Event]:
        """End the text, the code and the calls that are open, since the response is complete."""
        yield from self._extend_parts(self._response.text.finish())
        yield from self._close_all("completed")

    def _extend_call(self, call: WireObject) -> Iterator[Event]:
        """Add a piece to a call, or to the answer. The name and the id come with the first one."""
        response, index = self._response, as_count(call.get("index"))
        if index not in response.calls:
            name = as_text(call.get("name"))
            response.calls[index] = name == _ANSWER
            if name != _ANSWER:
                yield from self._begin_tool_call(index, text_or_none(call.get("id")), name)
        arguments = as_text(call.get("arguments"))
        if not response.calls[index]:
            yield from self._extend(index, arguments)
        for piece in response.answer.feed(arguments) if response.calls[index] else ():
            if _ANSWER not in self._open:
                yield from self._begin_answer()
            response.answered.append(piece.text)
            yield from self._extend(_ANSWER, piece.text)

    def _begin_tool_call(self, key: Any, call_id: str | None, name: str) -> Iterator[Event]:
        self._response.call_ids.add(call_id)
        self._response.unanswered[call_id] = None
        yield from self._begin_call(key, call_id, name)

    def _begin_answer(self) -> Iterator[Event]:
        """Begin the run's answer: in a step of its own if its response says something else, too."""
        if (self._index and not self._response.unanswered) or self._is_at_limit:
            yield from self._begin_step(type=_ANSWER)
        yield from self._begin(TextMessage, _ANSWER)

    # -- what the agent does

    def _read_call(self, item: WireObject) -> Iterator[Event]:
        """A call runs. It is a new one where there were no deltas."""
        yield from self._respond()
        name, call_id, arguments = as_text(item.get("name")), text_or_none(item.get("id")), item.get("arguments")
        yield from self._extend_parts(self._response.text.finish())
        if name == _CODE and isinstance(arguments, str):
            yield self._end_code(call_id, arguments)
        yield from self._close_all("completed")
        if name not in (_ANSWER, _CODE) and call_id not in self._response.call_ids:
            yield from self._begin_tool_call(name, call_id, name)
            yield from self._extend(name, text_or_json(arguments))
            yield from self._close(name)

    def _end_code(self, call_id: str | None, code: str) -> Event:
        """End the code, with what runs of it."""
        response, begun = self._response, self._open.pop(CodeMessage, None)
        response.runs_code, response.code_id = True, call_id
        id = self._ids.unused("") if begun is None else begun.id
        self._index += begun is None
        return CodeMessage.done_event(
            CodeMessage(id, format="python", call_id=call_id, content=code, status="completed")
        )

    def _read_output(self, item: WireObject) -> Iterator[Event]:
        if item.get("is_final_answer") is not True:
            call_id = text_or_none(item.get("id"))
            self._response.unanswered.pop(call_id, None)
            yield self._output(call_id, text_or_json(item.get("observation")))

    def _read_plan(self, item: WireObject) -> Iterator[Event]:
        yield from self._respond()
        yield from self._end_response(item)

    def _read_step(self, item: WireObject) -> Iterator[Event]:
        """A step of the agent is over: it has the rest. It comes once more where the agent may take no more steps."""
        if not self._is_responding and item.get("step_number") == self._step_number:
            self._is_at_limit = True
            return
        yield from self._respond()
        self._step_number = item.get("step_number")
        if "model_output_message" in item:  # otherwise the request failed, and an exception follows
            yield from self._end_response(item)

    def _end_response(self, item: WireObject) -> Iterator[Event]:
        response, self._is_responding = self._response, False
        if not response.has_deltas:
            parts = [*response.text.feed(as_text(item.get("model_output_message"))), *response.text.finish()]
            yield from self._extend_parts(part for part in parts if not part[0])  # code that runs came before
        yield from self._end_text()
        error = as_object(item.get("error"))
        message = as_text(error.get("message"))
        if response.runs_code:
            yield self._console(as_text(item.get("observations")), message, failed=bool(error))
        if error:
            for call_id in response.unanswered:
                yield self._output(call_id, message, failed=True)
        if usage := as_object(item.get("token_usage")):
            yield usage_of(usage)
        if error and not response.unanswered and not response.runs_code:
            yield RunStepDone(RunStep(status="failed", error=error))

    def _console(self, observations: str, error: str, *, failed: bool) -> Event:
        """Return what the code of this step printed and returned, and its error."""
        console = ConsoleMessage(
            self._ids.unused(""),
            call_id=self._response.code_id,
            content="\n".join(filter(None, (observations, error))),
            status="failed" if failed else "completed",
            metadata={"error": True} if failed else None,
        )
        return ConsoleMessage.done_event(console)

    def _read_answer(self, item: WireObject) -> Iterator[Event]:
        answer = as_text(item.get("output"))
        if answer and answer != "".join(self._response.answered):
            yield from self._begin_answer()
            yield from self._extend(_ANSWER, answer)
            yield from self._close(_ANSWER)
        yield from self._end_run("incomplete", "max_steps") if self._is_at_limit else self._end_run()

    readers: ClassVar[Mapping[str, Callable[[Any, WireObject], Iterable[Event]]]] = {
        "ChatMessageStreamDelta": _read_delta,
        "ToolCall": _read_call,
        "ToolOutput": _read_output,
        "ActionOutput": FrameworkDecoder.read_nothing,
        "PlanningStep": _read_plan,
        "ActionStep": _read_step,
        "FinalAnswerStep": _read_answer,
    }


def _text_of(content: Any) -> str:
    """Return the text of a message's content, which may be a list of parts."""
    return as_text(content) or "".join(as_text(part.get("text")) for part in as_objects(content))


def _calls_of(calls: Any) -> list[dict[str, Any]]:
    return [
        {**fields_of(call, ("index", "id")), **fields_of(getattr(call, "function", None), ("name", "arguments"))}
        for call in calls
    ]


def _answer_of(output: Any) -> str:
    """Return the text of an answer, which may be any object: the framework's images are the path of a file, as text."""
    return text_or_json(output) if isinstance(output, dict | list | tuple | int | float) else str(output)


# What makes plain values of the fields that are objects.
_PLAIN: Mapping[str, Callable[[Any], Any]] = {
    "content": _text_of,
    "tool_calls": _calls_of,
    "token_usage": lambda usage: fields_of(usage, ("input_tokens", "output_tokens")),
    "model_output_message": lambda message: _text_of(message.content),
    "error": lambda error: {"type": type(error).__name__, "message": str(error)},
    "output": _answer_of,
}
