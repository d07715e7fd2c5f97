"""The server of the section `held`: many streams at a steady pace, all from one thread, so that none disturbs another's pace.

    python -m tests.benchmarks.paced_server      # prints its port, and serves until its input ends

A POST to `/<pid>/<streams>/<n>/…` waits until so many have come. Then each is answered with a Chat stream of n deltas of
`wires.py`, `A_SECOND` deltas a second, evenly spread: no two streams are due at the same moment. The seconds are those that the
client's process has: the time in which it waits for a core that something else uses is none of them, so that a busy machine
does not hold fewer streams. A GET is answered, by the end of the connection, when the first delta is due.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from .wires import chat

__all__ = ["A_SECOND", "URL", "ProcessTime", "begun"]

URL = "http://127.0.0.1:{port}/{pid}/{streams}/{n}"
A_SECOND = 100  # deltas of a stream
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_TICK = 0.001  # seconds between two looks at what is due


class ProcessTime:
    """The time that passes for a process's first thread: not that in which it waits for a core. Where the system does not say
    how long that is, it is the time on the wall."""

    def __init__(self, pid: int | str) -> None:
        self._file = Path(f"/proc/{pid}/schedstat")

    def now(self) -> float:
        """Seconds since any moment."""
        try:
            waited = int(self._file.read_text().split()[1]) / 1e9
        except OSError:
            waited = 0.0
        return time.monotonic() - waited


async def begun(url: str) -> None:
    """Wait until the streams of a URL begin."""
    host, _, path = url.removeprefix("http://").partition("/")
    reader, writer = await asyncio.open_connection(*host.split(":"))
    writer.write(b"GET /%b HTTP/1.1\r\n\r\n" % path.encode())
    await reader.read()
    writer.close()


@cache
def _body(n: int) -> tuple[bytes, ...]:
    *events, done = (b"%x\r\n%b\r\n" % (len(event), event) for event in chat(n))
    return (*events, done + b"0\r\n\r\n")


async def _send(streams: Sequence[asyncio.StreamWriter], n: int, pid: str) -> None:
    """Send the events of all streams, one after the other, each when it is due."""
    body, clock, sent = _body(n), ProcessTime(pid), 0
    began = clock.now()
    while sent < len(body) * len(streams):
        due = int((clock.now() - began) * A_SECOND * len(streams))
        for number in range(sent, min(due, len(body) * len(streams))):
            event, stream = divmod(number, len(streams))
            streams[stream].write(body[event])
        sent = max(sent, due)
        await asyncio.sleep(_TICK)


class _Server:
    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.StreamWriter]] = defaultdict(list)
        self._begun: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._sending: set[asyncio.Task[None]] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a request."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
        except (asyncio.IncompleteReadError, ConnectionError):  # a client may leave its connection behind
            writer.close()
            return
        method, path, _ = head.decode().split(" ", 2)
        _, pid, streams, n, *_ = path.split("/")
        if method == "get":
            await self._begun[pid].wait()
            del self._begun[pid]
            writer.close()
            return
        await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
        writer.write(_HEAD)
        self._waiting[pid].append(writer)  # the client closes it
        if len(self._waiting[pid]) == int(streams):
            self._begun[pid].set()
            task = asyncio.create_task(_send(self._waiting.pop(pid), int(n), pid))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)


async def main() -> None:
    server = await asyncio.start_server(_Server().answer, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    threading.Thread(target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(ended.set)), daemon=True).start()
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
