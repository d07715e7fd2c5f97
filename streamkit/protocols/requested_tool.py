"""A tool that a client of a server runs itself, as an agent offers it to its model."""

from __future__ import annotations

from typing import Any

__all__ = ["RequestedTool"]


class RequestedTool(dict[str, Any]):
    """The schema of a tool in a request: its `name`, `description` and `parameters`.

    Attributes:
        path: where in the request it has its name. An error about that is the client's, and says so.
    """

    def __init__(self, path: str, **schema: Any) -> None:
        super().__init__(schema)
        self.path = path
