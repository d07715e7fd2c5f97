"""Displayed values, as their representations by MIME type, sent as frames."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportIncompatibleMethodOverride=false, reportUntypedBaseClass=false
# mypy: disable-error-code="no-untyped-call, override"
# IPython is only partly typed.

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher

from .channel import channel

__all__ = ["FramePublisher", "ResultHook", "display", "display_page", "without_colours"]

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LARGEST_INT = 2**63  # larger ones are not numbers to a JSON reader


def without_colours(text: str) -> str:
    """Return the text without ANSI colour sequences."""
    return _COLOURS.sub("", text)


def display(data: Any) -> None:
    """Display a value, given by its representations. Returns when the runner has taken it."""
    channel.request("display", data=json_value(data))


def json_value(value: Any) -> Any:
    """Return the value as JSON: bytes become base64, and what JSON has no form for becomes its text."""
    match value:
        case None | bool() | str():
            return value
        case int() if abs(value) < _LARGEST_INT:
            return int(value)
        case float() if math.isfinite(value):
            return float(value)
        case bytes() | bytearray() | memoryview():
            return b64encode(value).decode("ascii")
        case Mapping():
            return {str(key): json_value(one) for key, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return [json_value(one) for one in value]
        case _:
            return str(value)


def display_page(text: str | Mapping[str, Any], start: int = 0, screen_lines: int = 0, pager_cmd: Any = None) -> None:
    """Display what IPython would page, such as the help of `print?`. The signature is that of its hook."""
    plain = text if isinstance(text, str) else text.get("text/plain", "")
    display({"text/plain": without_colours(str(plain))})


class FramePublisher(DisplayPublisher):
    """Displays what code passes to `IPython.display.display`."""

    def publish(self, data: Any, metadata: Any = None, *rest: Any, **other: Any) -> None:
        """Display a value; metadata is not used."""
        display(data)

    def clear_output(self, wait: bool = False) -> None:
        """Does nothing: output that was delivered cannot be taken back."""


class ResultHook(DisplayHook):
    """Displays the value of a cell's last expression."""

    def __call__(self, result: Any = None) -> None:
        """Display a result. An error meanwhile is one of its `__repr__`."""
        if channel.run is None:
            return
        channel.run.displaying = (
            True  # in no variable: an error, which Python remembers, would keep the run and its pipes
        )
        try:
            super().__call__(result)
        finally:
            channel.run.displaying = False

    def write_output_prompt(self) -> None:
        """Does nothing: a console has no prompts."""

    def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
        """Display the representations that IPython has computed."""
        display(format_dict)

    def log_output(self, format_dict: Any) -> None:
        """Does nothing: it would hold on to every display."""

    def finish_displayhook(self) -> None:
        """Does nothing: everything is written already."""
