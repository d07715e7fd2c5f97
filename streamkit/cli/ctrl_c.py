"""Ctrl-C while a stream runs."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Generator
from typing import Any

from ..streams.api import StreamManager
from .prompt import Asker

__all__ = ["stopped_by_ctrl_c"]


@contextlib.contextmanager
def stopped_by_ctrl_c(stream: StreamManager, asker: Asker | None = None) -> Generator[None]:
    """Inside of this context Ctrl-C cancels the stream, and what runs in it, instead of ending the program.

    While `asker` asks something, Ctrl-C answers the question. Outside of the main thread, which alone receives signals,
    nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        if asker is not None and asker.asking:
            raise KeyboardInterrupt
        stream.cancel()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
