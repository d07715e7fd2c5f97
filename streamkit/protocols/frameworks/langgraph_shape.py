"""Recognises the items of LangGraph, which are tuples and dicts, some of which hold objects of LangChain's.

What is looked at does not grow with the item: this is called for the first items of any source.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

__all__ = ["DEBUG_KINDS", "MODES", "holds_messages", "is_langgraph_item"]

MODES = frozenset(("values", "updates", "custom", "messages", "checkpoints", "tasks", "debug"))
"""The names of what `stream_mode=` can be."""

DEBUG_KINDS = frozenset(("task", "task_result", "checkpoint"))
"""The types of items of the mode `debug`."""

_MOST = 16  # members that are looked at


def is_langgraph_item(item: Any) -> bool:
    """Whether a dict, a list or a tuple is an item of LangGraph's."""
    if item.__class__ is dict:
        return _is_dict_of_langgraph(item)
    if len(item) == 3 and item[0].__class__ is tuple:
        return _is_in_mode(*item[1:])
    return len(item) == 2 and (_is_in_mode(*item) or _is_with_message(item) or _is_in_namespace(*item))


def _is_in_mode(mode: Any, data: Any) -> bool:
    return mode.__class__ is str and mode in MODES and (mode != "messages" or _is_with_message(data))


def _is_with_message(pair: Any) -> bool:
    """Whether this is a message with its metadata."""
    return pair.__class__ in (list, tuple) and len(pair) == 2 and _is_message(pair[0]) and pair[1].__class__ is dict


def _is_in_namespace(namespace: Any, data: Any) -> bool:
    return namespace.__class__ is tuple and (data.__class__ is dict or _is_with_message(data))


def _is_dict_of_langgraph(item: dict[str, Any]) -> bool:
    event: Any = item.get("event")
    kind = item.get("type")
    if event.__class__ is str:
        is_new = event == "message-start" and "role" in item
        return is_new or (event.startswith("on_") and "run_id" in item and "parent_ids" in item)
    if kind.__class__ is str:
        return (
            (kind in MODES and item.get("ns").__class__ is tuple)
            or (kind == "event" and "method" in item and "params" in item)
            or (kind in DEBUG_KINDS and "payload" in item and "step" in item)
        )
    return "__interrupt__" in item or any(map(holds_messages, islice(item.values(), _MOST)))


def holds_messages(value: Any) -> bool:
    """Whether a value is a list of messages, or a dict that has one."""
    if value.__class__ is dict:
        return any(_is_list_of_messages(inner) for inner in islice(value.values(), _MOST))
    return _is_list_of_messages(value)


def _is_list_of_messages(value: Any) -> bool:
    return value.__class__ is list and bool(value) and _is_message(value[0])


def _is_message(value: Any) -> bool:
    roots = (base.__module__.partition(".")[0] for base in value.__class__.__mro__)
    return "langchain_core" in roots and hasattr(value, "response_metadata")
