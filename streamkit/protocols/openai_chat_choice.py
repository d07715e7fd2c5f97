HEAD
    def _delta(
        self, delta: Mapping[str, Any], logprobs: Mapping[str, Any], item: Mapping[str, Any]
    ) -> Iterator[e.Event]:
        if not self.role and delta.get("role") in _ROLES:
            self.role = delta["role"]
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
            if "text" in self.open and is_object(annotation):
                yield e.AnnotationAdded(self.open["text"], annotation_of(annotation))
            else:
                yield e.RawEvent("annotations", item)

    def _grow(self, kind: str, value: str) -> Iterator[e.Event]:
        """A piece of the choice's one open message of this kind, which is opened if need be."""
        if not value:
            return
        if kind not in ("reasoning", "redacted"):
            yield from self._stop_thinking()
        if kind not in self.open:
            yield self._open(kind)
        yield _KINDS[kind].delta_event(self.open[kind], value)

    def _open(self, kind: str) -> e.Event:
        self.open[kind] = id = self.new_id()
        self.arrived.add("reasoning" if kind == "redacted" else kind)
        known: dict[str, Any] = {"format": "redacted"} if kind == "redacted" else {}
        if kind == "transcript":
            known["metadata"] = self.metadata.setdefault(kind, {"audio_transcript": True}).copy()
        return e.MessageCreated(_KINDS[kind](id, **self._place(), **known))

    def _place(self) -> dict[str, Any]:
        """What every message of a choice has."""
        self.role = self.role or "assistant"
        self.opened += 1
        return {"role": self.role, "group": self._group, "index": self.opened - 1, "choice": self.index}

    def _stop(self, kind: str, status: m.Status) -> Iterator[e.Event]:
        if kind in self.open:
            metadata = self.metadata.pop(kind, None)
            final = self.final.pop(kind, "" if kind == "redacted" else None)
            yield e.MessageDone(_KINDS[kind](self.open.pop(kind), content=final, status=status, metadata=metadata))

    def _stop_thinking(self) -> Iterator[e.Event]:
        yield from self._stop("reasoning", "completed")
        yield from self._stop("redacted", "completed")

    def _close(self, status: m.Status) -> Iterator[e.Event]:
        for kind in [*self.open]:
            yield from self._stop(kind, status)
        for call in self.calls:
            if call.id is None and (call.held or call.call_id):
                self._fault("no-tool-name", f"tool call {call.call_id!r} never got a name")
                yield from self._open_call(call)
            if call.id is not None:
                known: dict[str, Any] = {"name": call.name or None, "call_id": call.call_id or None}
                yield e.MessageDone(m.ToolCallMessage(call.id, status=status, **known))
        self.calls, self.by_index, self.by_id = [], {}, {}
        self.last = self.function = None
        self.metadata.clear()

    def _tell_whole(
        self, logprobs: Mapping[str, Any] | None = None, item: Mapping[str, Any] | None = None
    ) -> Iterator[e.Event]:
        """A whole message: what has not arrived of it is told, what has is compared when it is done."""
        message, self.whole = self.whole, None
        if message is None:
            return
        rest = {key: value for key, value in message.items() if _ARRIVES.get(key) not in self.arrived}
        calls = message.get("tool_calls")
        if is_list(calls) and "calls" in self.arrived:
            rest["tool_calls"] = [call for call in calls if string(mapping(call).get("id")) not in ("", *self.by_id)]
            if not self.calls:
                del rest["tool_calls"]  # they were done with the finish_reason before
        if "text" in self.arrived and "text" not in self.open:
            rest.pop("annotations", None)
        known = [*self.open]
        yield from self._delta(rest, logprobs or {}, item or {})
        for key in ("content", "refusal"):
            if _ARRIVES[key] in known and (final := string(message.get(key))):
                self.final[_ARRIVES[key]] = final

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
            if "reasoning" not in self.open and "redacted" not in self.open:
                yield self._open("redacted")
            kept = {key: detail[key] for key in detail if key not in ("text", "summary")}
            kind = "reasoning" if "reasoning" in self.open else "redacted"
            self.metadata.setdefault(kind, {}).setdefault("reasoning_details", []).append(kept)

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
        state: _Choice,
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
            self.metadata.setdefault(kind, {}).setdefault("logprobs", []).extend(tokens)
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
            self.metadata.setdefault(kind, start).update({k: v for k, v in known.items() if v is not None})
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
        self.arrived.add("images")
        format, content = (f"base64.{found[1]}", found[2]) if (found := _DATA_URL(url)) else ("url", url)
        yield e.MessageDone(m.ImageMessage(self.new_id(), format=format, content=content, **self._place()))

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
            call = self._call(self._index(piece.get("index")), call_id, name, arguments, position)
            call.custom = call.custom or custom
            if call_id and not call.call_id:
                self.by_id[call_id] = call
            yield from self._piece(call, call_id, name, arguments)

    def _function(self, given: Any) -> Iterator[e.Event]:
        """The legacy `function_call`: one call without an id."""
        if not is_object(given):
            self._fault("bad-tool-calls", "its `function_call` is no object; it was skipped")
            return
        if self.function is None:
            self.function = _Call()
            self.calls.append(self.function)
        arguments = arguments_of(given.get("arguments"))
        yield from self._piece(self.function, "", string(given.get("name")), arguments)

    def _call(self, index: int | None, call_id: str, name: str, arguments: str, position: int) -> _Call:
        """The call that a piece belongs to; a new one where it begins one."""
        last = self.last
        if index is not None:
            call = self.by_index.get(index)
            if call is not None and call_id and call.call_id and call_id != call.call_id:
                call = self.by_id.get(call_id) or (None if name else call)
        elif call_id:
            call = self.by_id.get(call_id)
        elif name and last is not None and last.name and (position or name != last.name or last.whole):
            call = None
        else:
            call = last
        if call is None:
            call = _Call(whole=index is None and not call_id and arguments.endswith("}") and is_whole(arguments))
            self.calls.append(call)
            if index is not None:
                self.by_index[index] = call
        self.last = call
        return call

    def _piece(self, call: _Call, call_id: str, name: str, arguments: str) -> Iterator[e.Event]:
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
            yield from self._open_call(call)

    def _open_call(self, call: _Call) -> Iterator[e.Event]:
        call.id = self.new_id()
        self.arrived.add("calls")
        known: dict[str, Any] = {"name": call.name or None, "call_id": call.call_id or None}
        custom = {"custom": True} if call.custom else None
        yield e.ToolCallCreated(m.ToolCallMessage(call.id, metadata=custom, **known, **self._place()))
        if call.held:
            yield e.ToolCallDelta(call.id, "".join(call.held))
            call.held.clear()
