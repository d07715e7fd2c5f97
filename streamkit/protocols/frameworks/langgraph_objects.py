"""What LangGraph yields, in all of its forms, as the parts of its stream's `version="v2"`: `{"type": mode, "ns": […], "data": …}`.

The forms are documented at https://docs.langchain.com/oss/python/langgraph/streaming. Objects in them become dicts, with what is read
of them. Of the events of `astream_events` those are parts which say what no other event does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..values import as_list, as_object, as_objects, as_text, is_object
from .langchain_objects import is_message, item_of_message
from .langgraph_shape import DEBUG_KINDS, MODES

__all__ = ["messages_in", "part_of"]

_DEEPEST = 4  # levels of a state in which messages are found
_METADATA = ("langgraph_checkpoint_ns", "langgraph_node", "lc_agent_name")
_NOTHING: Mapping[str, Any] = {"type": "", "ns": []}  # an item that says nothing more

Part = dict[str, Any]


def part_of(value: Any) -> Any:
    """Return the part that an item is; an item that is none becomes one of the mode `custom`."""
    if isinstance(value, list | tuple):
        return _part_of_tuple([*value])
    if is_message(value):
        return _part("messages", (), (value, {}))
    if value.__class__ is not dict:
        return _part("custom", (), value)
    if isinstance(value.get("event"), str):
        return _part_of_event(value)
    kind = as_text(value.get("type"))
    if kind == "event" and is_object(params := value.get("params")):
        return _part_of_method(as_text(value.get("method")), params)
    if kind and "ns" in value:
        return _part(kind, value["ns"], value.get("data"), value.get("interrupts"))
    if kind in DEBUG_KINDS and "payload" in value:
        return _part("debug", (), value)
    return _part(_mode_of(value), (), value)


def _part_of_tuple(items: list[Any]) -> Part:
    match items:
        case [str(mode), data] if mode in MODES:
            return _part(mode, (), data)
        case [message, metadata] if is_message(message) or is_object(message):
            return _part("messages", (), (message, metadata))
        case [namespace, str(mode), data]:
            return _part(mode, namespace, data)
        case [namespace, data]:
            inner = part_of(data)
            return {**inner, "ns": [*as_list(namespace)]} if is_object(inner) else _part("custom", namespace, data)
        case _:
            return _part("custom", (), items)


def _mode_of(value: Mapping[str, Any]) -> str:
    """Return the mode of a dict that is a state, or has one for each node that has changed it."""
    if any(map(_is_message_list, value.values())):
        return "values"
    is_update = all(inner is None or inner.__class__ in (dict, list, tuple) for inner in value.values())
    return "updates" if is_update else "custom"


def _is_message_list(value: Any) -> bool:
    return value.__class__ is list and bool(value) and (is_message(value[0]) or _is_item_of_message(value[0]))


def _part(mode: str, namespace: Any, data: Any, interrupts: Any = ()) -> Part:
    """Return a part, of whose data the objects are dicts."""
    part: Part = {"type": mode, "ns": [*map(str, as_list(namespace))]}
    if mode == "messages":
        message, metadata = (*as_list(data), None, None)[:2]
        part["data"] = [_plain(message), {key: as_object(metadata).get(key) for key in _METADATA}]
    elif mode in ("updates", "values"):
        part["data"] = _plain(data)
    elif mode == "debug":
        is_task = as_object(data).get("type") == "task"
        return _part("tasks" if is_task else "", namespace, as_object(data).get("payload"))
    elif mode == "tasks":
        part["data"] = _task(as_object(data))
    elif mode:
        part["data"] = data
    if interrupts:
        part["interrupts"] = _plain(interrupts)
    return part


def _task(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task: the place of what it does in namespaces, and the id of the call, if it is the only one that it runs."""
    place = data.get("place") or f"{data.get('name')}:{data.get('id')}"
    return {"place": place, "call_id": data.get("call_id") or _only_call(data.get("input"))}


