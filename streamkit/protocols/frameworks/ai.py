"""The package `ai` of Vercel: the events of `agent.run(…)` and of `ai.stream(…)`.

Terminal rule: the source is complete where its newest response has had its `stream_end`. The events are declared in `ai.types.events`.

A `stream_start` begins a response. The output of a call may come before the `stream_end` of its response. What a sub-agent says is the
value of a `partial_tool_call_result`: an event. A hook that waits for an approval is a confirmation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from ...answers import Confirmation
from ...events import (
    ConfirmationCreated,
    ConfirmationDone,
    Event,
    RawEvent,
    Run,
    RunCreated,
    RunStep,
    RunStepDone,
    StreamRetry,
)
from ...messages import Message, ReasoningMessage, TextMessage, ToolCallMessage
from ...messages.answer import Answer
from ..ui_files import file_fields
from ..values import WireObject, as_object, as_objects, as_text, json_text, text_or_json, text_or_none, usage_of
from .ai_objects import item_of
from .decoder import FrameworkDecoder

__all__ = ["Decoder"]

_CUT_SHORT = ("length", "content_filter")


class Decoder(FrameworkDecoder):
    """Decodes the events of a run."""

    name = "ai"
    kind_key = "kind"

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._is_responding = False
        self._arguments: dict[str, str] = {}  # by call id
        self._of_response: list[str] = []  # the ids of the messages since the newest response began
        self._inners: dict[str, Decoder] = {}  # of the sub-agents, by the call that began them
        self._slots: dict[str, Answer] = {}  # what takes the answer to a hook, by its id
        self._retries = 0

    def item_of(self, value: Any) -> Any:
        """Return a dict of an event, with what is read of it."""
        if (asked := getattr(value, "asked", None)) is not None:  # the source can resolve this hook
            self._slots[asked[0]] = asked[1]
        return item_of(value)

    def finish(self) -> Iterator[Event]:
        """Yield the end of the run, which nothing else says."""
        if self._has_begun and not self._is_responding:
            yield from self._end_run("incomplete" if self._finish_reason in _CUT_SHORT else "completed")
        yield from super().finish()

    def _begin(self, kind: type[Message], key: Any, id: str | None = None, **fields: Any) -> Iterator[Event]:
        yield from super()._begin(kind, key, id, **fields)
        self._of_response.append(self._open[key].id)

    # -- a response

    def _read_start(self, item: WireObject) -> Iterator[Event]:
        self._is_responding, self._of_response = True, []
        yield from self._begin_step()

    def _read_end(self, item: WireObject) -> Iterator[Event]:
        self._is_responding = False
        yield from self._close_all("completed")
        self._finish_reason = text_or_none(item.get("finish_reason"))
        if model := text_or_none(item.get("response_model")):
            yield RunCreated(run=Run(model=model))
        if usage := as_object(item.get("usage")):
            yield usage_of(usage)

    def _read_retry(self, item: WireObject) -> Iterator[Event]:
        """What came since the newest response began is void."""
        self._open.clear()
        self._retries += 1
        self._is_responding, self._finish_reason = True, None
        error = "the response was discarded, and is requested once more"
        yield RunStepDone(RunStep(status="failed", error={"message": error}))
        withdrawn, self._of_response = self._of_response, []
        yield StreamRetry(self._retries + 1, "Retry", error, withdrawn=withdrawn)

    def _read_text_start(self, item: WireObject) -> Iterator[Event]:
        kind = ReasoningMessage if item.get("kind") == "reasoning_start" else TextMessage
        return self._begin(kind, _block(item))

    def _read_delta(self, item: WireObject) -> Iterator[Event]:
        return self._extend(_block(item), item.get("chunk"))

    def _read_block_end(self, item: WireObject) -> Iterator[Event]:
        return self._close(_block(item))

    def _read_tool_start(self, item: WireObject) -> Iterator[Event]:
        call_id, is_providers = text_or_none(item.get("tool_call_id")), item.get("kind") == "builtin_tool_start"
        return self._begin_call(_block(item), call_id, as_text(item.get("tool_name")), provider_executed=is_providers)

    def _read_tool_end(self, item: WireObject) -> Iterator[Event]:
        self._arguments[as_text(item.get("tool_call_id"))] = as_text(item.get("arguments"))
        return self._close(_block(item))

    def _read_file(self, item: WireObject) -> Iterator[Event]:
        kind, format, content = file_fields(as_text(item.get("url")), as_text(item.get("media_type")))
        yield from self._begin(kind, "file", format=format or None)
        yield from self._extend("file", content)
        yield from self._close("file")

    # -- outputs, sub-agents

    def _read_outputs(self, item: WireObject) -> Iterator[Event]:
        for result in as_objects(item.get("results")):
            call_id = text_or_none(result.get("tool_call_id"))
            if (inner := self._inners.pop(call_id or "", None)) is not None:
                yield from inner._close_all("incomplete")
            if result.get("is_hook_deferred") is not True:
                name, failed = text_or_none(result.get("tool_name")), result.get("failed") is True
                output = self._output(call_id, text_or_json(result.get("output")), name=name, failed=failed)
                self._of_response.append(output.message.id)  # type: ignore[attr-defined]
                yield output

    def _read_partial(self, item: WireObject) -> Iterator[Event]:
        """An event of a sub-agent. What else a tool yields meanwhile has no place of its own."""
        call_id = as_text(item.get("tool_call_id")) or as_text(item.get("label"))
        value = as_object(item.get("value"))
        if not call_id or value.get("kind") not in self.readers:
            yield RawEvent("partial_tool_call_result", dict(item))
            return
        if call_id not in self._inners:
            self._inners[call_id] = self._inner(call_id)
        inner = self._inners[call_id]
        inner._slots = self._slots
        yield from self._of_inner(inner.feed(value))

    # -- hooks

    def _read_hook(self, item: WireObject) -> Iterator[Event]:
        """A question whether a call may run, or its outcome. Other hooks wait for other things than a yes."""
        hook = as_object(item.get("hook"))
        id, call_id = as_text(hook.get("hook_id")), as_text(hook.get("tool_call_id"))
        if not call_id or hook.get("hook_type") != "ToolApproval":
            yield RawEvent("hook", dict(item))
            return
        call = self._calls.get(call_id) or ToolCallMessage(
            call_id, call_id=call_id, name=text_or_none(hook.get("tool"))
        )
        arguments = self._arguments.get(call_id) or json_text(as_object(hook.get("arguments")))
        subject = call.copy()
        subject.replace_content(arguments)
        subject.status = "completed"
        if hook.get("status") == "pending":
            confirmation = Confirmation(id, subject)
            confirmation.answer_slot = self._slots.pop(id, None)
            yield ConfirmationCreated(confirmation)
        else:
            resolution = as_object(hook.get("resolution"))
            granted, reason = resolution.get("granted") is True, text_or_none(resolution.get("reason"))
            done = Confirmation(id, subject, status="approved" if granted else "declined", reason=reason)
            yield ConfirmationDone(done)

    readers: ClassVar[Mapping[str, Callable[[Any, WireObject], Iterable[Event]]]] = {
        "stream_start": _read_start,
        "stream_end": _read_end,
        "retry": _read_retry,
        **dict.fromkeys(("text_start", "reasoning_start"), _read_text_start),
        **dict.fromkeys(("text_delta", "reasoning_delta", "tool_delta", "builtin_tool_delta"), _read_delta),
        **dict.fromkeys(("text_end", "reasoning_end"), _read_block_end),
        **dict.fromkeys(("tool_start", "builtin_tool_start"), _read_tool_start),
        **dict.fromkeys(("tool_end", "builtin_tool_end"), _read_tool_end),
        **dict.fromkeys(("tool_call_result", "builtin_tool_result"), _read_outputs),
        "file": _read_file,
        "partial_tool_call_result": _read_partial,
        "hook": _read_hook,
        "run_blocked": FrameworkDecoder.read_nothing,
    }


def _block(item: WireObject) -> tuple[str, str]:
    """Return what tells a text, reasoning or call from others: its family and id."""
    return as_text(item.get("kind")).rpartition("_")[0], as_text(item.get("block_id")) or as_text(
        item.get("tool_call_id")
    )
