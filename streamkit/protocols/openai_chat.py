"""Chat Completions chunks, as OpenAI, Azure and every compatible server stream them.

Terminal rule: `[DONE]`, or a finish_reason for every choice that was seen, or an error. A choice gives one text, one
refusal, its tool calls, its audio (whose transcript is a text of its own), and a reasoning message for each stretch of
reasoning. They stay open, side by side, until the choice's finish_reason; reasoning ends where other content begins.
A stream without it was cut off. Whole completions (`object: chat.completion`) are read as streams of one item.

`RunDone` comes with `[DONE]`, with an error, or at the source's end, because usage comes after finish_reason.
`Run.metadata` holds what the chunks say of the whole answer (`citations`, `service_tier` …), `finish_reasons` by
choice where there are several, and under `choices` what they say of one choice alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import length_hint
from typing import Any, TypeGuard

import msgspec

from .. import events as e
from .. import messages as m
from .. import protocols
from ..messages import Message

__all__ = ["Decoder", "Encoder", "to_input"]

# What a finish_reason says of the answer; any other ends it well. The first two are OpenAI's.
_ENDS: dict[str, m.Status] = {
    "length": "incomplete",
    "content_filter": "incomplete",
    "max_tokens": "incomplete",
    "model_length": "incomplete",  # Mistral
    "insufficient_system_resource": "incomplete",  # DeepSeek
    "error": "failed",  # OpenRouter, Mistral
    "network_error": "failed",  # Zhipu
}
_KINDS: dict[str, type[Message]] = {
    "reasoning": m.ReasoningMessage,
    "redacted": m.ReasoningMessage,
    "text": m.TextMessage,
    "transcript": m.TextMessage,
    "refusal": m.RefusalMessage,
    "audio": m.AudioMessage,
}
_ROLES = ("assistant", "user", "system")
_OBJECTS = ("chat.completion.chunk", "chat.completion", "chat.completion.done")
_WHOLE = ("chat.completion", "chat.completion.done")
_REASONING = ("reasoning_content", "reasoning")
# Chunk keys kept in `Run.metadata`: from every chunk, and from those that tell more than a piece of text.
_KEPT = ("citations", "search_results", "prompt_filter_results", "x_groq")
_KEPT_SOMETIMES = ("service_tier", "system_fingerprint", "provider")
_RAW = ("moderation", "prompt_filter_results")  # told whole as well: no event is for them
# Keys that are understood, or mean nothing. An item that tells nothing and has others is told as it came.
_KNOWN = frozenset(
    (*_KEPT, *_KEPT_SOMETIMES, *_RAW, "id", "object", "created", "model", "choices", "usage", "error", "obfuscation")
)
_KNOWN_OF_CHOICE = frozenset(("index", "delta", "message", "finish_reason", "logprobs", "usage", "error"))
_KNOWN_OF_DELTA = frozenset(
    ("role", "content", "refusal", "tool_calls", "function_call", "audio", "images", "annotations", "index")
).union((*_REASONING, "reasoning_details"))
# What a whole message has that deltas may have brought already, by the kind that they brought.
_ARRIVES = {
    **dict.fromkeys((*_REASONING, "reasoning_details"), "reasoning"),
    "content": "text",
    "refusal": "refusal",
    "audio": "audio",
    "images": "images",
    "function_call": "calls",
}
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}").fullmatch
_DATA_URL = re.compile(r"data:image/(png|jpeg);base64,(.*)", re.DOTALL).fullmatch
_LIMIT = 2**53


# -- the fast path's view of a chunk: one choice with one piece of an open message, and nothing else


class _BareFunction(msgspec.Struct, gc=False):
    arguments: str


class _BareCall(msgspec.Struct, gc=False):
    index: int
    function: _BareFunction
    id: str | None = None
    custom: None = None


class _BareDelta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[_BareCall] | None = None
    refusal: None = None
    function_call: None = None
    audio: None = None
    annotations: None = None
    reasoning_details: None = None
    images: None = None


class _BareChoice(msgspec.Struct, gc=False):
    delta: _BareDelta
    index: int = 0
    finish_reason: None = None
    logprobs: None = None
    message: None = None
    usage: None = None
    error: None = None
    content_filter_results: None = None


class _BareChunk(msgspec.Struct, gc=False):
    choices: tuple[_BareChoice]
    usage: None = None
    error: None = None
    citations: None = None
    search_results: None = None
    prompt_filter_results: None = None
    x_groq: None = None
    moderation: None = None


_bare = msgspec.json.Decoder(_BareChunk).decode
_TextDelta = e.TextDelta
_encode = msgspec.json.Encoder(enc_hook=str).encode


# -- what is known of an answer while it streams


class _Call(msgspec.Struct):
    """A tool call. `id` is its message's, None until its name is known."""

    call_id: str = ""
    name: str = ""
    id: str | None = None
    held: list[str] = []
    custom: bool = False
    whole: bool = False  # one piece brought it all, so another piece of the same name is another call


