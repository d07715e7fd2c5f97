"""The tools of an MCP server, through a session that the application has opened with the package `mcp`.

A session is recognised by its methods. What it returns is read in the form of the Model Context Protocol's schema
(https://modelcontextprotocol.io/specification), which the objects of every version of the package can write.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

import anyio

from ..arguments import check_kind
from ..errors import UsageError, raise_source_error
from ..messages import AudioMessage, FileMessage, ImageMessage, Message, TextMessage, ToolOutputMessage, output_text
from ..protocols.values import as_object, as_objects, as_text
from ..sources.interrupt import Stopped, stop_with_caller
from .foreign_tools import ToolSession, allowed_name, is_session
from .tool_context import current_progress
from .tools import Tool, ToolFailure

if TYPE_CHECKING:
    from concurrent.futures import Future

    from anyio.from_thread import BlockingPortal


__all__ = ["SessionTools", "mcp_tools"]

_LISTING_SECONDS = 60.0  # for all pages; a session has no limit of its own
_CHANGED = "notifications/tools/list_changed"
_IMAGES = ("png", "jpeg", "gif", "webp")  # what models take


async def mcp_tools(
    session: ToolSession,
    *,
    prefix: str = "",
    only: Collection[str] | None = None,
    confirm: bool | Callable[[Any], bool] = False,
    timeout: float | None = None,  # noqa: ASYNC109  # of the tools, not of this function
    portal: BlockingPortal | None = None,
) -> list[Tool[..., Any]]:
    """Return the tools that an MCP server has now, for `tools=` of an agent.

        async with stdio_client(server) as (reading, writing), ClientSession(reading, writing) as session:
            await session.initialize()
            agent = sk.AsyncAgent(client, model="gpt-5-mini", tools=[*await mcp_tools(session, prefix="files_")])

    A session itself in `tools=` is the same without arguments, and follows the server where its tools change. Connections, logins,
    and what a server asks its client are the session's and the application's.

    Args:
        session: an initialized `ClientSession`.
        prefix: put before each name, so that the tools of two servers differ. In names, `_` stands for each character but letters,
            digits, `_` and `-`.
        only: the server's own names of the tools that are wanted; None means all.
        confirm: whether each call is a `Confirmation` first. A function decides it for each tool, which it gets as `mcp` has it.
            Its `annotations` are the server's words: a server's word that a tool is harmless does not replace a confirmation.
        timeout: seconds that a call may take. It is then cancelled, in the server too.
        portal: where the session lives in the event loop of another thread, that loop's portal. The tools are then plain functions,
            as `Agent` needs them.

    Raises:
        UsageError: this is not a session; the server has no such tool; an argument is of another kind.
        SourceError: the server cannot be reached.
    """
    if not is_session(session):
        raise UsageError(f"an MCP session has the methods `list_tools` and `call_tool`, which {session!r} has not")
    check_kind("prefix", prefix, str)
    listed = await _listed(session)
    if only is not None:
        listed = _chosen(only, listed)
    call = partial(_call, session) if portal is None else partial(_call_through, portal, session)
    return [_tool(tool, call, prefix, confirm, timeout) for tool in listed]


class SessionTools:
    """The tools of a session in `tools=`, as they were listed last.

    Attributes:
        tools: these.
    """

    def __init__(self, session: ToolSession) -> None:
        self.tools: Sequence[Tool[..., Any]] = ()
        self._session = session
        self._changes: _Changes | None = None
        self._seen = 0

    @property
    def has_changed(self) -> bool:
        """Whether the server has announced other tools since; True where nothing receives such a notification."""
        return self._changes is None or self._changes.count != self._seen

    async def list_again(self) -> None:
        """List the server's tools. After an error, which is that of `mcp_tools`, they are listed again only when they have changed."""
        self._changes = _Changes.of(self._session)
        self._seen = 0 if self._changes is None else self._changes.count
        self.tools = await mcp_tools(self._session)


