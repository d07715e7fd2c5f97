"""Catching what the program prints to `sys.stdout` and `sys.stderr` while something else uses the terminal."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from typing import IO, Any

__all__ = ["Redirection"]


class Redirection:
    """Replaces `sys.stdout` and `sys.stderr`, where they are the same terminal as another file."""

    def __init__(self) -> None:
        self._replaced: list[tuple[str, IO[str]]] = []

    def begin(self, terminal: IO[str], on_print: Callable[[str], object]) -> None:
        """Replace the files; `on_print` is called with whatever is printed to them."""
        for name in ("stdout", "stderr"):
            file = getattr(sys, name)
            if _same_terminal(file, terminal):
                self._replaced.append((name, file))
                setattr(sys, name, _PrintCatcher(file, on_print))

    def end(self) -> None:
        """Put the files back, unless the program has replaced them itself meanwhile."""
        for name, file in self._replaced:
            if isinstance(getattr(sys, name), _PrintCatcher):
                setattr(sys, name, file)
        self._replaced.clear()


def _same_terminal(file: Any, other: Any) -> bool:
    with contextlib.suppress(Exception):  # `sys.stdout` may be any object
        return not isinstance(file, _PrintCatcher) and (file is other or (file.isatty() and other.isatty()))
    return False


class _PrintCatcher(io.TextIOBase):
    """Stands for a file; passes what is printed to a function."""

    def __init__(self, file: IO[str], on_print: Callable[[str], object]) -> None:
        self.rich_proxied_file = file  # a name that Rich knows: it writes to this file itself
        self._on_print = on_print

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)

    def write(self, text: str, /) -> int:
        self._on_print(text)
        return len(text)

    def flush(self) -> None:
        self.rich_proxied_file.flush()

    def fileno(self) -> int:
        return self.rich_proxied_file.fileno()

    def isatty(self) -> bool:
        return self.rich_proxied_file.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # `io` declares an attribute, where a property is needed
        return str(getattr(self.rich_proxied_file, "encoding", "utf-8"))
