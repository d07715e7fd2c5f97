"""The deltas of one choice, read by their keys.

`DeltaReader.readers` has what reads each key, in the order in which its events come. A value of an unexpected type is skipped
with a warning, and the other keys are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ...events import AnnotationAdded, Delta, RawEvent
from ..output import Output
from ..values import WireObject, annotation_of, as_object, as_text, is_list, is_object, json_text, without_keys
from .open_messages import OpenMessages
from .returned_fields import OPAQUE_KEYS, emptied_thinking, merge_fields
from .tool_calls import ToolCalls
from .wire import REASONING_KEYS, thinking_text

__all__ = ["DeltaReader"]

# Compiled when they are needed first: most streams have neither speech nor images.
_BASE64 = r"[A-Za-z0-9+/]*={0,2}"
_DATA_URL = r"(?s)data:image/(png|jpeg);base64,(.*)"


class DeltaReader:
    """Reads the deltas of one choice.

    Args:
        messages: the open messages of the choice.
        calls: its tool calls.
        output: takes events and warnings.
    """

    def __init__(self, messages: OpenMessages, calls: ToolCalls, output: Output) -> None:
        self._messages, self._calls, self._output = messages, calls, output
        self._annotations: list[tuple[WireObject, WireObject]] = []  # each with its chunk, until there is a text
        self._is_thought = self._was_thought = False  # whether content is reasoning, which Google marks, and was before
        self._has_reasoning = False  # whether the present delta has had a text of its reasoning

    def read(self, delta: WireObject, logprobs: Any) -> None:
        """Read a delta, and the log probabilities beside it."""
        readers, count = self.readers, len(self._output.events)
        self._has_reasoning = self._is_thought = False
        keys = [key for key, value in delta.items() if (value or value == 0) and key in readers]  # 0 may be text
        if len(keys) > 1:
            keys.sort(key=_ORDER.__getitem__)
        for key in keys:
            readers[key](self, key, delta[key])
        if self._annotations and (id := self._messages.ids.get("text")):
            for annotation, _ in self._annotations:
                self._output.emit(AnnotationAdded(id, annotation_of(annotation)))
            self._annotations.clear()
        if logprobs and is_object(logprobs) and not self._is_thought:
            for kind, key in (("text", "content"), ("refusal", "refusal")):
                if is_list(tokens := logprobs.get(key)) and tokens:
                    self._attach_logprobs(kind, tokens, count)

    @property
    def changes_next(self) -> bool:
        """Whether what was read changes how the next piece of text is read."""
        return bool(self._annotations or self._was_thought)

    def drop_annotations(self) -> None:
        """The choice has ended: citations that wait for its text become raw events."""
        for _, chunk in self._annotations:
            self._output.emit(RawEvent("annotations", chunk))
        self._annotations.clear()

    # -- the keys of a delta

    def _read_role(self, key: str, role: Any) -> None:
        self._messages.take_role(role)

    def _read_reasoning(self, key: str, value: Any) -> None:
        """Reasoning as text. Of several keys with it, the first counts, and the others are noted for the way back."""
        text = self._text_of(value, "reasoning")
        if not text:
            return
        self._begin_reasoning_text()
        self._messages.returned("reasoning").setdefault(key, None)
        if not self._has_reasoning:
            self._has_reasoning = True
            self._messages.append("reasoning", text)

    def _begin_reasoning_text(self) -> None:
        """End encrypted reasoning, because a text comes."""
        self._messages.finish("redacted", "completed")

    def _read_details(self, key: str, value: Any) -> None:
        """Objects with pieces of reasoning, or with signatures and encrypted reasoning, which are metadata."""
        details = [detail for detail in self._list(value, key) if is_object(detail)]
        if not self._has_reasoning:
            text = "".join(as_text(detail.get("text")) or as_text(detail.get("summary")) for detail in details)
            if text:
                self._begin_reasoning_text()
                self._messages.append("reasoning", text)
        for detail in details:
            if self._read_piece(key, detail):
                without_text = {key: detail[key] for key in detail if key not in ("text", "summary")}
                self._messages.extend_metadata(self._reasoning_kind, key, [without_text])

    def _read_thinking_blocks(self, key: str, value: Any) -> None:
        """Anthropic's blocks, whose text comes as reasoning as well."""
        for block in filter(is_object, self._list(value, key)):
            self._read_piece(key, block)

    def _read_piece(self, key: str, piece: WireObject) -> bool:
        """Read a piece that goes back with the reasoning. Returns whether it has a signature, or is encrypted."""
        if is_sealed := bool(piece.get("signature") or piece.get("data")):
            self._open_reasoning()
        self._messages.add_returned_piece(self._reasoning_kind, key, piece)
        return is_sealed

    def _read_opaque(self, key: str, value: Any) -> None:
        """Encrypted reasoning as text."""
        if text := as_text(value):
            self._open_reasoning()
            merge_fields(self._messages.returned(self._reasoning_kind), {key: text})
            self._output.hold(self._messages.ids.get(self._reasoning_kind), text)

    def _open_reasoning(self) -> None:
        """Redacted reasoning begins, if none is open."""
        if "reasoning" not in self._messages.ids and "redacted" not in self._messages.ids:
            self._messages.begin("redacted")

    @property
    def _reasoning_kind(self) -> str:
        """The kind of the reasoning that what comes without a text belongs to."""
        return "redacted" if "redacted" in self._messages.ids else "reasoning"

    def _read_extra_content(self, key: str, value: Any) -> None:
        """Google's signatures, which go back with the text; or the mark that the content is reasoning."""
        if not is_object(value):
            return
        if as_object(value.get("google")).get("thought") is True:
            self._is_thought = True
        else:
            self._messages.add_returned_values("text", key, value)

    def _read_content(self, key: str, content: Any) -> None:
        """The content: text, or content parts, as a list or alone."""
        if self._is_thought:
            self._read_thought(self._text_of(content, key))
            return
        if self._was_thought and isinstance(content, str) and content:
            self._was_thought = False
            content = content.removeprefix("</thought>")
        if isinstance(content, str) or not (is_list(content) or is_object(content)):
            self._messages.append("text", self._text_of(content, key))
            return
        parts: list[Any] = content if is_list(content) else [content]
        for part in parts:
            if isinstance(part, str):
                self._messages.append("text", part)
            elif is_object(part):
                self._read_part(part)
            else:
                self._output.emit_raw(key)

    def _read_thought(self, text: str) -> None:
        """Reasoning that Google sends as content. It begins with a tag, and so does the text that follows it."""
        if "reasoning" not in self._messages.ids:
            text = text.removeprefix("<thought>")
        self._was_thought = True
        self._messages.append("reasoning", text)

    def _read_part(self, part: WireObject) -> None:
        match part:
            case {"type": "text" | "output_text"}:
                self._messages.append("text", self._text_of(part.get("text"), "content"))
            case {"type": "thinking"}:
                self._begin_reasoning_text()
                merge_fields(self._messages.returned("reasoning"), {"content": emptied_thinking(part)})
                self._messages.append("reasoning", thinking_text(part.get("thinking")))
            case {"type": "reference"}:
                self._add_annotation(part)  # Mistral: of what was written before it
            case {"type": "image_url"}:
                self._read_image(part)
            case _:
                self._output.emit_raw("content")

    def _read_refusal(self, key: str, value: Any) -> None:
        self._messages.append("refusal", self._text_of(value, key))

    def _read_audio(self, key: str, audio: Any) -> None:
        """Speech and its transcript, which are two messages."""
        if not is_object(audio):
            self._output.warn("bad-audio", "its `audio` is not an object; it was skipped")
            return
        messages = self._messages
        metadata = without_keys({"audio_id": audio.get("id"), "expires_at": audio.get("expires_at")})
        messages.add_metadata("audio", **metadata)
        messages.add_metadata("transcript", audio_transcript=True, **metadata)
        messages.append("transcript", self._text_of(audio.get("transcript"), "transcript"))
        data = audio.get("data")
        if isinstance(data, str) and re.fullmatch(_BASE64, data):
            messages.append("audio", data)
        elif data is not None:
            self._output.warn("bad-audio", "its audio data is not base64; it was skipped")

    def _read_images(self, key: str, value: Any) -> None:
        for image in self._list(value, key):
            self._read_image(image)

    def _read_image(self, part: Any) -> None:
        """A generated image: `{"image_url": {"url": …}}`, or the URL alone."""
        image_url = as_object(part).get("image_url")
        url = as_text(image_url) or as_text(as_object(image_url).get("url"))
        if not url:
            self._output.emit_raw("images")
        elif found := re.fullmatch(_DATA_URL, url):
            self._messages.add_image(f"base64.{found[1]}", found[2])
        else:
            self._messages.add_image("url", url)

    def _read_function_call(self, key: str, value: Any) -> None:
        if is_object(value):
            self._calls.read_function_call(value)
        else:
            self._output.warn("bad-tool-calls", "its `function_call` is not an object; it was skipped")

    def _read_tool_calls(self, key: str, value: Any) -> None:
        for position, fragment in enumerate(self._list(value, key)):
            self._calls.read(fragment, position)

    def _read_executed_tools(self, key: str, value: Any) -> None:
        for tool in self._list(value, key):
            self._messages.add_executed_tool(as_object(tool))

    def _read_annotations(self, key: str, value: Any) -> None:
        for annotation in self._list(value, key):
            if is_object(annotation):
                self._add_annotation(annotation)
            else:
                self._output.emit_raw(key)

    def _add_annotation(self, annotation: WireObject) -> None:
        """A citation, of the text that is open or of the next one."""
        self._annotations.append((annotation, self._output.item))
        if "text" not in self._messages.ids:
            self._output.hold(None, annotation)

    def _attach_logprobs(self, kind: str, tokens: list[Any], first: int) -> None:
        """Add the log probabilities of tokens to the first delta of their text in this chunk, and to the done message.

        `first`: the index of the chunk's first event.
        """
        id = self._messages.ids.get(kind)
        self._messages.extend_metadata(kind, "logprobs", tokens)
        for event in self._output.events[first:]:
            if isinstance(event, Delta) and event.message_id == id:
                event.metadata = {"logprobs": tokens}
                return
        self._output.emit_raw("logprobs")

    # -- values

    def _list(self, value: Any, key: str) -> list[Any]:
        """Return a value that should be a list. Another value is read as a list of one."""
        if is_list(value):
            return value
        self._output.warn(f"bad-{key.replace('_', '-')}", f"its `{key}` is not a list; it was read as a list of one")
        return [value]

    def _text_of(self, value: Any, key: str) -> str:
        """Return a value that should be a string. A number is read as its digits."""
        if isinstance(value, str) or value is None:
            return value or ""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        outcome = "read as text" if is_number else "skipped"
        self._output.warn(f"non-string-{key}", f"`{key}` is a {type(value).__name__}; it was {outcome}")
        return json_text(value) if is_number else ""

    readers: ClassVar[Mapping[str, Callable[[Any, str, Any], None]]] = {
        "role": _read_role,
        **dict.fromkeys(REASONING_KEYS, _read_reasoning),
        "reasoning_details": _read_details,
        "thinking_blocks": _read_thinking_blocks,
        **dict.fromkeys(OPAQUE_KEYS, _read_opaque),
        "extra_content": _read_extra_content,
        "content": _read_content,
        "refusal": _read_refusal,
        "audio": _read_audio,
        "images": _read_images,
        "function_call": _read_function_call,
        "tool_calls": _read_tool_calls,
        "executed_tools": _read_executed_tools,
        "annotations": _read_annotations,
    }
    """The reader of each key of a delta, in the order of their events."""


_ORDER = {key: position for position, key in enumerate(DeltaReader.readers)}
