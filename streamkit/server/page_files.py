"""The files of the chat page, which are in the package."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from .problem import Problem

__all__ = ["PageFiles"]

_FILES = {path.name: path for path in (Path(__file__).parent / "page").iterdir()}
_NOTE = '<span id="model" class="note">'  # the element of the page that shows the note
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".ts": "text/plain; charset=utf-8",  # the types of `streamkit.js`, for editors
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".webmanifest": "application/manifest+json",
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


class PageFiles:
    """The files, as an endpoint.

    Args:
        note: a text for the page's header, such as the model's name; "" for none.
    """

    def __init__(self, note: str) -> None:
        page = _FILES["index.html"].read_text("utf-8")
        self._page = page.replace(_NOTE, f"{_NOTE}{escape(note)}").encode()

    async def response(self, request: Request, body: Any) -> Response:
        """Return one of the files; the page itself at `/`."""
        path = _FILES.get(request.path_params.get("file", "index.html"))
        kind = None if path is None else _TYPES.get(path.suffix)
        if path is None or kind is None:
            raise Problem("not-found")
        content = self._page if path.name == "index.html" else path.read_bytes()
        return Response(content, headers={**_HEADERS, "Content-Type": kind})
