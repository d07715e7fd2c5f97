"""One choice of an answer: reads its part of each chunk.

A field of an unexpected type is skipped with a warning, and the other fields of the choice are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from ...events import AnnotationAdded, Event, RawEvent, RefusalDelta, TextDelta
from ...messages import Status
from ..held_values import add_values
from ..values import (
    WireObject,
    annotation_of,
    as_index,
    as_object,
    as_text,
    is_list,
    is_object,
    json_text,
    text_or_json,
    without_keys,
)
from .open_messages import NOTHING, OpenMessages
from .returned_fields import CALL_KEYS, LISTS, OPAQUE_KEYS, emptied_thinking
from .tool_calls import NO_CALLS, ToolCalls
from .wire import CHOICE_KEYS, FINISH_REASON_STATUS, REASONING_KEYS, is_only_deltas, thinking_text

__all__ = ["Choice"]

_FAST_KINDS = ("text", "refusal", "reasoning")
_COMPLETE_OBJECTS = ("chat.completion", "chat.completion.done")
# The fields of a complete message, and the kind that `OpenMessages.seen` has if deltas brought them already.
_KIND_OF_FIELD = {
    **dict.fromkeys((*REASONING_KEYS, "reasoning_details"), "reasoning"),
    "content": "text",
    "refusal": "refusal",
    "audio": "audio",
    "images": "images",
    "function_call": "calls",
    "executed_tools": "executed",
}
# Compiled when they are needed first: most streams have neither speech nor images.
_BASE64 = r"[A-Za-z0-9+/]*={0,2}"
_DATA_URL = r"(?s)data:image/(png|jpeg);base64,(.*)"


class Choice(msgspec.Struct, eq=False):
    """One choice, from its first delta to its finish_reason. Content after it opens new messages.

    Attributes:
        finish_reason: the provider's, None until it arrives.
        is_finished: whether it has arrived.
        extra: the values of its chunks that no event expresses, by key.
        messages: its open messages.
        tool_calls: the tool calls that are open.
        takes_pieces: for the fast path: whether a piece of a message does no more than extend or begin that.
        open_text_id: for the fast path: the id of the open text, None if a plain piece of text would do more than
            extend it.
        open_reasoning_id: for the fast path: the id of the open reasoning, None if there is none.
        open_reasoning_keys: for the fast path: what goes back along with it, by the keys in which its text came so far.
        is_reasoning: for the fast path: whether reasoning is open, which any other content ends.
        open_refusal_id: for the fast path: as `open_text_id`, of the refusal.
        filter_results: for the fast path: the bytes of its `content_filter_results` that were read last.
    """

    index: int
    messages: OpenMessages
    _warn: Callable[[str, str], None]
    _hold: Callable[[str | None, object], None]
    tool_calls: ToolCalls
    finish_reason: str | None = None
    is_finished: bool = False
    extra: WireObject = NOTHING
    takes_pieces: bool = True
    open_text_id: str | None = None
    open_reasoning_id: str | None = None
    open_reasoning_keys: WireObject = NOTHING
    open_refusal_id: str | None = None
    is_reasoning: bool = False
    filter_results: Any = None
    _complete_message: WireObject | None = None  # not read until the choice ends
    _annotations: tuple[tuple[WireObject, WireObject], ...] = ()  # each with its chunk, until there is a text
    _is_in_thought: bool = False

    @classmethod
    def begin(
        cls,
        index: int,
        group: str | None,
        new_id: Callable[[], str],
        warn: Callable[[str, str], None],
        hold: Callable[[str | None, object], None],
    ) -> Choice:
        """A choice of the answer with the id `group`.

        Args:
            new_id: returns an unused message id.
            warn: takes the code and the fault of a warning.
            hold: takes a value that is held until the message with this id is done, None if it is of no open message.
        """
        return cls(index, OpenMessages(index, group, new_id, warn, hold, NO_CALLS), warn, hold, NO_CALLS)

    def feed(self, wire: WireObject, chunk: WireObject) -> Iterator[Event]:
        """The events of this choice's object in a chunk."""
        delta, message = wire.get("delta"), wire.get("message")
        logprobs = as_object(wire.get("logprobs"))
        is_complete = chunk.get("object") in _COMPLETE_OBJECTS
        events: list[Event] = []
        if is_object(delta):
            events += self._read_delta(delta, logprobs, chunk)
            yield from events
        elif delta is not None:
            self._warn("bad-delta", "the `delta` of a choice is not an object; it was skipped")
        if is_object(message) and (is_complete or not is_object(delta)):
            self._complete_message = message
        elif message is not None and not is_object(message):
            self._warn("bad-message", "the `message` of a choice is not an object; it was skipped")
        self._add_extra(wire, is_plain=is_only_deltas(events))
        reason = self._read_finish_reason(wire.get("finish_reason"))
        if reason or (is_complete and self._complete_message):
            yield from self._read_complete_message(logprobs, chunk)
            yield from self.finish(reason, provider=chunk.get("provider"))
        self.update_fast_path()

    def finish(self, reason: str | None, *, provider: object) -> list[Event]:
        """The events of a finish_reason, or of the end of a complete message.

        Args:
            provider: what the chunk states as its provider. OpenRouter's chunks do, and there the citations of a text may
                come after the finish_reason.
        """
        if reason:
            self.finish_reason = reason
        self.is_finished = True
        status = FINISH_REASON_STATUS.get(self.finish_reason, "completed")
        events = self.messages.finish_all(status, provider=provider)
        if self._annotations:
            events += self._drop_annotations()
        if self.messages.ids:
            self.update_fast_path()
        else:
            self.open_text_id = self.open_refusal_id = self.open_reasoning_id = None
            self.is_reasoning = False
        return events

    def append_text(self, text: str) -> list[Event]:
        """The events of a piece of text, from a chunk that has no other piece."""
        messages = self.messages
        if messages.ids:
            events = messages.append("text", text)
            self.update_fast_path()
        else:
            events = messages.begin("text", text)
            self.open_text_id = messages.ids["text"]
        return events

    def end(self, status: Status) -> Sequence[Event]:
        """The events of the answer's end: what has not been emitted of a complete message, and what is open."""
        if self.is_finished and not (self._complete_message or self._annotations or self.messages.is_open):
            return ()
        events = [*self._read_complete_message({}, {}), *self.messages.finish_all(status), *self._drop_annotations()]
        self.update_fast_path()
        return events

    def _read_finish_reason(self, value: Any) -> str | None:
        if value is None or isinstance(value, str):
            return value
        self._warn("bad-finish-reason", "a finish_reason is not a string; it was skipped")
        return None

    def _add_extra(self, wire: WireObject, *, is_plain: bool) -> None:
        # The fast path takes plain chunks, and refuses only those with content filter results.
        taken = ("content_filter_results",) if is_plain else wire.keys() - CHOICE_KEYS
        extra = self.extra
        found = {key: wire[key] for key in wire if key in taken and wire[key]}
        changed = {key: value for key, value in found.items() if key not in extra or extra[key] != value}
        if changed:
            self.extra = {**extra, **changed}
            self._hold(None, changed)

    def add_filter_results(self, wire: WireObject) -> None:
        """Add the `content_filter_results` that a chunk has, as `feed` does."""
        self._add_extra(wire, is_plain=True)

    def update_fast_path(self) -> None:
        """Note what the fast path may do with the next chunk."""
        messages = self.messages
        if messages.unreported:
            messages.unreported = 0
            messages.report_held()
        ids = messages.ids
        self.open_text_id, self.open_refusal_id, self.open_reasoning_id = map(ids.get, _FAST_KINDS)
        self.is_reasoning = "reasoning" in ids or "redacted" in ids
        if self.is_reasoning or messages.held_status is not None:
            self.open_text_id = self.open_refusal_id = None
            self.open_reasoning_keys = messages.returned_fields("reasoning")
        self.takes_pieces = not (self._annotations or self._is_in_thought or self._complete_message)

    def _read_complete_message(self, logprobs: WireObject, chunk: WireObject) -> Iterator[Event]:
        """What deltas have not brought of a complete message. What they have is compared when its message is done."""
        message, self._complete_message = self._complete_message, None
        if message is None:
            return
        messages = self.messages
        rest = {key: value for key, value in message.items() if _KIND_OF_FIELD.get(key) not in messages.seen}
        calls = message.get("tool_calls")
        if is_list(calls) and "calls" in messages.seen:
            ids = ("", *self.tool_calls.by_id)
            rest["tool_calls"] = [call for call in calls if as_text(as_object(call).get("id")) not in ids]
            if not self.tool_calls.in_order:
                del rest["tool_calls"]  # they ended with an earlier finish_reason
        if "text" in messages.seen and "text" not in messages.ids:
            rest.pop("annotations", None)
        open_before = [*messages.ids]
        yield from self._read_delta(rest, logprobs, chunk)
        for key in ("content", "refusal"):
            if _KIND_OF_FIELD[key] in open_before and (content := as_text(message.get(key))):
                messages.set_final_content(_KIND_OF_FIELD[key], content)

    # -- the fields of a delta

    def _read_delta(self, delta: WireObject, logprobs: WireObject, chunk: WireObject) -> Iterator[Event]:
        messages = self.messages
        if not messages.role:
            messages.take_role(delta.get("role"))
        yield from self._read_reasoning(delta)
        google = as_object(as_object(delta.get("extra_content")).get("google"))
        if google.get("thought") is True:
            yield from self._read_thought(delta.get("content"))
        else:
            content = self._read_content(self._without_thought_tag(delta.get("content")), chunk)
            yield from self._with_logprobs("text", content, logprobs, chunk)
            if is_object(extra := delta.get("extra_content")):
                messages.add_returned_values("text", "extra_content", extra)
        refusal = messages.append("refusal", self._text_of(delta.get("refusal"), "refusal"))
        yield from self._with_logprobs("refusal", refusal, logprobs, chunk)
        yield from self._read_audio(delta.get("audio"))
        for image in self._list_at(delta, "images"):
            yield from self._read_image(image, chunk)
        if (function_call := delta.get("function_call")) is not None:
            yield from self._read_function_call(function_call)
        for position, fragment in enumerate(self._list_at(delta, "tool_calls")):
            yield from self._read_tool_call(fragment, position)
        for tool in self._list_at(delta, "executed_tools"):
            yield from messages.add_executed_tool(as_object(tool))
        for annotation in self._list_at(delta, "annotations"):
            if is_object(annotation):
                self._annotations += ((annotation, chunk),)
                if "text" not in messages.ids:
                    self._hold(None, annotation)
            else:
                yield RawEvent("annotations", chunk)
        if self._annotations and "text" in messages.ids:
            for annotation, _ in self._annotations:
                yield AnnotationAdded(messages.ids["text"], annotation_of(annotation))
            self._annotations = ()

    def _drop_annotations(self) -> Iterator[Event]:
        """Raw events of the citations of a text that never came."""
        for _, chunk in self._annotations:
            yield RawEvent("annotations", chunk)
        self._annotations = ()

    def _read_thought(self, content: Any) -> Iterator[Event]:
        """Reasoning that Google sends as content. It begins with a tag, and so does the text that follows it."""
        text = self._text_of(content, "content")
        if "reasoning" not in self.messages.ids:
            text = text.removeprefix("<thought>")
        self._is_in_thought = True
        yield from self.messages.append("reasoning", text)

    def _without_thought_tag(self, content: Any) -> Any:
        if self._is_in_thought and isinstance(content, str) and content:
            self._is_in_thought = False
            return content.removeprefix("</thought>")
        return content

    def _list_at(self, delta: WireObject, key: str) -> list[Any]:
        """A field that should be a list. Another value is read as a list of one."""
        value = delta.get(key)
        if value is None or is_list(value):
            return value or []
        self._warn(f"bad-{key.replace('_', '-')}", f"its `{key}` is not a list; it was read as a list of one")
        return [value]

    def _text_of(self, value: Any, key: str) -> str:
        """A field that should be a string. A number is read as its digits."""
        if isinstance(value, str) or value is None:
            return value or ""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        outcome = "read as text" if is_number else "skipped"
        self._warn(f"non-string-{key}", f"`{key}` is a {type(value).__name__}; it was {outcome}")
        return json_text(value) if is_number else ""

    def _read_reasoning(self, delta: WireObject) -> Iterator[Event]:
        """Reasoning text. The details without their text are metadata: signatures, or encrypted reasoning."""
        messages = self.messages
        texts = {key: text for key in REASONING_KEYS if (text := self._text_of(delta.get(key), "reasoning"))}
        text = next(iter(texts.values()), "")
        pieces = {key: [piece for piece in self._list_at(delta, key) if is_object(piece)] for key in LISTS}
        details = pieces["reasoning_details"]
        if not text:
            text = "".join(as_text(detail.get("text")) or as_text(detail.get("summary")) for detail in details)
        if text:
            yield from messages.finish("redacted", "completed")
            messages.add_returned("reasoning", dict.fromkeys(texts))
            yield from messages.append("reasoning", text)
        for key, found in pieces.items():
            for piece in found:
                if any(piece.get(name) for name in ("signature", "data")):
                    yield from self._open_reasoning()
                messages.add_returned_pieces(self._reasoning_kind, key, [piece])
        for detail in details:
            if detail.get("signature") or detail.get("data"):
                without_text = {key: detail[key] for key in detail if key not in ("text", "summary")}
                messages.extend_metadata(self._reasoning_kind, "reasoning_details", [without_text])
        if opaque := {key: text for key in OPAQUE_KEYS if (text := as_text(delta.get(key)))}:
            yield from self._open_reasoning()
            messages.add_returned(self._reasoning_kind, opaque)
            self._hold(messages.ids.get(self._reasoning_kind), opaque)

    def _open_reasoning(self) -> Iterator[Event]:
        """The beginning of redacted reasoning, if none is open."""
        if "reasoning" not in self.messages.ids and "redacted" not in self.messages.ids:
            yield self.messages.create("redacted")

    @property
    def _reasoning_kind(self) -> str:
        """The kind of the reasoning that what comes without a text belongs to."""
        return "redacted" if "redacted" in self.messages.ids else "reasoning"

    def _read_content(self, content: Any, chunk: WireObject) -> Iterator[Event]:
        """The content: text, or content parts, as a list or alone."""
        if is_object(content):
            content = [content]
        if not is_list(content):
            yield from self.messages.append("text", self._text_of(content, "content"))
            return
        for part in content:
            match part:
                case str():
                    yield from self.messages.append("text", part)
                case {"type": "text" | "output_text"}:
                    yield from self.messages.append("text", self._text_of(part.get("text"), "content"))
                case {"type": "thinking"}:
                    yield from self.messages.finish("redacted", "completed")
                    self.messages.add_returned("reasoning", {"content": emptied_thinking(part)})
                    yield from self.messages.append("reasoning", thinking_text(part.get("thinking")))
                case {"type": "reference"} if is_object(part):
                    self._annotations += ((part, chunk),)  # Mistral: of what was written before it
                    if "text" not in self.messages.ids:
                        self._hold(None, part)
                case {"type": "image_url"}:
                    yield from self._read_image(part, chunk)
                case _:
                    yield RawEvent("content", chunk)

    def _with_logprobs(
        self, kind: str, events: Iterable[Event], logprobs: WireObject, chunk: WireObject
    ) -> Iterator[Event]:
        """The events, with the log probabilities of their tokens on the first delta and on the done message."""
        found = logprobs.get("content" if kind == "text" else kind)
        tokens = found if is_list(found) else []
        is_attached = False
        for event in events:
            if tokens and not is_attached and isinstance(event, TextDelta | RefusalDelta):
                event.metadata = {"logprobs": tokens}
                is_attached = True
            yield event
        if tokens:
            self.messages.extend_metadata(kind, "logprobs", tokens)
            if not is_attached:
                yield RawEvent("logprobs", chunk)

    def _read_audio(self, audio: Any) -> Iterator[Event]:
        """Speech and its transcript, which are two messages."""
        if not is_object(audio):
            if audio is not None:
                self._warn("bad-audio", "its `audio` is not an object; it was skipped")
            return
        messages = self.messages
        metadata = without_keys({"audio_id": audio.get("id"), "expires_at": audio.get("expires_at")})
        messages.add_metadata("audio", **metadata)
        messages.add_metadata("transcript", audio_transcript=True, **metadata)
        yield from messages.append("transcript", self._text_of(audio.get("transcript"), "transcript"))
        data = audio.get("data")
        if isinstance(data, str) and re.fullmatch(_BASE64, data):
            yield from messages.append("audio", data)
        elif data is not None:
            self._warn("bad-audio", "its audio data is not base64; it was skipped")

    def _read_image(self, part: Any, chunk: WireObject) -> Iterator[Event]:
        """A generated image: `{"image_url": {"url": …}}`, or the URL alone."""
        image_url = as_object(part).get("image_url")
        url = as_text(image_url) or as_text(as_object(image_url).get("url"))
        if not url:
            yield RawEvent("images", chunk)
        elif found := re.fullmatch(_DATA_URL, url):
            yield from self.messages.add_image(f"base64.{found[1]}", found[2])
        else:
            yield from self.messages.add_image("url", url)

    # -- tool calls

    def _calls(self) -> ToolCalls:
        """The tool calls, which most choices have none of."""
        if self.tool_calls is NO_CALLS:
            self.tool_calls = self.messages.tool_calls = ToolCalls()
        return self.tool_calls

    def _read_tool_call(self, fragment: Any, position: int) -> Iterator[Event]:
        """A fragment of a call. Some servers put name and arguments beside the id, without `function`."""
        if not is_object(fragment):
            self._warn("bad-tool-calls", "a tool call is not an object; it was skipped")
            return
        is_custom = is_object(fragment.get("custom"))
        function = fragment.get("custom") if is_custom else fragment.get("function")
        if not is_object(function):
            function = fragment
        name, call_id = as_text(function.get("name")), as_text(fragment.get("id"))
        arguments = text_or_json(function.get("arguments", function.get("input")))
        index = as_index(fragment.get("index"), self._warn)
        calls = self._calls()
        before, count = calls.latest, len(calls.in_order)
        call = calls.find(index, call_id, name, arguments, position)
        if before is not None and len(calls.in_order) > count:
            yield from self.messages.pass_call(before)
        call.is_custom = call.is_custom or is_custom
        extra = without_keys(fragment, *CALL_KEYS) if function is not fragment else {}
        if extra and (changed := add_values(call.extra, extra)):
            self._hold(call.message_id, changed)
        yield from self.messages.append_to_call(call, call_id, name, arguments)

    def begin_call(self, index: int, call_id: str, name: str, arguments: str) -> list[Event]:
        """A call of which the first fragment came, with an id and a name, and with an index that no open call has."""
        calls = self._calls()
        before = calls.latest
        call = calls.find(index, call_id, name, arguments, 0)
        events = self.messages.pass_call(before) if before is not None else []
        return events + self.messages.append_to_call(call, call_id, name, arguments)

    def _read_function_call(self, fragment: Any) -> Iterator[Event]:
        """The deprecated `function_call`: one call without an id."""
        if not is_object(fragment):
            self._warn("bad-tool-calls", "its `function_call` is not an object; it was skipped")
            return
        name, arguments = as_text(fragment.get("name")), text_or_json(fragment.get("arguments"))
        yield from self.messages.append_to_call(self._calls().find_function_call(), "", name, arguments)
