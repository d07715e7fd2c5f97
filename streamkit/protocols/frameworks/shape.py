"""Tells which framework an item of a source belongs to, by the module of its class and an attribute. No framework is imported."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from .langgraph_shape import is_langgraph_item

__all__ = ["FRAMEWORKS", "framework_of", "source_of_framework"]

FRAMEWORKS = ("ai", "openai_agents", "pydantic_ai", "smolagents", "langchain", "langgraph")
"""The names of the frameworks: those of the modules beside this one, and of `protocol=`."""

# The frameworks, by the modules of their classes or the packages of these, and of each an attribute that its items have.
_MODULES = {
    "ai.types.events": "ai",
    "agents.stream_events": "openai_agents",  # an application may have a package of this name
    "agents.result": "openai_agents",
    "pydantic_ai": "pydantic_ai",
    "pydantic_graph": "pydantic_ai",
    "smolagents": "smolagents",
    "langchain_core": "langchain",
}
_ATTRIBUTES = {
    "ai": "replay",
    "openai_agents": "__dataclass_fields__",
    "pydantic_ai": "event_kind",
    "smolagents": "__dataclass_fields__",
    "langchain": "response_metadata",
}
_CONTAINERS = frozenset((dict, list, tuple))  # LangGraph's items

_SOURCES = {
    "openai_agents": "of the OpenAI Agents SDK, what `Runner.run_streamed(…)` returns is a source",
    "pydantic_ai": "of Pydantic AI, `agent.run_stream_events(…)` is a source, and so is a model request's `node.stream(run.ctx)`",
    "smolagents": "of smolagents, `agent.run(…, stream=True)` is a source",
    "langchain": "of LangChain and LangGraph, `model.stream(…)` and `graph.stream(…)` are sources, and `astream` is one for `sk.astream`",
}


def framework_of(item: Any) -> str | None:
    """Return the framework whose object an item is; None for any other item."""
    if item.__class__ in _CONTAINERS:
        return "langgraph" if is_langgraph_item(item) else None
    name = _framework_of_class(item.__class__)
    return name if name is not None and hasattr(item, _ATTRIBUTES[name]) else None


def source_of_framework(value: Any) -> str | None:
    """Return what is a source of the framework whose object this is, for an error; None for any other value."""
    return _SOURCES.get(_framework_of_class(value.__class__) or "")


@lru_cache(maxsize=1000)
def _framework_of_class(kind: type) -> str | None:
    """Applications derive classes of their own from a framework's."""
    modules = (base.__module__ for base in kind.__mro__)
    names = (name for module in modules for name in (module, module.partition(".")[0]))
    return next((_MODULES[name] for name in names if name in _MODULES), None)