class _Changes:
    """Counts how often the server of a session has announced that its tools have changed.

    What a session receives goes to the one function that it was made with, as `message_handler`; there is no public way to another
    one. It is wrapped here, once for each session.
    """

    _of: ClassVar[WeakKeyDictionary[Any, _Changes]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self.count = 0

    @classmethod
    def of(cls, session: Any) -> _Changes | None:
        """Return those of a session; None where they cannot be heard: the protocol of 2026 has subscriptions for that."""
        try:
            session = _session_in(session)
            handler, is_subscribed = session._message_handler, getattr(session, "discover_result", None) is not None
        except (AttributeError, RuntimeError):  # another session, or a client that is not connected
            return None
        if is_subscribed:
            return None
        if (changes := cls._of.get(session)) is None:
            changes = cls._of[session] = cls()
            session._message_handler = partial(changes._receive, handler)
        return changes

    async def _receive(self, handler: Callable[[Any], Awaitable[None]], message: Any) -> None:
        notification = getattr(message, "root", message)  # of mcp 1
        self.count += getattr(notification, "method", None) == _CHANGED
        await handler(message)


# -- listing


class _ListedTool(NamedTuple):
    """A tool as the server describes it: as the package's object, and as JSON."""

    object: Any
    json: Mapping[str, Any]

    @property
    def name(self) -> str:
        return as_text(self.json.get("name"))


async def _listed(session: ToolSession) -> list[_ListedTool]:
    """Return all tools of a server.

    Raises:
        SourceError: it cannot be reached.
    """
    try:
        with anyio.fail_after(_LISTING_SECONDS):
            return [tool async for tool in _all_pages(_session_in(session))]
    except Exception as error:
        raise_source_error(error)


async def _all_pages(session: Any) -> AsyncIterator[_ListedTool]:
    cursor: str | None = None
    while True:
        page = await (session.list_tools() if cursor is None else session.list_tools(params=_page_at(cursor)))
        json = as_object(page.model_dump(mode="json", by_alias=True))
        for tool in map(_ListedTool, page.tools, as_objects(json.get("tools"))):
            yield tool
        before, cursor = cursor, as_text(json.get("nextCursor")) or None
        if cursor in (None, before):
            return


def _page_at(cursor: str) -> Any:
    return import_module("mcp.types").PaginatedRequestParams(cursor=cursor)  # whoever has a session has the package


def _session_in(session: Any) -> Any:
    """Return the session of a `Client`, which lists in another way; else the session itself."""
    return getattr(session, "session", session)


def _chosen(only: Collection[str], listed: Iterable[_ListedTool]) -> list[_ListedTool]:
    """Return the tools with these names. Raises `UsageError` where the server has no such tool."""
    if isinstance(only, str):
        raise UsageError(f"`only` is a list of names, not {only!r}")
    by_name = {tool.name: tool for tool in listed}
    for name in only:
        if name not in by_name:
            nearest = get_close_matches(name, by_name, 1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"it has: {', '.join(by_name) or 'none'}"
            raise UsageError(f"the MCP server has no tool {name!r}; {hint}")
    return [by_name[name] for name in only]


def _tool(
    tool: _ListedTool,
    call: Callable[..., Any],
    prefix: str,
    confirm: bool | Callable[[Any], bool],
    timeout: float | None,
) -> Tool[..., Any]:
    asks = confirm if isinstance(confirm, bool) else confirm(tool.object)
    if not isinstance(asks, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  # it may be untyped
        raise UsageError(f"`confirm` returned {asks!r} for the tool {tool.name!r}, which is not a bool")
    made = Tool(
        partial(call, tool.name),
        name=allowed_name(prefix + tool.name),
        description=as_text(tool.json.get("description")) or as_text(tool.json.get("title")),
        parameters=as_object(tool.json.get("inputSchema")),
        confirm=asks,
        timeout=timeout,
    )
    made.can_be_stopped = True  # through a portal too
    return made


# -- calls


async def _call(session: Any, name: str, /, **arguments: Any) -> list[Message]:
    return await _result(session, current_progress.get(), name, arguments)


def _call_through(portal: Any, session: Any, name: str, /, **arguments: Any) -> list[Message]:
    """Call a tool in the event loop of another thread, and wait for it. A tool's annotations are read, so the portal has none."""
    return _PortalCall(portal.start_task_soon(_result, session, current_progress.get(), name, arguments)).wait()


class _PortalCall:
    """A call in the event loop of another thread. Where the function that waits for it is stopped, it is cancelled."""

    def __init__(self, future: Future[list[Message]]) -> None:
        self._future = future
        stop_with_caller(self)

    @property
    def ended(self) -> bool:
        return self._future.done()

    def cancel(self) -> None:
        self._future.cancel()

    def wait(self) -> list[Message]:
        return self._future.result()


async def _result(
    session: Any, report: Callable[[str], None] | None, name: str, arguments: dict[str, Any]
) -> list[Message]:
    """Call a tool. Returns what it has put out, as messages.

    Raises:
        ToolFailure: the server says that it has failed.
        Exception: the session's own, where it could not be called.
    """

    async def on_progress(progress: float, total: float | None = None, message: str | None = None) -> None:
        assert report is not None
        of_total = "" if total is None else f" of {total:g}"
        with suppress(Stopped):  # this is called in a task of the session's, which goes on
            report(f"{message or f'{progress:g}{of_total}'}\n")

    callback = None if report is None else on_progress
    result = await session.call_tool(name, arguments, progress_callback=callback)
    json = as_object(result.model_dump(mode="json", by_alias=True))
    parts = [_part(block) for block in as_objects(json.get("content"))]
    texts = [part.content for part in parts if isinstance(part, TextMessage)]
    if json.get("isError"):
        raise ToolFailure("\n".join(texts) or "the tool has failed, and did not say why")
    structured = json.get("structuredContent")
    if structured is None:
        return [*parts, ToolOutputMessage()]
    as_json = "" if texts else output_text(structured)
    return [*parts, ToolOutputMessage(content=as_json, metadata={"structured_content": structured})]


def _part(block: Mapping[str, Any]) -> Message:
    """Return a block of a result as a message."""
    match block.get("type"):
        case "text":
            return TextMessage(content=as_text(block.get("text")))
        case "image" | "audio" as kind:
            return _media(kind, as_text(block.get("data")), as_text(block.get("mimeType")))
        case "resource":
            resource = as_object(block.get("resource"))
            if "blob" not in resource:
                return TextMessage(content=as_text(resource.get("text")))
            return _media("file", as_text(resource.get("blob")), as_text(resource.get("mimeType")), resource.get("uri"))
        case "resource_link":
            return TextMessage(content=as_text(block.get("uri")))
        case _:
            return TextMessage(content=output_text(block))


def _media(kind: str, data: str, media_type: str, uri: Any = None) -> Message:
    """Return an image, audio or a file, which is base64."""
    subtype = media_type.partition(";")[0].rpartition("/")[2]
    metadata = {key: value for key, value in (("media_type", media_type), ("path", uri)) if value}
    if kind == "audio":
        return AudioMessage(format=subtype, content=data, metadata=metadata)
    made = ImageMessage if kind == "image" and subtype in _IMAGES else FileMessage
    return made(format=f"base64.{subtype}" if subtype else "base64", content=data, metadata=metadata)
