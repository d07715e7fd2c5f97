"""Streams of the Responses API as servers other than OpenAI's write them: each says the same answer in its own way.

An answer is reasoning, a text and calls, each of which may be absent. The servers differ in the ids that they give, in the
output indexes, in which events they leave out, and in the form in which they list the items at the end.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

__all__ = ["SERVERS", "Answer"]

Item: TypeAlias = dict[str, Any]


class Answer:
    """What the model says: reasoning, a text, and calls of functions by name and arguments."""

    def __init__(
        self, *, reasoning: str = "", text: str = "", calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    ) -> None:
        self.reasoning, self.text, self.calls = reasoning, text, calls


def _e(kind: str, **fields: Any) -> Item:
    return {"type": f"response.{kind}", **fields}


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


def _response(status: str, *output: Item) -> Item:
    return {"id": "resp", "object": "response", "created_at": 1, "model": "m", "status": status, "output": [*output]}


def _part(text: str) -> Item:
    return {"type": "output_text", "text": text, "annotations": []}


def _message(id: str, text: str | None) -> Item:
    content = [] if text is None else [_part(text)]
    return {"type": "message", "id": id, "role": "assistant", "status": "completed", "content": content}


def _call(id: str, call_id: str, name: str, arguments: str) -> Item:
    fields = {"id": id, "call_id": call_id, "name": name, "arguments": arguments, "status": "completed"}
    return {"type": "function_call", **fields}


def _wrongly_typed_reasoning(id: str, text: str) -> Item:
    """Reasoning as some servers list it at the end: as if it were a message's text."""
    return {"type": "reasoning", "id": id, "status": "completed", "role": "assistant", "content": [_part(text)]}


def vllm(answer: Answer) -> Iterator[Item]:
    """All ids are made again for `response.completed`, call ids among them, and arguments are written again."""
    numbers = itertools.count()
    final: list[Item] = []
    yield _e("created", response=_response("in_progress"))
    place = 0
    if answer.reasoning:
        at: Item = {"item_id": f"item{next(numbers)}", "output_index": place, "content_index": 0}
        item: Item = {"type": "reasoning", "id": at["item_id"], "summary": []}
        parts = [{"type": "reasoning_text", "text": answer.reasoning}]
        yield _e("output_item.added", output_index=place, item={**item, "status": "in_progress"})
        yield _e("content_part.added", **at, part={"type": "reasoning_text", "text": ""})
        yield from (_e("reasoning_text.delta", **at, delta=piece) for piece in _halves(answer.reasoning))
        yield _e("reasoning_text.done", **at, text=answer.reasoning)
        yield _e("content_part.done", **at, part=parts[0])
        yield _e("output_item.done", output_index=place, item={**item, "content": parts, "status": "completed"})
        final.append({**item, "id": f"rs_{next(numbers)}", "content": parts})
        place += 1
    if answer.text:
        at = {"item_id": f"item{next(numbers)}", "output_index": place, "content_index": 0}
        yield _e("output_item.added", output_index=place, item=_message(at["item_id"], None))
        yield _e("content_part.added", **at, part=_part(""))
        yield from (_e("output_text.delta", **at, delta=piece) for piece in _halves(answer.text))
        yield _e("output_text.done", **at, text=answer.text)
        yield _e("output_item.done", output_index=place, item=_message(at["item_id"], answer.text))
        final.append(_message(f"msg_{next(numbers)}", answer.text))
        place += 1
    for name, arguments in answer.calls:
        id, call_id, text = (
            f"item{next(numbers)}",
            f"call_{next(numbers)}",
            json.dumps(arguments, separators=(",", ":")),
        )
        yield _e("output_item.added", output_index=place, item=_call(id, call_id, name, ""))
        for piece in _halves(text):
            yield _e("function_call_arguments.delta", item_id=id, output_index=place, delta=piece)
        yield _e("function_call_arguments.done", item_id=id, output_index=place, arguments=text, name=name)
        yield _e("output_item.done", output_index=place, item=_call(id, call_id, name, text))
        final.append(_call(f"fc_{next(numbers)}", f"call_{next(numbers)}", name, json.dumps(arguments)))
        place += 1
    yield _e("completed", response=_response("completed", *final))


def bare_litellm(answer: Answer) -> Iterator[Item]:
    """LiteLLM 1.77: deltas and a final response. All deltas have the output index 0, calls are not streamed."""
    reasoning = _wrongly_typed_reasoning("chat_reasoning", answer.reasoning)
    for piece in _halves(answer.reasoning):
        yield _e("reasoning_summary_text.delta", item_id="chat_reasoning", output_index=0, delta=piece)
    for piece in _halves(answer.text):
        yield _e("output_text.delta", item_id="chat", output_index=0, content_index=0, delta=piece)
    calls = [_call(f"call_{n}", f"call_{n}", name, json.dumps(given)) for n, (name, given) in enumerate(answer.calls)]
    message = {**_message("chat", answer.text), "status": "stop"}
    final = [*([reasoning] if answer.reasoning else ()), *([message] if answer.text else ()), *calls]
    yield _e("completed", response=_response("completed", *final))