class _Choice(msgspec.Struct):
    """One choice. `open` has the ids of its open messages by kind, `metadata` what their done messages will have."""

    index: int
    role: str = ""
    open: dict[str, str] = {}
    arrived: set[str] = set()
    metadata: dict[str, dict[str, Any]] = {}
    final: dict[str, str] = {}
    calls: list[_Call] = []
    by_index: dict[int, _Call] = {}
    by_id: dict[str, _Call] = {}
    last: _Call | None = None
    function: _Call | None = None
    whole: Mapping[str, Any] | None = None
    finish_reason: str | None = None
    finished: bool = False
    extra: dict[str, Any] = {}
    opened: int = 0
    # For the fast path: where a bare piece goes, None where it would change more.
    text: str | None = None
    reasoning: str | None = None
    thinking: bool = False

    def settle(self) -> None:
        self.thinking = "reasoning" in self.open or "redacted" in self.open
        self.text = None if self.thinking else self.open.get("text")
        self.reasoning = self.open.get("reasoning")


class Decoder(protocols.Decoder):
    """Chat Completions chunks of any server; see the module for when they are complete.

    Tool calls are told apart by index, where there is none by id; what has neither goes on with the last one. Where
    an index comes again with another id and a name, it is another call (some servers number every call 0).
    """

    name = "openai_chat"
    index: int

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._choices: dict[int, _Choice] = {}
        self._begun = False
        self._ended = False
        self._group: str | None = None
        self._metadata: dict[str, Any] = {}
        self._used: Mapping[str, Any] = {}
        self._faults: list[e.Event] = []

    @classmethod
    def recognises(cls, item: Mapping[str, Any]) -> bool:
        if item.get("object") in _OBJECTS:
            return True
        choices = item.get("choices")
        if not _is_list(choices):
            return False
        if not choices:
            return "prompt_filter_results" in item  # Azure's first chunk
        return all(_is_object(choice) and ("delta" in choice or "message" in choice) for choice in choices)

    def feed_frames(self, frames: Sequence[tuple[bytes, bytes, bytes]]) -> list[e.Event]:
        events: list[e.Event] = []
        choices = self._choices
        rest = iter(frames)
        for id, name, data in rest:
            try:
                choice = _bare(data).choices[0]
                delta = choice.delta
                state = choices[choice.index]
                value = delta.content
                plain = delta.tool_calls is None and delta.reasoning is None and delta.reasoning_content is None
                if plain and value and state.text is not None:
                    event: e.Event | None = _TextDelta(state.text, value, source=data)
                else:
                    event = self._bare_event(state, delta, data)
            except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
                event = None
            if event is None:
                before = self.index
                self.index = before + len(frames) - length_hint(rest) - 1
                events += self.feed_frame(id, name, data)
                self.index = before
                continue
            if id:
                event.position = id.decode("utf-8", "replace")
            events.append(event)
        self.index += len(frames)
        return events

    def _bare_event(self, state: _Choice, delta: _BareDelta, data: bytes) -> e.Event | None:
        """The event of a delta that is not text alone, None if there is more to it than one piece."""
        if delta.tool_calls is not None:
            call = state.by_index.get(delta.tool_calls[0].index)
            return None if call is None else self._bare_call(state, call, delta, delta.tool_calls[0], data)
        if reasoning := delta.reasoning_content or delta.reasoning:
            if state.reasoning is None or delta.content:
                return None
            return e.ReasoningDelta(state.reasoning, reasoning, source=data)
        if delta.content and state.text is not None:
            return _TextDelta(state.text, delta.content, source=data)
        return None

    def _bare_call(
        self, state: _Choice, call: _Call, delta: _BareDelta, piece: _BareCall, data: bytes
    ) -> e.Event | None:
        """The event of a piece of an open call's arguments, None if there is more to it."""
        plain = not (state.thinking or delta.content or delta.reasoning_content or delta.reasoning)
        if not plain or call.id is None or not piece.function.arguments or (piece.id and piece.id != call.call_id):
            return None
        state.last = call
        return e.ToolCallDelta(call.id, piece.function.arguments, source=data)

    def feed_frame(self, id: bytes, name: bytes, data: bytes) -> list[e.Event]:
        if name != b"error":
            return super().feed_frame(id, name, data)
        events = super().feed_frame(id, b"", _as_error(data))
        for event in events:
            event.source = data
        return events

    def feed(self, item: Mapping[str, Any]) -> Iterable[e.Event]:
        events = [*self._item(item)]
        if not events and not self._faults and _has_more(item):
            events.append(e.RawEvent(_name(item), item))
        return events + self._drain()

    def sentinel(self, data: bytes) -> Iterable[e.Event]:
        self.complete = True
        yield from self._end()

    def finish(self) -> Iterable[e.Event]:
        if self.complete:
            yield from self._end()
            return
        for choice in [*self._choices.values()]:
            yield from self._tell_whole(choice)
            yield from self._close(choice, "incomplete")
        if metadata := self._run_metadata():
            yield e.RunCreated(e.Run(metadata=metadata))  # it adds to the run that was begun
        yield from self._drain()

    # -- an item

    def _item(self, item: Mapping[str, Any]) -> Iterator[e.Event]:
        for key in _RAW:
            if item.get(key):
                yield e.RawEvent(key, item)
        self._keep(item, _KEPT)
        listed = _list(item.get("choices"))
        if listed is None:
            self._fault("bad-choices", "its `choices` are no list")
            listed = [item["choices"]]
        if not self._begun and (listed or (_string(item.get("id")) and item.get("object") in _OBJECTS)):
            yield self._begin(item)
        told = [event for position, choice in enumerate(listed) for event in self._choice(position, choice, item)]
        yield from told
        yield from self._usage(item, listed)
        if not _only_deltas(told):
            self._keep(item, _KEPT_SOMETIMES)
        error = _error(item, listed)
        if error is not None and self._ended:
            yield e.RawEvent("error", item)
        elif error is not None:
            yield from self._end(error)
        self.complete = self._ended or self._all_finished()

    def _begin(self, item: Mapping[str, Any]) -> e.Event:
        self._begun = True
        self._group = _string(item.get("id")) or None
        self._keep(item, _KEPT_SOMETIMES)
        return e.RunCreated(
            e.Run(
                id=self._group or "",
                model=_string(item.get("model")) or None,
                created_at=_time(item.get("created")),
                metadata=dict(self._metadata),
            )
        )

    def _keep(self, item: Mapping[str, Any], keys: Iterable[str]) -> None:
        for key in keys:
            value = item.get(key)
            if key == "x_groq" and _is_object(value):
                known = _mapping(self._metadata.get(key))
                value = {**known, **{name: value[name] for name in value if name not in ("usage", "error")}}
            if value:
                self._metadata[key] = value

    def _usage(self, item: Mapping[str, Any], choices: list[Any]) -> Iterator[e.Event]:
        """Usage, wherever it stands, each time that it changes."""
        places = (item, *(_mapping(choice) for choice in choices), _mapping(item.get("x_groq")))
        used = next((place["usage"] for place in places if place.get("usage")), None)
        if used is None or used == self._used:
            return
        if not _is_object(used):
            self._fault("bad-usage", "its `usage` is no object; it was skipped")
            return
        self._used = used
        counts = [
            _count(used.get(f"{name}_tokens", used.get(f"{other}_tokens")))
            for name, other in (("prompt", "input"), ("completion", "output"), ("total", ""))
        ]
        plain = ("prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens")
        details = {key: value for key, value in used.items() if key not in plain and value is not None}
        yield e.Usage(counts[0], counts[1], counts[2] or counts[0] + counts[1], details)

    def _end(self, error: Mapping[str, Any] | None = None) -> Iterator[e.Event]:
        """The run is over: by an error, or as its lowest choice's finish_reason says."""
        if self._ended:
            return
        self._ended = self.complete = True
        for choice in [*self._choices.values()]:
            yield from self._tell_whole(choice)
            yield from self._close(choice, "completed" if error is None else "failed")
        reason = self._choices[min(self._choices)].finish_reason if self._choices else None
        status = _ENDS.get(reason or "", "completed") if error is None else "failed"
        if status == "failed" and error is None:
            error = {"message": f"the provider ended its answer with the finish_reason {reason!r}"}
        metadata = self._run_metadata()
        yield e.RunDone(e.Run(status=status, error=error, finish_reason=reason, metadata=metadata))
        yield from self._drain()

    def _run_metadata(self) -> dict[str, Any]:
        metadata = dict(self._metadata)
        choices = sorted(self._choices.values(), key=lambda choice: choice.index)
        if len(choices) > 1:
            metadata["finish_reasons"] = {str(choice.index): choice.finish_reason for choice in choices}
        if extra := {str(choice.index): choice.extra for choice in choices if choice.extra}:
            metadata["choices"] = extra
        return metadata

    def _all_finished(self) -> bool:
        return bool(self._choices) and all(choice.finished for choice in self._choices.values())

    def _fault(self, code: str, fault: str) -> None:
        self._faults.append(self.warn(code, fault, "chat.completion.chunk"))

    def _drain(self) -> list[e.Event]:
        faults, self._faults = self._faults, []
        return faults

    # -- a choice

    def _choice(self, position: int, given: Any, item: Mapping[str, Any]) -> Iterator[e.Event]:
        if not _is_object(given):
            self._fault("bad-choice", "one of its choices is no object; it was skipped")
            return
        index = self._index(given.get("index"))
        if index is None:
            index = position
        state = self._choices.setdefault(index, _Choice(index))
        delta, message = given.get("delta"), given.get("message")
        whole = item.get("object") in _WHOLE
        told: list[e.Event] = []
        if _is_object(delta):
            told += self._delta(state, delta, _mapping(given.get("logprobs")), item)
            yield from told
        elif delta is not None:
            self._fault("bad-delta", "a choice's `delta` is no object; it was skipped")
        if _is_object(message) and (whole or not _is_object(delta)):
            state.whole = message
        for key in given:
            if (
                key not in _KNOWN_OF_CHOICE
                and given[key]
                and (key == "content_filter_results" or not _only_deltas(told))
            ):
                state.extra[key] = given[key]
        reason = given.get("finish_reason")
        if reason is not None and not isinstance(reason, str):
            self._fault("bad-finish-reason", "a finish_reason is no string; it was skipped")
            reason = None
        if reason or (whole and state.whole):
            state.finish_reason = reason or state.finish_reason
            state.finished = True
            yield from self._tell_whole(state, _mapping(given.get("logprobs")), item)
            yield from self._close(state, _ENDS.get(state.finish_reason or "", "completed"))
        state.settle()

    def _delta(
        self, state: _Choice, delta: Mapping[str, Any], logprobs: Mapping[str, Any], item: Mapping[str, Any]
    ) -> Iterator[e.Event]:
        if not state.role and delta.get("role") in _ROLES:
            state.role = delta["role"]
        yield from self._reasoning(state, delta)
        yield from self._logged(state, "text", self._content(state, delta.get("content"), item), logprobs, item)
        refusal = self._text(delta.get("refusal"), "refusal")
        yield from self._logged(state, "refusal", self._grow(state, "refusal", refusal), logprobs, item)
        yield from self._audio(state, delta.get("audio"))
        for image in _list(delta.get("images")) or ():
            yield from self._image(state, image, item)
        if (function := delta.get("function_call")) is not None:
            yield from self._function(state, function)
        if (calls := delta.get("tool_calls")) is not None:
            yield from self._tool_calls(state, calls)
        for annotation in _list(delta.get("annotations")) or ():
            if "text" in state.open and _is_object(annotation):
                yield e.AnnotationAdded(state.open["text"], _annotation(annotation))
            else:
                yield e.RawEvent("annotations", item)

    def _grow(self, state: _Choice, kind: str, value: str) -> Iterator[e.Event]:
        """A piece of the choice's one open message of this kind, which is opened if need be."""
        if not value:
            return
        if kind not in ("reasoning", "redacted"):
            yield from self._stop_thinking(state)
        if kind not in state.open:
            yield self._open(state, kind)
        yield _KINDS[kind].delta_event(state.open[kind], value)

    def _open(self, state: _Choice, kind: str) -> e.Event:
        state.open[kind] = id = self.new_id()
        state.arrived.add("reasoning" if kind == "redacted" else kind)
        known: dict[str, Any] = {"format": "redacted"} if kind == "redacted" else {}
        if kind == "transcript":
            known["metadata"] = state.metadata.setdefault(kind, {"audio_transcript": True}).copy()
        return e.MessageCreated(_KINDS[kind](id, **self._place(state), **known))

    def _place(self, state: _Choice) -> dict[str, Any]:
        """What every message of a choice has."""
        state.role = state.role or "assistant"
        state.opened += 1
        return {"role": state.role, "group": self._group, "index": state.opened - 1, "choice": state.index}

    def _stop(self, state: _Choice, kind: str, status: m.Status) -> Iterator[e.Event]:
        if kind in state.open:
            metadata = state.metadata.pop(kind, None)
            final = state.final.pop(kind, "" if kind == "redacted" else None)
            yield e.MessageDone(_KINDS[kind](state.open.pop(kind), content=final, status=status, metadata=metadata))

    def _stop_thinking(self, state: _Choice) -> Iterator[e.Event]:
        yield from self._stop(state, "reasoning", "completed")
        yield from self._stop(state, "redacted", "completed")

    def _close(self, state: _Choice, status: m.Status) -> Iterator[e.Event]:
        for kind in [*state.open]:
            yield from self._stop(state, kind, status)
        for call in state.calls:
            if call.id is None and (call.held or call.call_id):
                self._fault("no-tool-name", f"tool call {call.call_id!r} never got a name")
                yield from self._open_call(state, call)
            if call.id is not None:
                known: dict[str, Any] = {"name": call.name or None, "call_id": call.call_id or None}
                yield e.MessageDone(m.ToolCallMessage(call.id, status=status, **known))
        state.calls, state.by_index, state.by_id = [], {}, {}
        state.last = state.function = None
        state.metadata.clear()

    def _tell_whole(
        self, state: _Choice, logprobs: Mapping[str, Any] | None = None, item: Mapping[str, Any] | None = None
    ) -> Iterator[e.Event]:
        """A whole message: what has not arrived of it is told, what has is compared when it is done."""
        message, state.whole = state.whole, None
        if message is None:
            return
        rest = {key: value for key, value in message.items() if _ARRIVES.get(key) not in state.arrived}
        calls = message.get("tool_calls")
        if _is_list(calls) and "calls" in state.arrived:
            rest["tool_calls"] = [call for call in calls if _string(_mapping(call).get("id")) not in ("", *state.by_id)]
            if not state.calls:
                del rest["tool_calls"]  # they were done with the finish_reason before
        if "text" in state.arrived and "text" not in state.open:
            rest.pop("annotations", None)
        known = [*state.open]
        yield from self._delta(state, rest, logprobs or {}, item or {})
        for key in ("content", "refusal"):
            if _ARRIVES[key] in known and (final := _string(message.get(key))):
                state.final[_ARRIVES[key]] = final

    # -- the parts of a delta

    def _text(self, value: Any, key: str) -> str:
        """A string; a number is read as its digits."""
        if isinstance(value, str) or value is None:
            return value or ""
        told = isinstance(value, int | float) and not isinstance(value, bool)
        self._fault(
            f"non-string-{key}", f"`{key}` is a {type(value).__name__}; {'read as text' if told else 'skipped'}"
        )
        return _json_text(value) if told else ""

    def _reasoning(self, state: _Choice, delta: Mapping[str, Any]) -> Iterator[e.Event]:
        text = next((text for key in _REASONING if (text := self._text(delta.get(key), "reasoning"))), "")
        details = [detail for detail in _list(delta.get("reasoning_details")) or () if _is_object(detail)]
        if not text:
            text = "".join(_string(detail.get("text")) or _string(detail.get("summary")) for detail in details)
        if text:
            yield from self._stop(state, "redacted", "completed")
            yield from self._grow(state, "reasoning", text)
        for detail in details:
            if not detail.get("signature") and not detail.get("data"):
                continue
            if "reasoning" not in state.open and "redacted" not in state.open:
                yield self._open(state, "redacted")
            kept = {key: detail[key] for key in detail if key not in ("text", "summary")}
            kind = "reasoning" if "reasoning" in state.open else "redacted"
            state.metadata.setdefault(kind, {}).setdefault("reasoning_details", []).append(kept)

    def _content(self, state: _Choice, content: Any, item: Mapping[str, Any]) -> Iterator[e.Event]:
        if _is_object(content):
            content = [content]
        if not _is_list(content):
            yield from self._grow(state, "text", self._text(content, "content"))
            return
        for part in content:
            match part:
                case str() | {"type": "text" | "output_text"}:
                    text = part if isinstance(part, str) else self._text(part.get("text"), "content")
                    yield from self._grow(state, "text", text)
                case {"type": "thinking"}:
                    yield from self._stop(state, "redacted", "completed")
                    yield from self._grow(state, "reasoning", _joined(part.get("thinking")))
                case {"type": "image_url"}:
                    yield from self._image(state, part, item)
                case _:
                    yield e.RawEvent("content", item)

    def _logged(
        self,
        state: _Choice,
        kind: str,
        events: Iterator[e.Event],
        logprobs: Mapping[str, Any],
        item: Mapping[str, Any],
    ) -> Iterator[e.Event]:
        """The events, with the log probabilities of their tokens on the first delta and on the done message."""
        tokens = _list(logprobs.get("content" if kind == "text" else kind))
        told = False
        for event in events:
            if tokens and not told and isinstance(event, e.TextDelta | e.RefusalDelta):
                event.metadata = {"logprobs": tokens}
                told = True
            yield event
        if tokens:
            state.metadata.setdefault(kind, {}).setdefault("logprobs", []).extend(tokens)
            if not told:
                yield e.RawEvent("logprobs", item)

    def _audio(self, state: _Choice, audio: Any) -> Iterator[e.Event]:
        if not _is_object(audio):
            if audio is not None:
                self._fault("bad-audio", "its `audio` is no object; it was skipped")
            return
        known = {"audio_id": audio.get("id"), "expires_at": audio.get("expires_at")}
        for kind in ("audio", "transcript"):
            start: dict[str, Any] = {"audio_transcript": True} if kind == "transcript" else {}
            state.metadata.setdefault(kind, start).update({k: v for k, v in known.items() if v is not None})
        yield from self._grow(state, "transcript", self._text(audio.get("transcript"), "transcript"))
        data = _string(audio.get("data"))
        if not _BASE64(data):
            self._fault("bad-audio", "its audio data is not base64; it was skipped")
        else:
            yield from self._grow(state, "audio", data)

    def _image(self, state: _Choice, part: Any, item: Mapping[str, Any]) -> Iterator[e.Event]:
        url = _mapping(part).get("image_url")
        url = _string(url) or _string(_mapping(url).get("url"))
        if not url:
            yield e.RawEvent("images", item)
            return
        yield from self._stop_thinking(state)
        state.arrived.add("images")
        format, content = (f"base64.{found[1]}", found[2]) if (found := _DATA_URL(url)) else ("url", url)
        yield e.MessageDone(m.ImageMessage(self.new_id(), format=format, content=content, **self._place(state)))

    # -- tool calls

    def _index(self, value: Any) -> int | None:
        """An index; None where there is none that can be used."""
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
            self._fault("bad-index", f"the index {value!r} is a string; read as a number")
            return int(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LIMIT:
            return value
        if value is not None:
            self._fault("bad-index", "an index is no number that counts; it was taken as missing")
        return None

    def _tool_calls(self, state: _Choice, given: Any) -> Iterator[e.Event]:
        if not _is_list(given):
            self._fault("bad-tool-calls", "its `tool_calls` are no list")
        for position, piece in enumerate(given if _is_list(given) else [given]):
            if not _is_object(piece):
                self._fault("bad-tool-calls", "a tool call is no object; it was skipped")
                continue
            custom = _is_object(piece.get("custom"))
            function = piece.get("custom") if custom else piece.get("function")
            if not _is_object(function):
                function = piece
            name, call_id = _string(function.get("name")), _string(piece.get("id"))
            arguments = _arguments(function.get("arguments", function.get("input")))
            call = self._call(state, self._index(piece.get("index")), call_id, name, arguments, position)
            call.custom = call.custom or custom
            if call_id and not call.call_id:
                state.by_id[call_id] = call
            yield from self._piece(state, call, call_id, name, arguments)

    def _function(self, state: _Choice, given: Any) -> Iterator[e.Event]:
        """The legacy `function_call`: one call without an id."""
        if not _is_object(given):
            self._fault("bad-tool-calls", "its `function_call` is no object; it was skipped")
            return
        if state.function is None:
            state.function = _Call()
            state.calls.append(state.function)
        arguments = _arguments(given.get("arguments"))
        yield from self._piece(state, state.function, "", _string(given.get("name")), arguments)

    def _call(self, state: _Choice, index: int | None, call_id: str, name: str, arguments: str, position: int) -> _Call:
        """The call that a piece belongs to; a new one where it begins one."""
        last = state.last
        if index is not None:
            call = state.by_index.get(index)
            if call is not None and call_id and call.call_id and call_id != call.call_id:
                call = state.by_id.get(call_id) or (None if name else call)
        elif call_id:
            call = state.by_id.get(call_id)
        elif name and last is not None and last.name and (position or name != last.name or last.whole):
            call = None
        else:
            call = last
        if call is None:
            call = _Call(whole=index is None and not call_id and arguments.endswith("}") and _is_whole(arguments))
            state.calls.append(call)
            if index is not None:
                state.by_index[index] = call
        state.last = call
        return call

    def _piece(self, state: _Choice, call: _Call, call_id: str, name: str, arguments: str) -> Iterator[e.Event]:
        """Id and name count once: some servers repeat them. Arguments wait for the name."""
        call.call_id = call.call_id or call_id
        call.name = call.name or name
        if call.id is not None:
            if arguments:
                yield from self._stop_thinking(state)
                yield e.ToolCallDelta(call.id, arguments)
            return
        if arguments:
            call.held.append(arguments)
        if call.name:
            yield from self._stop_thinking(state)
            yield from self._open_call(state, call)

    def _open_call(self, state: _Choice, call: _Call) -> Iterator[e.Event]:
        call.id = self.new_id()
        state.arrived.add("calls")
        known: dict[str, Any] = {"name": call.name or None, "call_id": call.call_id or None}
        custom = {"custom": True} if call.custom else None
        yield e.ToolCallCreated(m.ToolCallMessage(call.id, metadata=custom, **known, **self._place(state)))
        if call.held:
            yield e.ToolCallDelta(call.id, "".join(call.held))
            call.held.clear()


# -- reading values of any type


def _only_deltas(told: list[e.Event]) -> bool:
    """Whether an item told pieces of open messages and no more, as the fast path's items do."""
    return bool(told) and all(isinstance(event, e.Delta) and event.metadata is None for event in told)


def _is_object(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if _is_object(value) else {}


def _list(value: Any) -> list[Any] | None:
    """A list; empty for null, None for what is neither."""
    return [] if value is None else value if _is_list(value) else None


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LIMIT else 0


def _time(value: Any) -> float | None:
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _LIMIT else None
    )


def _json_text(value: Any) -> str:
    try:
        return _encode(value).decode()
    except (TypeError, ValueError, RecursionError):  # what no JSON text gives: typed objects
        return str(value)


def _arguments(value: Any) -> str:
    """Arguments are a string, or null; some servers send the object itself."""
    return value if isinstance(value, str) else "" if value is None else _json_text(value)


def _is_whole(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, ValueError):
        return False


def _joined(parts: Any) -> str:
    """The texts of thinking parts: a list of text parts, or the text itself."""
    if not _is_list(parts):
        return _string(parts)
    return "".join(part if isinstance(part, str) else _string(_mapping(part).get("text")) for part in parts)


def _annotation(given: Mapping[str, Any]) -> m.Annotation:
    """`{type: url_citation, url_citation: {url, title, start_index, end_index}}`, or the same flat."""
    kind = _string(given.get("type")) or "annotation"
    body = _mapping(given.get(kind)) or given
    start, end = body.get("start_index"), body.get("end_index")
    return m.Annotation(
        type=kind,
        url=_string(body.get("url")) or None,
        file_id=_string(body.get("file_id")) or None,
        title=_string(body.get("title")) or None,
        quote=_string(body.get("content")) or None,
        start=_count(start) if isinstance(start, int) else None,
        end=_count(end) if isinstance(end, int) else None,
        raw=given,
    )


def _error(item: Mapping[str, Any], choices: list[Any]) -> Mapping[str, Any] | None:
    """The error that an item tells of, in any of the forms that servers have for it."""
    places = (item, *(_mapping(choice) for choice in choices), _mapping(item.get("x_groq")))
    error = next((place["error"] for place in places if place.get("error")), None)
    if error is None and "choices" not in item:
        flat = "message" in item and ("code" in item or item.get("type") == "error" or item.get("object") == "error")
        error = item if flat else item.get("error")  # an error may be an empty object
    if error is None or error is False or error == "":
        return None
    if not _is_object(error):
        return {"message": error if isinstance(error, str) else _json_text(error)}
    message = error.get("message")
    if not isinstance(message, str):
        message = _json_text(message if message is not None else dict(error)) if error else "an error of no kind"
    return {**error, "message": message}


def _as_error(data: bytes) -> bytes:
    """The data of an SSE event named `error` as an item that says so itself."""
    try:
        given = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        given = data.decode("utf-8", "replace")
    if isinstance(given, dict) and ("error" in given or "choices" in given):
        return data
    return _encode({"error": given or "an error event without data"})


def _has_more(item: Mapping[str, Any]) -> bool:
    """Whether an item that told nothing says something that no event is for."""
    if any(item[key] for key in item if key not in _KNOWN):
        return True
    for choice in _list(item.get("choices")) or ():
        delta = _mapping(_mapping(choice).get("delta"))
        if any(delta[key] for key in delta if key not in _KNOWN_OF_DELTA):
            return True
    return False


def _name(item: Mapping[str, Any]) -> str:
    return _string(item.get("type")) or _string(item.get("object")) or "chat.completion.chunk"


# -- the way out


class Encoder(protocols.Encoder):
    """Canonical events as `chat.completion.chunk` items, the usage last, in a chunk without choices.

    | canonical | here |
    |---|---|
    | the assistant's text, refusal, reasoning | `delta.content`, `.refusal`, `.reasoning_content` |
    | its audio, its tool calls | `delta.audio`, `.tool_calls` |
    | audio transcripts (`metadata["audio_transcript"]`) | `delta.audio.transcript` |
    | several texts of one choice | one: they are joined; so are reasonings with nothing between them |
    | annotations | `delta.annotations`: type, url, title, start, end, quote and file_id |
    | logprobs, signatures and encrypted reasoning in `metadata` | `logprobs`, `delta.reasoning_details` |
    | a run's id, model, created_at, finish_reason(s), usage | the same |
    | a run that says no finish_reason | `length` if incomplete, `tool_calls` where calls wait, else `stop` |
    | a failed run, a failed stream | `{"error": …}` |
    | a `replace` delta | left out: what was sent cannot be taken back |
    | code, console, tool outputs, images, files, provider-executed calls, other roles and types | left out |
    | what else is in `metadata`, the run's and the messages' | left out |
    | confirmations, active lines, steps, warnings, statuses of single messages | left out |
    """

    name = "openai_chat"
    done = b"[DONE]"

    def __init__(self) -> None:
        self._run = e.Run()
        self._usage: e.Usage | None = None
        self._begun: set[int] = set()  # choices whose role was told
        self._called: dict[int, dict[str, int]] = {}  # the indexes of each choice's calls, by message id
        self._failed = False

    def feed(self, event: e.Event) -> Iterable[dict[str, Any]]:
        match event:
            case e.RunCreated(run=run):
                self._run = run
            case e.Usage():
                self._usage = event
            case e.RunDone(run=run):
                self._run = run
                yield from self._ending(run)
            case e.StreamException(error=name, message=message) if not self._failed:
                self._failed = True
                yield {"error": {"message": message, "type": name}}
            case e.Created(message=message) if _expressible(message):
                yield from self._begin(message)
            case e.Delta(snapshot=Message() as message, replace=False) if _expressible(message):
                if event.value or event.metadata:
                    yield from self._begin(message)
                    yield self._piece(event, message)
            case e.AnnotationAdded(snapshot=Message() as message) if _expressible(message):
                yield self._chunk(message.choice, {"annotations": [_wire_annotation(event.annotation)]})
            case e.Done(message=message) if _expressible(message):
                yield from self._finish_message(message)
            case _:
                pass

    def _chunk(self, choice: int, delta: dict[str, Any], **more: Any) -> dict[str, Any]:
        return self._item([{"index": choice, "delta": delta, "finish_reason": None, **more}])

    def _item(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        run = self._run
        created = int(run.created_at or 0)
        return {
            "id": run.id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": run.model or "",
            "choices": choices,
        }

    def _begin(self, message: Message) -> Iterator[dict[str, Any]]:
        """What comes before a message's first piece: its choice's role, a call's name and id."""
        if message.choice not in self._begun:
            self._begun.add(message.choice)
            yield self._chunk(message.choice, {"role": message.role, "content": ""})
        calls = self._called.setdefault(message.choice, {})
        if isinstance(message, m.ToolCallMessage) and message.id not in calls:
            calls[message.id] = len(calls)
            kind, text = ("custom", "input") if message.metadata.get("custom") else ("function", "arguments")
            call = {"id": message.call_id or message.id, "type": kind, kind: {"name": message.name or "", text: ""}}
            yield self._chunk(message.choice, {"tool_calls": [{"index": len(calls) - 1, **call}]})

    def _piece(self, event: e.Delta, message: Message) -> dict[str, Any]:
        tokens = (event.metadata or {}).get("logprobs")
        match message:
            case m.ToolCallMessage():
                kind, text = ("custom", "input") if message.metadata.get("custom") else ("function", "arguments")
                call = {"index": self._called[message.choice][message.id], kind: {text: event.value}}
                return self._chunk(message.choice, {"tool_calls": [call]})
            case m.ReasoningMessage():
                return self._chunk(message.choice, {"reasoning_content": event.value})
            case m.AudioMessage():
                return self._chunk(message.choice, {"audio": {"data": event.value}})
            case m.RefusalMessage():
                more = {"logprobs": {"content": None, "refusal": tokens}} if tokens else {}
                return self._chunk(message.choice, {"refusal": event.value}, **more)
            case _ if message.metadata.get("audio_transcript"):
                return self._chunk(message.choice, {"audio": {"transcript": event.value}})
            case _:
                more = {"logprobs": {"content": tokens, "refusal": None}} if tokens else {}
                return self._chunk(message.choice, {"content": event.value}, **more)

    def _finish_message(self, message: Message) -> Iterator[dict[str, Any]]:
        """What only a done message knows."""
        known = message.metadata
        if isinstance(message, m.ReasoningMessage) and known.get("reasoning_details"):
            yield self._chunk(message.choice, {"reasoning_details": known["reasoning_details"]})
        elif isinstance(message, m.AudioMessage) and known.get("audio_id"):
            audio = {"id": known["audio_id"], "expires_at": known.get("expires_at")}
            yield self._chunk(message.choice, {"audio": audio})

    def _ending(self, run: e.Run) -> Iterator[dict[str, Any]]:
        if run.status in ("failed", "expired"):
            self._failed = True
            yield {"error": {"message": f"the run ended as {run.status}", **(run.error or {})}}
            return
        reasons = _mapping(run.metadata.get("finish_reasons"))
        for choice in sorted(self._begun) or [0]:
            reason = run.finish_reason if choice == min(self._begun, default=0) else reasons.get(str(choice))
            if not reason:
                ends = {"incomplete": "length", "requires_action": "tool_calls"}
                reason = ends.get(run.status) or ("tool_calls" if self._called.get(choice) else "stop")
            yield self._item([{"index": choice, "delta": {}, "finish_reason": reason}])
        if (used := self._usage) is not None:
            counts = (used.input_tokens, used.output_tokens, used.total_tokens)
            names = ("prompt_tokens", "completion_tokens", "total_tokens")
            yield {**self._item([]), "usage": {**used.details, **dict(zip(names, counts, strict=True))}}


def _expressible(message: Message) -> bool:
    if message.role != "assistant" or (isinstance(message, m.ToolCallMessage) and message.provider_executed):
        return False
    kinds = (m.TextMessage, m.RefusalMessage, m.ReasoningMessage, m.AudioMessage, m.ToolCallMessage)
    return isinstance(message, kinds)


def _wire_annotation(annotation: m.Annotation) -> dict[str, Any]:
    given = {
        "url": annotation.url,
        "file_id": annotation.file_id,
        "title": annotation.title,
        "content": annotation.quote,
        "start_index": annotation.start,
        "end_index": annotation.end,
    }
    body = {key: value for key, value in given.items() if value is not None}
    return {"type": annotation.type, annotation.type: body}


# -- back into a request


def to_input(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Flat messages as `messages=` of a request.

    Texts of user and system keep their roles; a user's images (`url`, `base64.…`), audio (`wav`, `mp3`) and files
    (`file_id`) become content parts beside the text. What the assistant said, wrote and called between two others is
    one message: its texts joined, code as a fenced block, a refusal, the calls that were completed. A tool output is a
    `tool` message. Console output answers the call that it belongs to, if no tool output does, and code of a call is
    in the call already; other console output is told as a fenced block by the user. Left out: reasoning, other
    images and files, calls that the provider ran with their outputs, and choices but the first.
    """
    given = [message for message in messages if message.choice == 0]
    calls = {call.call_id or call.id for call in given if isinstance(call, m.ToolCallMessage) and _answerable(call)}
    elsewhere = {call.call_id or call.id for call in given if isinstance(call, m.ToolCallMessage)} - calls
    answered = {message.call_id for message in given if isinstance(message, m.ToolOutputMessage)}
    out: list[dict[str, Any]] = []
    for message in given:
        match message:
            case m.ToolCallMessage() if _answerable(message):
                call = _wire_call(message)
                _assistant(out).setdefault("tool_calls", []).append(call)
            case m.ToolOutputMessage() if message.call_id not in elsewhere:
                out.append({"role": "tool", "tool_call_id": message.call_id or "", "content": message.content})
            case m.ConsoleMessage() if message.call_id in calls:
                if message.call_id not in answered:
                    _console(out, message)
            case m.ConsoleMessage():
                _user(out, {"type": "text", "text": f"```output\n{message.content}\n```"})
            case m.CodeMessage() if message.call_id not in calls:
                _say(out, f"```{message.format or ''}\n{message.content}\n```")
            case m.RefusalMessage():
                assistant = _assistant(out)
                assistant["refusal"] = assistant.get("refusal", "") + message.content
            case m.TextMessage() if message.role == "assistant":
                _say(out, message.content)
            case m.TextMessage() if message.role == "user":
                _user(out, {"type": "text", "text": message.content})
            case m.TextMessage() if message.role == "system":
                out.append({"role": "system", "content": message.content})
            case m.ImageMessage() | m.AudioMessage() | m.FileMessage() if message.role == "user":
                if (part := _part(message)) is not None:
                    _user(out, part)
            case _:
                pass
    return out


def _answerable(call: m.ToolCallMessage) -> bool:
    return call.status == "completed" and not call.provider_executed


def _wire_call(call: m.ToolCallMessage) -> dict[str, Any]:
    id = call.call_id or call.id
    if call.metadata.get("custom"):
        return {"id": id, "type": "custom", "custom": {"name": call.name or "", "input": call.content}}
    return {"id": id, "type": "function", "function": {"name": call.name or "", "arguments": call.content or "{}"}}


def _assistant(out: list[dict[str, Any]]) -> dict[str, Any]:
    """The assistant's message that is being written."""
    if not out or out[-1]["role"] != "assistant":
        out.append({"role": "assistant", "content": None})
    return out[-1]


def _say(out: list[dict[str, Any]], text: str) -> None:
    assistant = _assistant(out)
    said = assistant["content"]
    between = "\n" if said and (text.startswith("```") or said.endswith("\n```")) else ""
    assistant["content"] = text if said is None else said + between + text


def _user(out: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """A part of what the user says: the content is a string while it is one text."""
    if not out or out[-1]["role"] != "user":
        out.append({"role": "user", "content": part["text"] if part["type"] == "text" else [part]})
        return
    content = out[-1]["content"]
    out[-1]["content"] = [*([{"type": "text", "text": content}] if isinstance(content, str) else content), part]


def _console(out: list[dict[str, Any]], message: m.ConsoleMessage) -> None:
    """Console output as the answer of its call, which may come in several messages."""
    last = out[-1] if out else {}
    if last.get("tool_call_id") == message.call_id:
        last["content"] += message.content
    else:
        out.append({"role": "tool", "tool_call_id": message.call_id, "content": message.content})


def _part(message: Message) -> dict[str, Any] | None:
    format, content = message.format or "", message.content
    match message.type:
        case "image" if format == "url":
            return {"type": "image_url", "image_url": {"url": content}}
        case "image" if format.startswith("base64."):
            url = f"data:image/{format.removeprefix('base64.')};base64,{content}"
            return {"type": "image_url", "image_url": {"url": url}}
        case "audio" if format in ("wav", "mp3"):
            return {"type": "input_audio", "input_audio": {"data": content, "format": format}}
        case "file" if format == "file_id":
            return {"type": "file", "file": {"file_id": content}}
        case _:
            return None
