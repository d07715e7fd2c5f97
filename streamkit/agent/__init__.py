"""Agents: a model that calls tools and runs code, as one stream. `Agent` and `AsyncAgent` have the reference."""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names
from .agent import Agent, AsyncAgent
from .computer_protocol import Computing, Running
from .model_request import ModelRequest
from .tool_context import ToolContext, progress
from .tools import Tool, tool

if TYPE_CHECKING:
    from .mcp import mcp_tools
else:
    __getattr__, __dir__ = lazy_names(__name__, {"mcp_tools": ".mcp"})

__all__ = [
    "Agent",
    "AsyncAgent",
    "Computing",
    "ModelRequest",
    "Running",
    "Tool",
    "ToolContext",
    "mcp_tools",
    "progress",
    "tool",
]