def _litellm_of(answer: Answer, ids: Iterator[str], *, streams_calls: bool) -> Iterator[Item]:
    at: Item = {"output_index": 0, "content_index": 0}
    yield _e("created", response=_response("in_progress"))
    yield _e("output_item.added", output_index=0, item=_message(next(ids), None))
    yield _e("content_part.added", item_id=next(ids), **at, part=_part(""))
    for number, piece in enumerate(_halves(answer.reasoning)):
        yield _e("reasoning_summary_text.delta", item_id=f"rs_{number}", output_index=0, delta=piece)
    delta_id = next(ids)
    for piece in _halves(answer.text):
        yield _e("output_text.delta", item_id=delta_id, **at, delta=piece)
    calls = [_call(f"call_{n}", f"call_{n}", name, json.dumps(given)) for n, (name, given) in enumerate(answer.calls)]
    for place, call in enumerate(calls if streams_calls else (), 1):
        yield _e("output_item.added", output_index=place, item={**call, "arguments": "", "status": "in_progress"})
        for piece in _halves(call["arguments"]):
            yield _e("function_call_arguments.delta", item_id=call["id"], output_index=place, delta=piece)
    for place, call in enumerate(calls if streams_calls else (), 1):
        yield _e("function_call_arguments.done", item_id=call["id"], output_index=place, arguments=call["arguments"])
        yield _e("output_item.done", output_index=place, item=call)
    yield _e("output_text.done", item_id=next(ids), **at, text=answer.text)
    part = {"type": "reasoning_text", "reasoning": answer.reasoning} if answer.reasoning else _part(answer.text)
    yield _e("content_part.done", item_id=next(ids), **at, part=part)
    yield _e("output_item.done", output_index=0, item=_message(next(ids), answer.text))
    reasoning = [_wrongly_typed_reasoning("rs_final", answer.reasoning)] if answer.reasoning else []
    yield _e("completed", response=_response("completed", *reasoning, _message("chat", answer.text), *calls))


def litellm_of_new_ids(answer: Answer) -> Iterator[Item]:
    """LiteLLM 1.80: each event has an id of its own; reasoning comes at the output index of the message that began before
    it. Calls are not streamed."""
    return _litellm_of(answer, (f"msg_{number}" for number in itertools.count()), streams_calls=False)


def litellm_of_one_id(answer: Answer) -> Iterator[Item]:
    """LiteLLM 1.83: as before, but the events of the message have its id until the end."""
    return _litellm_of(answer, itertools.repeat("msg_0"), streams_calls=True)


def litellm(answer: Answer) -> Iterator[Item]:
    """LiteLLM 1.110: ids stay. Reasoning is streamed as a summary, and listed at the end as if it were a text."""
    final: list[Item] = []
    yield _e("created", response=_response("in_progress"))
    if answer.reasoning:
        at: Item = {"item_id": "rs_0", "output_index": 0, "summary_index": 0}
        item: Item = {"type": "reasoning", "id": "rs_0"}
        summary = [{"type": "summary_text", "text": answer.reasoning}]
        yield _e("output_item.added", output_index=0, item={**item, "status": "in_progress"})
        yield from (_e("reasoning_summary_text.delta", **at, delta=piece) for piece in _halves(answer.reasoning))
        yield _e("reasoning_summary_text.done", **at, text=answer.reasoning)
        yield _e("reasoning_summary_part.done", **at, part=summary[0])
        yield _e("output_item.done", output_index=0, item={**item, "summary": summary})
        final.append(_wrongly_typed_reasoning("rs_0", answer.reasoning))
    place = len(final)
    if answer.text:
        at = {"item_id": "msg_0", "output_index": place, "content_index": 0}
        yield _e("output_item.added", output_index=place, item=_message("msg_0", None))
        yield _e("content_part.added", **at, part=_part(""))
        yield from (_e("output_text.delta", **at, delta=piece) for piece in _halves(answer.text))
        yield _e("output_text.done", **at, text=answer.text)
        yield _e("content_part.done", **at, part=_part(answer.text))
        yield _e("output_item.done", output_index=place, item=_message("msg_0", answer.text))
        final.append(_message("msg_0", answer.text))
    for number, (name, given) in enumerate(answer.calls):
        place, id, text = len(final), f"fc_call_{number}", json.dumps(given)
        call = _call(id, f"call_{number}", name, text)
        yield _e("output_item.added", output_index=place, item={**call, "arguments": "", "status": "in_progress"})
        for piece in _halves(text):
            yield _e("function_call_arguments.delta", item_id=id, output_index=place, delta=piece)
        yield _e("function_call_arguments.done", item_id=id, output_index=place, arguments=text)
        yield _e("output_item.done", output_index=place, item=call)
        final.append(call)
    yield _e("completed", response=_response("completed", *final))


SERVERS: Mapping[str, Callable[[Answer], Iterator[Item]]] = {
    "vllm": vllm,
    "litellm 1.77": bare_litellm,
    "litellm 1.80": litellm_of_new_ids,
    "litellm 1.83": litellm_of_one_id,
    "litellm 1.110": litellm,
}
