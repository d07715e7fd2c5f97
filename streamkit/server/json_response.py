"""JSON as the server sends it."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from ..messages.json_text import well_formed

__all__ = ["JsonResponse"]


class JsonResponse(JSONResponse):
    """JSON. A message that was saved may have half of a surrogate pair, which UTF-8 has not: it is sent as U+FFFD."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        try:
            return super().render(content)
        except UnicodeEncodeError:
            return super().render(well_formed(content).value)
