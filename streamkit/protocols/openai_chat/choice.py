"""One choice of a Chat Completions answer tells of its messages; `openai_chat` says which these are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ... import events as e
from ... import messages as m
from ...messages import Message
from ..values import is_list, is_object
from .calls import Call, Calls
from .wire import (
    ENDS,
    KNOWN_OF_CHOICE,
    REASONING,
    annotation_of,
    arguments_of,
    index_of,
    joined,
    json_text,
    list_of,
    mapping,
    only_deltas,
    string,
)

__all__ = ["Choice"]

_KINDS: dict[str, type[Message]] = {
    "reasoning": m.ReasoningMessage,
    "redacted": m.ReasoningMessage,
    "text": m.TextMessage,
    "transcript": m.TextMessage,
    "refusal": m.RefusalMessage,
    "audio": m.AudioMessage,
}
_ROLES = ("assistant", "user", "system")
_WHOLE = ("chat.completion", "chat.completion.done")
# What a whole message has that deltas may have brought already, by the kind that they brought.
_ARRIVES = {
    **dict.fromkeys((*REASONING, "reasoning_details"), "reasoning"),
    "content": "text",
    "refusal": "refusal",
    "audio": "audio",
    "images": "images",
    "function_call": "calls",
}
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}").fullmatch
_DATA_URL = re.compile(r"data:image/(png|jpeg);base64,(.*)", re.DOTALL).fullmatch


class Choice:
    """One choice, from its first delta to its finish_reason.

    Attributes:
        finish_reason: the provider's, None until it is told.
        finished: whether it was told.
        extra: what the chunks say of this choice that no event is for.
        calls: the tool calls that are open.
        text: the id of the open text, None where a bare piece of text would change more than it: for the fast path.
        reasoning: the id of the open reasoning, None as above.
        thinking: whether reasoning is open, so that any other piece ends it.
    """

    __slots__ = (
        "_arrived",
        "_count",
        "_fault",
        "_final",
        "_group",
        "_metadata",
        "_new_id",
        "_open",
        "_role",
        "_whole",
        "calls",
        "extra",
        "finish_reason",
        "finished",
        "index",
        "reasoning",
        "text",
        "thinking",
    )

    def __init__(
        self, index: int, group: str | None, new_id: Callable[[], str], fault: Callable[[str, str], None]
    ) -> None:
        self.index = index
        self.finish_reason: str | None = None
        self.finished = False
        self.extra: dict[str, Any] = {}
        self.calls = Calls()
        self.text: str | None = None
        self.reasoning: str | None = None
        self.thinking = False
        self._group = group
        self._new_id = new_id
        self._fault = fault
        self._role = ""
        self._open: dict[str, str] = {}  # the ids of the open messages, by kind
        self._arrived: set[str] = set()
        self._metadata: dict[str, dict[str, Any]] = {}  # what the done messages will have, by kind
        self._final: dict[str, str] = {}
        self._whole: Mapping[str, Any] | None = None
        self._count = 0  # the messages begun

    def feed(self, given: Mapping[str, Any], item: Mapping[str, Any]) -> Iterator[e.Event]:
        """What a chunk says of this choice; `item` is the chunk."""
        delta, message = given.get("delta"), given.get("message")
        whole = item.get("object") in _WHOLE
        told: list[e.Event] = []
        if is_object(delta):
            told += self._delta(delta, mapping(given.get("logprobs")), item)
            yield from told
        elif delta is not None:
            self._fault("bad-delta", "a choice's `delta` is no object; it was skipped")
        if is_object(message) and (whole or not is_object(delta)):
            self._whole = message
        bare = only_deltas(told)
        for key in given:
            if key not in KNOWN_OF_CHOICE and given[key] and (key == "content_filter_results" or not bare):
                self.extra[key] = given[key]
        reason = given.get("finish_reason")
        if reason is not None and not isinstance(reason, str):
            self._fault("bad-finish-reason", "a finish_reason is no string; it was skipped")
            reason = None
        if reason or (whole and self._whole):
            self.finish_reason = reason or self.finish_reason
            self.finished = True
            yield from self._tell_whole(mapping(given.get("logprobs")), item)
            yield from self._close(ENDS.get(self.finish_reason or "", "completed"))
        self._settle()

    def end(self, status: m.Status) -> Iterator[e.Event]:
        """The answer is over: what stays untold and open of this choice."""
        yield from self._tell_whole({}, {})
        yield from self._close(status)
        self._settle()

    def _settle(self) -> None:
        self.thinking = "reasoning" in self._open or "redacted" in self._open
        self.text = None if self.thinking else self._open.get("text")
        self.reasoning = self._open.get("reasoning")

    def _delta(
        self, delta: Mapping[str, Any], logprobs: Mapping[str, Any], item: Mapping[str, Any]
    ) -> Iterator[e.Event]:
        if not self._role and delta.get("role") in _ROLES:
            self._role = delta["role"]
        yield from self._reasoning(delta)
        yield from self._logged("text", self._content(delta.get("content"), item), logprobs, item)
        refusal = self._text(delta.get("refusal"), "refusal")
        yield from self._logged("refusal", self._grow("refusal", refusal), logprobs, item)
        yield from self._audio(delta.get("audio"))
        for image in list_of(delta.get("images")) or ():
            yield from self._image(image, item)
        if (function := delta.get("function_call")) is not None:
            yield from self._function(function)
        if (calls := delta.get("tool_calls")) is not None:
            yield from self._tool_calls(calls)
        for annotation in list_of(delta.get("annotations")) or ():
            if "text" in self._open and is_object(annotation):
                yield e.AnnotationAdded(self._open["text"], annotation_of(annotation))
            else:
                yield e.RawEvent("annotations", item)

    def _grow(self, kind: str, value: str) -> Iterator[e.Event]:
        """A piece of the choice's one open message of this kind, which is opened if need be."""
        if not value:
            return
        if kind not in ("reasoning", "redacted"):
            yield from self._stop_thinking()
        if kind not in self._open:
            yield self._begin(kind)
        yield _KINDS[kind].delta_event(self._open[kind], value)

    def _begin(self, kind: str) -> e.Event:
        self._open[kind] = id = self._new_id()
        self._arrived.add("reasoning" if kind == "redacted" else kind)
        known: dict[str, Any] = {"format": "redacted"} if kind == "redacted" else {}
        if kind == "transcript":
            known["metadata"] = self._metadata.setdefault(kind, {"audio_transcript": True}).copy()
        return e.MessageCreated(_KINDS[kind](id, **self._place(), **known))

    def _place(self) -> dict[str, Any]:
        """What every message of a choice has."""
        self._role = self._role or "assistant"
        self._count += 1
        return {"role": self._role, "group": self._group, "index": self._count - 1, "choice": self.index}

    def _stop(self, kind: str, status: m.Status) -> Iterator[e.Event]:
        if kind in self._open:
            metadata = self._metadata.pop(kind, None)
            final = self._final.pop(kind, "" if kind == "redacted" else None)
            yield e.MessageDone(_KINDS[kind](self._open.pop(kind), content=final, status=status, metadata=metadata))

    def _stop_thinking(self) -> Iterator[e.Event]:
        yield from self._stop("reasoning", "completed")
        yield from self._stop("redacted", "completed")

    def _close(self, status: m.Status) -> Iterator[e.Event]:
        for kind in [*self._open]:
            yield from self._stop(kind, status)
        for call in self.calls.begun:
            if call.id is None and (call.held or call.call_id):
                self._fault("no-tool-name", f"tool call {call.call_id!r} never got a name")
                yield from self._begin_call(call)
            if call.id is not None:
                known: dict[str, Any] = {"name": call.name or None, "call_id": call.call_id or None}
                yield e.MessageDone(m.ToolCallMessage(call.id, status=status, **known))
        self.calls.clear()
        self._metadata.clear()

    def _tell_whole(self, logprobs: Mapping[str, Any], item: Mapping[str, Any]) -> Iterator[e.Event]:
        """A whole message: what has not arrived of it is told, what has is compared when it is done."""
        message, self._whole = self._whole, None
        if message is None:
            return
        rest = {key: value for key, value in message.items() if _ARRIVES.get(key) not in self._arrived}
        calls = message.get("tool_calls")
        if is_list(calls) and "calls" in self._arrived:
            known_ids = ("", *self.calls.by_id)
            rest["tool_calls"] = [call for call in calls if string(mapping(call).get("id")) not in known_ids]
            if not self.calls.begun:
                del rest["tool_calls"]  # they were done with the finish_reason before
        if "text" in self._arrived and "text" not in self._open:
            rest.pop("annotations", None)
        known = [*self._open]
        yield from self._delta(rest, logprobs, item)
        for key in ("content", "refusal"):
            if _ARRIVES[key] in known and (final := string(message.get(key))):
                self._final[_ARRIVES[key]] = final

    # -- the parts of a delta

    def _text(self, value: Any, key: str) -> str:
        """A string; a number is read as its digits."""
        if isinstance(value, str) or value is None:
            return value or ""
        told = isinstance(value, int | float) and not isinstance(value, bool)
        self._fault(
            f"non-string-{key}", f"`{key}` is a {type(value).__name__}; {'read as text' if told else 'skipped'}"
        )
        return json_text(value) if told else ""

    def _reasoning(self, delta: Mapping[str, Any]) -> Iterator[e.Event]:
        text = next((text for key in REASONING if (text := self._text(delta.get(key), "reasoning"))), "")
        details = [detail for detail in list_of(delta.get("reasoning_details")) or () if is_object(detail)]
        if not text:
            text = "".join(string(detail.get("text")) or string(detail.get("summary")) for detail in details)
        if text:
            yield from self._stop("redacted", "completed")
            yield from self._grow("reasoning", text)
        for detail in details:
            if not detail.get("signature") and not detail.get("data"):
                continue
            if "reasoning" not in self._open and "redacted" not in self._open:
                yield self._begin("redacted")
            kept = {key: detail[key] for key in detail if key not in ("text", "summary")}
            kind = "reasoning" if "reasoning" in self._open else "redacted"
            self._metadata.setdefault(kind, {}).setdefault("reasoning_details", []).append(kept)

    def _content(self, content: Any, item: Mapping[str, Any]) -> Iterator[e.Event]:
        if is_object(content):
            content = [content]
        if not is_list(content):
            yield from self._grow("text", self._text(content, "content"))
            return
        for part in content:
            match part:
                case str() | {"type": "text" | "output_text"}:
                    text = part if isinstance(part, str) else self._text(part.get("text"), "content")
                    yield from self._grow("text", text)
                case {"type": "thinking"}:
                    yield from self._stop("redacted", "completed")
                    yield from self._grow("reasoning", joined(part.get("thinking")))
                case {"type": "image_url"}:
                    yield from self._image(part, item)
                case _:
                    yield e.RawEvent("content", item)

    def _logged(
        self,
        kind: str,
        events: Iterator[e.Event],
        logprobs: Mapping[str, Any],
        item: Mapping[str, Any],
    ) -> Iterator[e.Event]:
        """The events, with the log probabilities of their tokens on the first delta and on the done message."""
        tokens = list_of(logprobs.get("content" if kind == "text" else kind))
        told = False
        for event in events:
            if tokens and not told and isinstance(event, e.TextDelta | e.RefusalDelta):
                event.metadata = {"logprobs": tokens}
                told = True
            yield event
        if tokens:
            self._metadata.setdefault(kind, {}).setdefault("logprobs", []).extend(tokens)
            if not told:
                yield e.RawEvent("logprobs", item)

    def _audio(self, audio: Any) -> Iterator[e.Event]:
        if not is_object(audio):
            if audio is not None:
                self._fault("bad-audio", "its `audio` is no object; it was skipped")
            return
        known = {"audio_id": audio.get("id"), "expires_at": audio.get("expires_at")}
        for kind in ("audio", "transcript"):
            start: dict[str, Any] = {"audio_transcript": True} if kind == "transcript" else {}
            self._metadata.setdefault(kind, start).update({k: v for k, v in known.items() if v is not None})
        yield from self._grow("transcript", self._text(audio.get("transcript"), "transcript"))
        data = string(audio.get("data"))
        if not _BASE64(data):
            self._fault("bad-audio", "its audio data is not base64; it was skipped")
        else:
            yield from self._grow("audio", data)

    def _image(self, part: Any, item: Mapping[str, Any]) -> Iterator[e.Event]:
        url = mapping(part).get("image_url")
        url = string(url) or string(mapping(url).get("url"))
        if not url:
            yield e.RawEvent("images", item)
            return
        yield from self._stop_thinking()
        self._arrived.add("images")
        format, content = (f"base64.{found[1]}", found[2]) if (found := _DATA_URL(url)) else ("url", url)
        yield e.MessageDone(m.ImageMessage(self._new_id(), format=format, content=content, **self._place()))

    # -- tool calls

    def _tool_calls(self, given: Any) -> Iterator[e.Event]:
        if not is_list(given):
            self._fault("bad-tool-calls", "its `tool_calls` are no list")
        for position, piece in enumerate(given if is_list(given) else [given]):
            if not is_object(piece):
                self._fault("bad-tool-calls", "a tool call is no object; it was skipped")
                continue
            custom = is_object(piece.get("custom"))
            function = piece.get("custom") if custom else piece.get("function")
            if not is_object(function):
                function = piece
            name, call_id = string(function.get("name")), string(piece.get("id"))
            arguments = arguments_of(function.get("arguments", function.get("input")))
            call = self.calls.find(index_of(piece.get("index"), self._fault), call_id, name, arguments, position)
            call.custom = call.custom or custom
            yield from self._piece(call, call_id, name, arguments)

    def _function(self, given: Any) -> Iterator[e.Event]:
        """The legacy `function_call`: one call without an id."""
        if not is_object(given):
            self._fault("bad-tool-calls", "its `function_call` is no object; it was skipped")
            return
        arguments = arguments_of(given.get("arguments"))
        yield from self._piece(self.calls.find_legacy(), "", string(given.get("name")), arguments)

    def _piece(self, call: Call, call_id: str, name: str, arguments: str) -> Iterator[e.Event]:
        """Id and name count once: some servers repeat them. Arguments wait for the name."""
        call.call_id = call.call_id or call_id
        call.name = call.name or name
        if call.id is not None:
            if arguments:
                yield from self._stop_thinking()
                yield e.ToolCallDelta(call.id, arguments)
            return
        if arguments:
            call.held.append(arguments)
        if call.name:
            yield from self._stop_thinking()
            yield from self._begin_call(call)

    def _begin_call(self, call: Call) -> Iterator[e.Event]:
        call.id = self._new_id()
        self._arrived.add("calls")
        known: dict[str, Any] = {"name": call.name or None, "call_id": call.call_id or None}
        custom = {"custom": True} if call.custom else None
        yield e.ToolCallCreated(m.ToolCallMessage(call.id, metadata=custom, **known, **self._place()))
        if call.held:
            yield e.ToolCallDelta(call.id, "".join(call.held))
            call.held.clear()
