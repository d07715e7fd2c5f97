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
HEAD
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
        if item.get("object") in OBJECTS:
            return True
        choices = item.get("choices")
        if not is_list(choices):
            return False
        if not choices:
            return "prompt_filter_results" in item  # Azure's first chunk
        return all(is_object(choice) and ("delta" in choice or "message" in choice) for choice in choices)

    def feed_frames(self, frames: Sequence[tuple[bytes, bytes, bytes]]) -> list[e.Event]:
        events: list[e.Event] = []
        choices = self._choices
        rest = iter(frames)
        for id, name, data in rest:
            try:
                choice = decode_bare(data).choices[0]
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

    def _bare_event(self, state: _Choice, delta: BareDelta, data: bytes) -> e.Event | None:
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
        self, state: _Choice, call: _Call, delta: BareDelta, piece: BareCall, data: bytes
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
        events = super().feed_frame(id, b"", as_error(data))
        for event in events:
            event.source = data
        return events

    def feed(self, item: Mapping[str, Any]) -> Iterable[e.Event]:
        events = [*self._item(item)]
        if not events and not self._faults and has_more(item):
            events.append(e.RawEvent(name_of(item), item))
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
        for key in RAW:
            if item.get(key):
                yield e.RawEvent(key, item)
        self._keep(item, KEPT)
        listed = list_of(item.get("choices"))
        if listed is None:
            self._fault("bad-choices", "its `choices` are no list")
            listed = [item["choices"]]
        if not self._begun and (listed or (string(item.get("id")) and item.get("object") in OBJECTS)):
            yield self._begin(item)
        told = [event for position, choice in enumerate(listed) for event in self._choice(position, choice, item)]
        yield from told
        yield from self._usage(item, listed)
        if not only_deltas(told):
            self._keep(item, KEPT_SOMETIMES)
        error = error_of(item, listed)
        if error is not None and self._ended:
            yield e.RawEvent("error", item)
        elif error is not None:
            yield from self._end(error)
        self.complete = self._ended or self._all_finished()

    def _begin(self, item: Mapping[str, Any]) -> e.Event:
        self._begun = True
        self._group = string(item.get("id")) or None
        self._keep(item, KEPT_SOMETIMES)
        return e.RunCreated(
            e.Run(
                id=self._group or "",
                model=string(item.get("model")) or None,
                created_at=time_of(item.get("created")),
                metadata=dict(self._metadata),
            )
        )

    def _keep(self, item: Mapping[str, Any], keys: Iterable[str]) -> None:
        for key in keys:
            value = item.get(key)
            if key == "x_groq" and is_object(value):
                known = mapping(self._metadata.get(key))
                value = {**known, **{name: value[name] for name in value if name not in ("usage", "error")}}
            if value:
                self._metadata[key] = value

    def _usage(self, item: Mapping[str, Any], choices: list[Any]) -> Iterator[e.Event]:
        """Usage, wherever it stands, each time that it changes."""
        places = (item, *(mapping(choice) for choice in choices), mapping(item.get("x_groq")))
        used = next((place["usage"] for place in places if place.get("usage")), None)
        if used is None or used == self._used:
            return
        if not is_object(used):
            self._fault("bad-usage", "its `usage` is no object; it was skipped")
            return
        self._used = used
        counts = [
            count(used.get(f"{name}_tokens", used.get(f"{other}_tokens")))
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
        status = ENDS.get(reason or "", "completed") if error is None else "failed"
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
