"""Agents: a model that calls tools and runs code, as one stream. `Agent` and `AsyncAgent` have the reference."""

from .agent import Agent, AsyncAgent
from .computer_protocol import Computing, Running
from .model_request import ModelRequest
from .tool_context import ToolContext, progress
from .tools import Tool, tool

__all__ = ["Agent", "AsyncAgent", "Computing", "ModelRequest", "Running", "Tool", "ToolContext", "progress", "tool"]
