"""Ctrl-C while a stream runs."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Generator
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

    def is_answer() -> bool:
        return asker is not None and asker.asking

    def on_interrupt(number: int, frame: Any) -> None:
        if is_answer():
            raise KeyboardInterrupt
        stream.cancel()

    def cancel() -> None:
        if not is_answer():
            stream.cancel()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        with _called_at_once(cancel):
            yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _called_at_once(function: Callable[[], None]) -> Generator[None]:
    """Inside of this context a thread calls the function at each SIGINT.

    Python runs a signal's own handler in the main thread, between two instructions. If the signal comes just before the
    main thread begins to wait for bytes, the handler runs only once bytes have come, which may be never.
    """
    receiving, sending = socket.socketpair()
    sending.setblocking(False)

    def wait_for_signals() -> None:
        while number := receiving.recv(1):
            if number[0] == signal.SIGINT:
                function()

    thread = threading.Thread(target=wait_for_signals, name="streamkit-ctrl-c", daemon=True)
    thread.start()
    before = signal.set_wakeup_fd(sending.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        sending.close()
        thread.join()
        receiving.close()
