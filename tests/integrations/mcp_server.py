"""An MCP server over stdio, with a tool for each kind of result. `python -m tests.integrations.mcp_server FILE`: its tools write to
that file what nobody else would see."""

from __future__ import annotations

import base64
import logging
import os
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
PDF = base64.b64encode(b"%PDF-1.7").decode()

server: MCPServer[Any] = MCPServer("tests")
NOTES = Path(sys.argv[1])


@server.tool()
def add(a: int, b: int | None = None) -> int:
    """Add two numbers."""
    return a + (2 if b is None else b)


@server.tool(name="weather.now")
def weather(city: str) -> str:
    """Say what the weather is."""
    return f"sun in {city}"


@server.tool()
def draw() -> CallToolResult:
    """Draw a dot."""
    return CallToolResult(
        content=[
            TextContent(text="a dot"),
            ImageContent(data=PNG, mime_type="image/png"),
            TextContent(text="and more"),
        ]
    )


@server.tool()
def read() -> CallToolResult:
    """Read what there is."""
    return CallToolResult(
        content=[
            EmbeddedResource(resource=TextResourceContents(uri="file:///notes.txt", text="notes")),
            EmbeddedResource(
                resource=BlobResourceContents(uri="file:///report.pdf", mime_type="application/pdf", blob=PDF)
            ),
            ResourceLink(uri="https://example.com/rest", name="rest"),
        ]
    )


@server.tool()
def count() -> CallToolResult:
    """Count, without a text."""
    return CallToolResult(content=[], structured_content={"count": 3})


@server.tool()
async def download(context: Context) -> str:
    """Download in steps."""
    await context.report_progress(1, 3)
    await context.report_progress(2, 3, "almost")
    return "done"


@server.tool()
def fail() -> CallToolResult:
    """Fail."""
    return CallToolResult(content=[TextContent(text="the disk is full")], is_error=True)


@server.tool()
async def hang(context: Context) -> str:
    """Wait until it is cancelled."""
    await context.report_progress(0, None, "waiting")
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        NOTES.write_text("cancelled")
        raise
    return ""


@server.tool()
def end() -> str:
    """End the server."""
    os._exit(0)


@server.tool()
async def grow(context: Context) -> str:
    """Add another tool."""

    def shrink() -> str:
        """Is new."""
        return "small"

    server.add_tool(shrink)
    await context.session.send_tool_list_changed()
    return "grown"


@server.tool()
async def leave(context: Context) -> str:
    """Say that the tools have changed, and end the server."""
    await context.session.send_tool_list_changed()
    await anyio.sleep(0.2)  # until that was written
    os._exit(0)


if __name__ == "__main__":
    logging.disable()
    server.run()
