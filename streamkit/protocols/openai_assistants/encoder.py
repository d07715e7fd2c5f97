"""Canonical events as an Assistants stream, for clients of that API.

A run, its steps, the thread's messages and the tool calls are told as OpenAI told them, with every field that OpenAI's
types require: what is not known is empty. A step here makes one message of the thread or runs tool calls, so that a
canonical step becomes as many of these as it takes: the first has its id, the others `id.2`, `id.3` ….
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...core.unique_ids import UniqueIds
from ...events import (
    AnnotationAdded,
    Created,
    Delta,
    Done,
    Event,
    Run,
    RunCreated,
    RunDone,
    RunRequiresAction,
    RunStep,
    RunStepCreated,
    RunStepDone,
    StreamException,
)
from ...messages import (
    CodeMessage,
    ConsoleMessage,
    ImageMessage,
    Message,
    RefusalMessage,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
)
from .. import base
from .entries import CallEntry, StepEntry, ThreadEntry, call_delta, call_type
from .output import cited, content_part, error_object, run_object, step_object, thread_message

__all__ = ["Encoder"]

Item = dict[str, Any]


class Encoder(base.Encoder):
    """Canonical events to Assistants events, each as `{"event": name, "data": …}`. The sentinel is no event.

    What an Assistants stream cannot express, and what is told in its place:

    | canonical | here |
    |---|---|
    | reasoning, audio, files, messages of other types, code to display; usage before a step's or the run's end | nothing |
    | confirmations, active lines, warnings, raw events | nothing |
    | parts of one `group` and choice | parts of one message, with the id of the first; the others' are `id.1` … |
    | … that grow at the same time | a message each |
    | text whose role is `system` or `computer` | the assistant's |
    | a step with several messages, or messages and calls; one with neither | a step each; none |
    | a delta with `replace` | the final content alone |
    | an image as base64 | its data URL |
    | an image that code made, if not by its file's id | an image of the assistant's, in a message of its own |
    | an image that is a path | nothing |
    | a citation that is of no file; its title; a start or an end that is not known | nothing; nothing; 0 |
    | a call's own id beside its `call_id`; a call that is one of two with the same id | the call's id; its own id |
    | code in a language other than Python; which stream it printed to | `code_interpreter`; nothing |
    | console output without code that it came from, or after that code's step | a call with no code |
    | a call that its provider executed, but `file_search` | a function's call, with an output, if only an empty one |
    | arguments of a `file_search`; results that are not those of this API | nothing |
    | a tool's output without its call, or after that call's step | nothing |
    | the statuses of the calls of one step, where they differ | the one that is not completed |
    | a call or code that is incomplete; why a message is, where that is not known | failed; `max_tokens` |
    | a run's error code that is none of this API's; a finish reason that is none | `server_error`; null |
    | metadata that this API has no place for; `choice`, `recipient`, `name` of no call, times of parts | nothing |
    """

    name = "openai_assistants"
    done = b"[DONE]"

    def __init__(self) -> None:
        self._run: Item = {}
        self._ended = False
        self._asked = False  # the run waits for outputs
        self._step: RunStep | None = None  # the canonical one
        self._steps: dict[int, StepEntry] = {}  # those that are open, by their number
        self._ids = UniqueIds()  # of steps, and of the thread's messages
        self._call_ids = UniqueIds()
        self._threads: dict[tuple[Any, ...], ThreadEntry] = {}  # those that are open, by group
        self._parts: dict[str, tuple[ThreadEntry, int]] = {}  # by message id
        self._calls: dict[str, CallEntry] = {}  # by message id
        self._logs: dict[str, int] = {}  # consoles: the index of their output, by message id
        self._code: CallEntry | None = None  # the latest
        self._by_call_id: dict[tuple[str, str], CallEntry] = {}
        self._number = 0

    def event_name(self, item: Mapping[str, Any]) -> str | None:
        name: str = item["event"]
        return name

    def feed(self, event: Event) -> Iterable[Item]:
        for name, data in self._feed(event):
            yield {"event": name, "data": data}

    def _feed(self, event: Event) -> Iterator[tuple[str, Item]]:
        match event:
            case RunCreated(run=run):
                yield from self._begin(run)
            case RunStepCreated(run_step=step):
                yield from self._close_idle()
                self._step = step
                self._number = 0
            case Created(message=message):
                yield from self._created(message)
            case Delta():
                yield from self._delta(event)
            case AnnotationAdded():
                yield from self._annotation(event)
            case Done(message=message):
                yield from self._done(message)
            case RunStepDone(run_step=step):
                yield from self._step_done(step)
            case RunRequiresAction():
                yield from self._ask()
            case RunDone(run=run):
                yield from self._end(run)
            case StreamException() if not self._ended:
                self._ended = True
                yield "error", error_object(event)
            case _:
                pass

    # -- the run

    def _begin(self, run: Run) -> Iterator[tuple[str, Item]]:
        self._run = run_object(run)
        yield "thread.run.created", {**self._run, "status": "queued"}
        yield "thread.run.queued", {**self._run, "status": "queued"}
        yield "thread.run.in_progress", dict(self._run)

    def _ask(self) -> Iterator[tuple[str, Item]]:
        """The run waits for the outputs of its functions' calls."""
        yield from self._close_idle()
        waiting = [call for step in self._steps.values() for call in step.waiting.values()]
        calls = [{**call.final, "function": {key: call.body[key] for key in ("name", "arguments")}} for call in waiting]
        self._asked = True
        action = {"type": "submit_tool_outputs", "submit_tool_outputs": {"tool_calls": calls}}
        yield "thread.run.requires_action", {**self._run, "status": "requires_action", "required_action": action}

    def _go_on(self) -> Iterator[tuple[str, Item]]:
        """The run has its outputs."""
        if self._asked:
            self._asked = False
            yield "thread.run.queued", {**self._run, "status": "queued"}
            yield "thread.run.in_progress", dict(self._run)

    def _end(self, run: Run) -> Iterator[tuple[str, Item]]:
        if self._ended:
            return
        if not self._run:
            yield from self._begin(run)
        if run.status == "requires_action":
            if not self._asked:
                yield from self._ask()
        else:
            yield from self._close_all(run.status)
            status = "completed" if run.status == "in_progress" else run.status
            yield f"thread.run.{status}", run_object(run, status=status, known=self._run)
        self._ended = True

    # -- steps

    def _open_step(self, type: str, message_id: str = "") -> tuple[StepEntry, Iterator[tuple[str, Item]]]:
        """A step of this kind, and the events that begin it."""
        self._number += 1
        plain = self._step.id if self._step is not None else "step"
        id = self._ids.unused(plain if self._number == 1 else f"{plain}.{self._number}")
        step = StepEntry(id, type, message_id, (self._step.created_at if self._step else None))
        step.number = len(self._ids)
        self._steps[step.number] = step

        def told() -> Iterator[tuple[str, Item]]:
            yield from self._go_on()
            for phase in ("created", "in_progress"):
                yield f"thread.run.step.{phase}", step_object(step, self._run, "in_progress")

        return step, told()

    def _step_done(self, done: RunStep) -> Iterator[tuple[str, Item]]:
        """The canonical step is over: what it became is, unless a call still waits for its output."""
        yield from self._close_threads()
        over = [step for step in self._steps.values() if not step.live and not (step.waiting and self._asked)]
        for step in over:
            last = step is over[-1]
            yield from self._close_step(step, done.status, done if last else None)
        if not any(step.waiting for step in self._steps.values()) and over:
            yield from self._go_on()
        self._step = None

    def _close_all(self, status: str) -> Iterator[tuple[str, Item]]:
        yield from self._close_threads()
        for step in [*self._steps.values()]:
            yield from self._close_step(step, status)

    def _close_idle(self, besides: str = "") -> Iterator[tuple[str, Item]]:
        """What is complete is over when something else begins, besides steps of the kind that it can join."""
        yield from self._close_threads()
        for step in [*self._steps.values()]:
            if not step.live and not step.waiting and step.type != besides:
                yield from self._close_step(step, "completed")

    def _close_step(self, step: StepEntry, status: str, known: RunStep | None = None) -> Iterator[tuple[str, Item]]:
        del self._steps[step.number]
        step.closed = True
        ends = step.status if step.status != "completed" else status
        ends = "completed" if step.type == "message_creation" and ends == "incomplete" else ends
        ends = {"incomplete": "failed", "requires_action": "completed", "in_progress": "completed"}.get(ends, ends)
        yield f"thread.run.step.{ends}", step_object(step, self._run, ends, known)

    # -- messages of the thread

    def _close_threads(self) -> Iterator[tuple[str, Item]]:
        for entry in [*self._threads.values()]:
            if entry.live is None:
                yield from self._close_thread(entry)

    def _close_thread(self, entry: ThreadEntry) -> Iterator[tuple[str, Item]]:
        del self._threads[entry.key]
        phase = "completed" if entry.status == "completed" else "incomplete"
        yield f"thread.message.{phase}", thread_message(entry, self._run, entry.status)
        if entry.step is not None:
            entry.step.live.discard(entry.id)

    def _thread(self, message: Message) -> tuple[ThreadEntry, bool]:
        """The thread's message that a part belongs to, and whether it begins with it."""
        group = ("group", message.group, message.choice, message.role)
        known = self._threads.get(group)
        if message.group is not None and known is not None and known.live is None:
            return known, False
        key = group if message.group is not None and known is None else ("alone", message.id)
        return ThreadEntry(self._ids.unused(message.id), key, message), True

    def _created(self, message: Message) -> Iterator[tuple[str, Item]]:
        if not self._run:
            yield from self._begin(Run())
        match message:
            case ConsoleMessage():
                yield from self._console(message)
            case ImageMessage() if self._drawer(message) is not None:
                pass  # told when it is known
            case CodeMessage() | ToolCallMessage():
                yield from self._call(message)
            case TextMessage() | RefusalMessage() | ImageMessage() if content_part(message, "") is not None:
                yield from self._part(message)
            case _:
                pass

    def _part(self, message: Message) -> Iterator[tuple[str, Item]]:
        entry, begins = self._thread(message)
        if begins:
            yield from self._close_idle()
            self._threads[entry.key] = entry
            if entry.role == "assistant":
                entry.step, told = self._open_step("message_creation", entry.id)
                entry.step.live.add(entry.id)
                yield from told
            for phase in ("created", "in_progress"):
                yield f"thread.message.{phase}", thread_message(entry, self._run, "in_progress")
        entry.live = message.id
        entry.content.append(content_part(message, "") or {})
        self._parts[message.id] = (entry, len(entry.content) - 1)

    def _grown(self, id: str, **said: Any) -> tuple[str, Item]:
        entry, index = self._parts[id]
        type = entry.content[index]["type"]
        delta = {"content": [{"index": index, "type": type, **said}]}
        return "thread.message.delta", {"id": entry.id, "object": "thread.message.delta", "delta": delta}

    # -- tool calls

    def _call(self, message: CodeMessage | ToolCallMessage) -> Iterator[tuple[str, Item]]:
        yield from self._close_idle("tool_calls")
        step = next((step for step in self._steps.values() if step.type == "tool_calls"), None)
        if step is None:
            step, told = self._open_step("tool_calls")
            yield from told
        wanted = message.call_id or message.id
        id = self._call_ids.unused(message.id if wanted in self._call_ids else wanted)
        call = CallEntry(id, call_type(message), message.name or "", step, len(step.calls))
        step.calls.append(call)
        step.live.add(message.id)
        self._calls[message.id] = call
        if call.type == "code_interpreter":
            self._code = call
            self._by_call_id["code", wanted] = call
        else:
            self._by_call_id["call", wanted] = call
        yield call_delta(call, call.begun, first=True)

    def _console(self, message: ConsoleMessage) -> Iterator[tuple[str, Item]]:
        call = self._maker("code", message)
        if call is None:
            code = CodeMessage(f"{message.id}.code", call_id=message.call_id)
            yield from self._call(code)
            yield from self._done(code)
            call = self._calls[code.id]
        self._calls[message.id] = call
        self._logs[message.id] = len(call.body["outputs"])
        call.body["outputs"].append({"type": "logs", "logs": ""})
        call.step.live.add(message.id)

    def _maker(self, kind: str, message: Message) -> CallEntry | None:
        """The call or the code that this came out of, if its step is still open."""
        call = self._by_call_id.get((kind, message.call_id or ""))
        if message.call_id is None and kind == "code":
            call = self._code
        return call if call is not None and not call.step.closed else None

    def _drawer(self, message: ImageMessage) -> CallEntry | None:
        """The code that made this image, where it can have it."""
        drawn = message.role == "computer" and message.format == "file_id"
        return self._maker("code", message) if drawn else None

    # -- deltas and ends

    def _delta(self, delta: Delta) -> Iterator[tuple[str, Item]]:
        id, value = delta.message_id, delta.value
        if delta.replace or not value:
            return
        if id in self._parts:
            entry, index = self._parts[id]
            match entry.content[index]["type"]:
                case "text":
                    first: Item = {} if entry.told == index else {"annotations": []}
                    entry.told = index
                    yield self._grown(id, text={"value": value, **first})
                case "refusal":
                    entry.told = index
                    yield self._grown(id, refusal=value)
                case _:
                    pass  # an image is told when it is known
        elif id in self._logs:
            output = {"index": self._logs[id], "type": "logs", "logs": value}
            yield call_delta(self._calls[id], {"outputs": [output]})
        elif id in self._calls and (key := self._calls[id].key):
            yield call_delta(self._calls[id], {key: value})

    def _annotation(self, event: AnnotationAdded) -> Iterator[tuple[str, Item]]:
        told = self._parts.get(event.message_id)
        wire = cited(event.annotation)
        if told is not None and wire is not None:
            entry, index = told
            wire = {"index": entry.cite(index), **wire}
            text: Item = {"annotations": [wire]} if entry.told == index else {"value": "", "annotations": [wire]}
            entry.told = index
            yield self._grown(event.message_id, text=text)

    def _done(self, message: Message) -> Iterator[tuple[str, Item]]:
        if message.id in self._parts:
            yield from self._part_done(message)
        elif isinstance(message, ToolOutputMessage):
            yield from self._output(message)
        elif isinstance(message, ImageMessage):
            yield from self._image(message)
        elif (call := self._calls.get(message.id)) is not None:
            call.step.live.discard(message.id)
            if message.status != "completed":
                call.step.status = message.status
            if message.id in self._logs:
                call.body["outputs"][self._logs[message.id]]["logs"] = message.content
            else:
                yield from call.finish(message)

    def _part_done(self, message: Message) -> Iterator[tuple[str, Item]]:
        entry, index = self._parts[message.id]
        part = content_part(message, message.content) or entry.content[index]
        entry.content[index] = part
        entry.live = None
        if isinstance(message, ImageMessage):
            yield self._grown(message.id, **{part["type"]: part[part["type"]]})
        elif entry.told != index:  # clients count the parts by their deltas
            entry.told = index
            yield self._grown(message.id, **content_part(message.header(), "") or {})
        if message.status != "completed":
            entry.status = message.status
        entry.learn(message)
        if message.group is None:
            yield from self._close_thread(entry)  # it has no other part

    def _output(self, message: ToolOutputMessage) -> Iterator[tuple[str, Item]]:
        call = self._maker("call", message)
        if call is not None:
            yield from call.give(message)

    def _image(self, message: ImageMessage) -> Iterator[tuple[str, Item]]:
        call = self._drawer(message)
        if call is not None and message.content:
            output: Item = {"type": "image", "image": {"file_id": message.content}}
            call.body["outputs"].append(output)
            yield call_delta(call, {"outputs": [{"index": len(call.body["outputs"]) - 1, **output}]})
