"""Messages as notebooks show them: HTML in which nothing that a model or a program wrote is markup, and text beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, cast

from .markdown_html import markdown_html

if TYPE_CHECKING:
    from .messages import Message

__all__ = ["depth_of", "html_of", "mimebundle"]

_DEEPEST = 8  # agents inside each other

_PICTURE = re.compile(r"base64\.(png|jpeg|jpg|gif|webp)")
_DATA = re.compile(r"[A-Za-z0-9+/=\s]*")
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")  # colours of console output
_ENDS = {"incomplete": "cut short", "cancelled": "cancelled", "failed": "failed"}
_CODE = "font-family: monospace; white-space: pre-wrap"
_LOOKS = {
    "reasoning": "opacity: 0.7; border-left: 2px solid; padding-left: 0.8em",
    "output": f"{_CODE}; border-left: 2px solid; padding-left: 0.8em; margin: 0.3em 0",
    "note": "opacity: 0.7",
    "failed": "color: #c62828",
}
_NESTED = "border-left: 2px solid; padding-left: 1em"
_FRAME = "width: 100%; border: 0; background: white; color-scheme: light"


def mimebundle(messages: Iterable[Message], after: str = "") -> dict[str, Any]:
    """Return IPython's forms of messages: `text/html`, `text/plain`, and of a single picture also the picture.

    Args:
        messages: what to show.
        after: HTML below them.
    """
    messages = [*messages]
    in_fields = {message.call_id for message in messages if "field" in message.metadata}
    shown = [one for one in messages if one.type != "tool_call" or one.call_id not in in_fields]
    bundle = {
        "text/plain": "\n\n".join(map(_text_of, shown)),
        "text/html": "".join(map(html_of, shown)) + after,
    }
    if len(shown) == 1 and (kind := _picture_kind(shown[0])) and not after:
        bundle = {"text/plain": bundle["text/plain"], f"image/{kind}": shown[0].content}
    return bundle


def depth_of(message: Message) -> int:
    """Return how many agents inside each other a message is of, beyond the stream's own: how far it is indented."""
    parent = message.parent_id
    return 0 if parent is None else min(_DEEPEST, parent.count("/") + 1)


def html_of(message: Message) -> str:
    """One message as HTML."""
    ending = _ENDS.get(message.status)
    if message.type == "console" and isinstance(execution := message.metadata.get("execution"), str):
        ending = execution.replace("_", " ")
    end = f'<div style="{_LOOKS["failed"]}">({escape(ending)})</div>' if ending else ""
    depth = depth_of(message)
    nested = f' style="{_NESTED}; margin-left: {1.2 * (depth - 1):g}em"' if depth else ""
    return f"<div{nested}>{_content(message)}{end}</div>"


def _content(message: Message) -> str:
    content = str(message.content)
    match message.type:
        case "message" if message.role != "user":
            return markdown_html(content)
        case "reasoning":
            return f'<div style="{_LOOKS["reasoning"]}">{markdown_html(content)}</div>' if content else ""
        case "code" if message.role == "computer":
            return _document(message)
        case "console" | "tool_output":
            return f'<pre style="{_LOOKS["output"]}">{_output(message)}</pre>' if content else ""
        case "tool_call":
            return f'<pre style="{_CODE}"><b>{escape(message.name or "")}</b>({escape(content)})</pre>'
        case "image" if kind := _picture_kind(message):
            return f'<img alt="Picture" style="max-width: 100%" src="data:image/{kind};base64,{content}">'
        case "code":
            language = f'<div style="{_LOOKS["note"]}">{escape(message.format or "code")}</div>'
            return f'{language}<pre style="{_CODE}">{escape(content)}</pre>'
        case _:
            return f'<pre style="{_CODE}">{escape(_text_of(message))}</pre>'


def _output(message: Message) -> str:
    """Return console output, that of stderr in red."""
    content, at, shown = str(message.content), 0, ""
    for start, end in _stderr_places(message):
        shown += f'{_printed(content[at:start])}<span style="{_LOOKS["failed"]}">{_printed(content[start:end])}</span>'
        at = end
    return shown + _printed(content[at:])


def _printed(text: str) -> str:
    return escape(_SEQUENCE.sub("", text))


def _stderr_places(message: Message) -> Iterator[tuple[int, int]]:
    """The places of stderr that the metadata names, in their order; others may have written into it."""
    places, at = message.metadata.get("stderr"), 0
    for place in cast("Sequence[object]", places) if isinstance(places, list) else ():
        match place:
            case [int(start), int(end)] if at <= start <= end:
                yield start, end
                at = end
            case _:
                return


def _document(message: Message) -> str:
    """Return a document that code displayed, such as a table, in a sandboxed frame: nothing in it runs or reaches the page."""
    if message.format != "html":
        return f'<pre style="{_CODE}">{escape(_text_of(message))}</pre>'
    height = min(420, 60 + 26 * message.content.count("<tr"))
    return f'<iframe sandbox="" title="Output" style="{_FRAME}; height: {height}px" srcdoc="{escape(message.content)}"></iframe>'


def _picture_kind(message: Message) -> str:
    """`png`, `jpeg` …, of a picture whose data is there; else ""."""
    found = _PICTURE.fullmatch(message.format or "") if message.type == "image" else None
    if found is None or not message.content or not _DATA.fullmatch(message.content):
        return ""
    return found[1].replace("jpg", "jpeg")


def _text_of(message: Message) -> str:
    """The message where there is no HTML."""
    if message.type == "image" and (message.format or "").startswith("base64"):
        return f"(a picture, {len(message.content) * 3 // 4:,} bytes)"
    if message.type == "tool_call":
        return f"{message.name or ''}({message.content})"
    shown = message.metadata.get("text") if message.type == "code" and message.role == "computer" else None
    return shown if isinstance(shown, str) else str(message.content)
