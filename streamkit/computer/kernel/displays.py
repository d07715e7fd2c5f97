"""What the kernel displays: values as their representations by MIME type, sent as frames."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportIncompatibleMethodOverride=false, reportUntypedBaseClass=false
# mypy: disable-error-code="no-untyped-call, override"
# IPython and ipykernel are only partly typed.

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ipykernel.displayhook import ZMQShellDisplayHook
from ipykernel.jsonutil import encode_images, json_clean
from ipykernel.zmqshell import ZMQDisplayPublisher

from .channel import channel

__all__ = ["DisplayPublisher", "ResultHook", "display", "display_page", "without_colours"]

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def without_colours(text: str) -> str:
    """The text without ANSI colour sequences."""
    return _COLOURS.sub("", text)


def display(data: Any) -> None:
    """Display a value, given by its representations; bytes become base64. Returns when the runner has taken it."""
    channel.request("display", data=json_clean(encode_images(data)))


def display_page(text: str | Mapping[str, Any], start: int = 0, screen_lines: int = 0, pager_cmd: Any = None) -> None:
    """Display what IPython would page, such as the help of `print?`. The signature is that of its hook."""
    plain = text if isinstance(text, str) else text.get("text/plain", "")
    display({"text/plain": without_colours(str(plain))})


class DisplayPublisher(ZMQDisplayPublisher):
    """Displays what code passes to `IPython.display.display`."""

    def publish(self, data: Any, metadata: Any = None, **other: Any) -> None:
        """Display a value; metadata is not used."""
        display(data)

    def clear_output(self, wait: bool = False) -> None:
        """Does nothing: output that was delivered cannot be taken back."""


class ResultHook(ZMQShellDisplayHook):
    """Displays the value of a cell's last expression."""

    def finish_displayhook(self) -> None:
        """Display the representations that IPython has computed."""
        message: Any = self.msg
        self.msg = None
        if message and message["content"]["data"]:
            display(message["content"]["data"])