def _only_call(value: Any) -> str | None:
    """Return the id of the one call that a list has."""
    calls = [call for call in as_objects(value) if call.get("type") == "tool_call"]
    return as_text(calls[0].get("id")) or None if len(calls) == 1 else None


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value with dicts in the place of messages and of questions (`Interrupt`)."""
    if is_message(value):
        return item_of_message(value)
    if type(value).__name__ == "Interrupt" and hasattr(value, "value"):
        return {"value": value.value, "id": getattr(value, "id", None)}
    if depth > _DEEPEST or value is None or isinstance(value, str | int | float):
        return value
    if is_object(value):
        return {str(key): _plain(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, depth + 1) for inner in as_list(value)]
    fields: Any = getattr(value, "__dict__", None)  # a state that is a model or a dataclass
    return _plain({**fields}, depth + 1) if fields.__class__ is dict and depth < 2 else value


def _is_item_of_message(value: Any) -> bool:
    return is_object(value) and "content" in value and isinstance(value.get("type"), str) and "id" in value


def messages_in(data: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield the messages in a state, as dicts."""
    if _is_item_of_message(data):
        yield data
    elif depth <= _DEEPEST:
        for inner in data.values() if is_object(data) else as_list(data):
            yield from messages_in(inner, depth + 1)


# -- `astream_events(version="v2")`


def _part_of_event(event: Mapping[str, Any]) -> Part:
    kind, data, metadata = event["event"], as_object(event.get("data")), as_object(event.get("metadata"))
    if kind == "on_chat_model_stream":
        return _part("messages", (), (data.get("chunk"), metadata))
    if kind in ("on_chat_model_end", "on_tool_end") and is_message(output := data.get("output")):
        message = item_of_message(output)
        return _part("messages", (), ({**message, "type": message["type"].replace("AIMessageChunk", "ai")}, metadata))
    if kind == "on_chain_start" and (call := _only_call(data.get("input"))):
        place = as_text(metadata.get("langgraph_checkpoint_ns")).rpartition("|")[2]
        return {"type": "tasks", "ns": [], "data": {"place": place, "call_id": call}}
    if kind == "on_chain_stream" and not event.get("parent_ids") and is_object(chunk := data.get("chunk")):
        return _part("updates", (), chunk)
    if kind == "on_custom_event":
        return _part("custom", (), {as_text(event.get("name")): event.get("data")})
    if not kind.startswith("on_"):
        return _part_of_message_event(event, {})
    return {**_NOTHING}


# -- version="v3"


def _part_of_method(method: str, params: Mapping[str, Any]) -> Part:
    namespace, data = params.get("namespace"), params.get("data")
    if method == "messages":
        event, metadata = (*as_list(data), None, None)[:2]
        if is_object(event) and "event" in event:
            return {**_part_of_message_event(event, as_object(metadata)), "ns": [*map(str, as_list(namespace))]}
    elif method == "tools":
        output = as_object(data).get("output")
        return _part("messages", namespace, (output, _within(namespace))) if is_message(output) else {**_NOTHING}
    elif method == "lifecycle":
        cause, places = as_object(as_object(data).get("cause")), as_list(as_object(data).get("namespace"))
        if places and (call := cause.get("tool_call_id")):
            return {"type": "tasks", "ns": [], "data": {"place": places[-1], "call_id": call}}
        return {**_NOTHING}
    return _part(method, namespace, data, params.get("interrupts"))


def _within(namespace: Any) -> dict[str, str]:
    return {"langgraph_checkpoint_ns": "|".join((*map(str, as_list(namespace)), "tools"))}


def _part_of_message_event(event: Mapping[str, Any], metadata: Mapping[str, Any]) -> Part:
    """Return the chunk that an event of a message is the same as."""
    kind, run = event.get("event"), metadata.get("run_id")
    chunk: dict[str, Any] = {"type": "AIMessageChunk", "id": f"lc_run--{run}" if run else ""}
    if kind == "content-block-start":
        _add_block(chunk, event, as_object(event.get("content")))
    elif kind == "content-block-delta":
        delta = as_object(event.get("delta"))
        _add_block(chunk, event, {**delta, "type": as_text(delta.get("type")).removesuffix("-delta")})
    elif kind == "message-finish":
        finished = {key: value for key, value in as_object(event.get("metadata")).items() if key != "id"}
        chunk |= {"usage_metadata": event.get("usage"), "response_metadata": finished, "chunk_position": "last"}
    elif kind != "message-start":
        return {**_NOTHING}
    return _part("messages", (), (chunk, metadata))


def _add_block(chunk: dict[str, Any], event: Mapping[str, Any], block: Mapping[str, Any]) -> None:
    block = {**block, "index": event.get("index")}
    calls: Sequence[str] = ("tool_call_chunk", "tool-call", "tool_call")
    chunk["tool_calls" if block.get("type") in calls else "content"] = [block]
