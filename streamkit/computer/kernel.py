"""What runs inside the Python kernel: an ipykernel whose output goes to the run that wrote it.

This file is a program; nothing imports it. Each run has two pipes of its own, for stdout and stderr. They are the
kernel's descriptors 1 and 2 while the run lasts, so that what child processes write is the run's as well; a thread keeps
those of the run that started it. Whatever else there is to tell goes through a channel of its own, in order with the
pipes: the reader empties them before it takes a frame, and the writer waits for its answer.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportIncompatibleMethodOverride=false, reportUntypedBaseClass=false
# mypy: disable-error-code="no-untyped-call, override"
# IPython and ipykernel are typed in part.

from __future__ import annotations

import _thread
import asyncio
import contextlib
import contextvars
import ctypes
import io
import itertools
import json
import logging
import os
import queue
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

SAMPLING = 0.02  # seconds between two looks at the line that runs
PLAIN = re.compile(r"\x1b\[[0-9;]*m")


class Run:
    """One run's pipes. They are closed when nothing of the run is left that could write."""

    def __init__(self, id: str, out: str, err: str) -> None:
        self.id = id
        self.descriptors = {1: os.open(out, os.O_WRONLY), 2: os.open(err, os.O_WRONLY)}
        self.newest = 1  # which of the two was written to last
        self.filename = ""
        self.line: int | None = None

    def take_over(self) -> None:
        """Make the pipes the process's own stdout and stderr."""
        for number, descriptor in self.descriptors.items():
            os.dup2(descriptor, number)

    def __del__(self) -> None:
        for descriptor in self.descriptors.values():
            with contextlib.suppress(OSError):
                os.close(descriptor)


_run_of: contextvars.ContextVar[Run | None] = contextvars.ContextVar("streamkit_run", default=None)


class Channel:
    """Frames to the reader, written and answered by threads of their own: an interrupt never cuts one in half."""

    def __init__(self, frames: int, answers: int) -> None:
        self.run: Run | None = None
        self.interruptible = False
        self.asked_to_stop = self.interrupted = False
        self.cancel: Callable[[], object] | None = None  # where an interrupt has to end what is awaited
        self.forked = False
        self._frames = frames
        self._answers = answers
        self._queue: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, threading.Event] = {}
        self._given: dict[int, Any] = {}
        self._main = threading.get_ident()
        os.register_at_fork(after_in_child=self._in_child)

    def start(self) -> None:
        for target in (self._write, self._read):
            threading.Thread(target=target, name="streamkit", daemon=True).start()

    def _in_child(self) -> None:
        self.forked = True  # it has neither thread; what it prints goes through the pipes that it inherits

    @property
    def current(self) -> Run | None:
        """The run that the calling thread or task belongs to."""
        return _run_of.get() or self.run

    def tell(self, type: str, **fields: Any) -> None:
        self._put(type, fields)

    def ask(self, type: str, **fields: Any) -> Any:
        """The reader's answer; it comes when all that was written before has been read."""
        if self.forked or self.current is not self.run:
            return None
        number = next(self._numbers)
        event = self._waiting[number] = threading.Event()
        try:
            self._put(type, {**fields, "ack": number})
            event.wait()
            return self._given.get(number)
        finally:
            self._waiting.pop(number, None)
            self._given.pop(number, None)

    def _put(self, type: str, fields: dict[str, Any]) -> None:
        run = self.current
        if not self.forked and run is self.run:
            frame = {"type": type, "run": run.id if run else None, **fields}
            self._queue.put(json.dumps(frame).encode("ascii") + b"\n")

    def _write(self) -> None:
        """Write what is put; meanwhile look which line runs."""
        while True:
            try:
                data = self._queue.get(timeout=SAMPLING if self.run is not None and self.interruptible else None)
            except queue.Empty:
                self._sample()
                continue
            write_all(self._frames, data)

    def _sample(self) -> None:
        run = self.run
        frame = self.runs_in(sys._current_frames().get(self._main))  # pyright: ignore[reportPrivateUsage]
        if run is not None and frame is not None:
            self.at_line(run, frame.f_lineno)

    def runs_in(self, frame: FrameType | None) -> FrameType | None:
        """The innermost of these frames that is the run's own code."""
        while frame is not None and (self.run is None or frame.f_code.co_filename != self.run.filename):
            frame = frame.f_back
        return frame

    def at_line(self, run: Run, line: int) -> None:
        if run.line != line and run is self.run and self.interruptible:
            run.line = line
            self._queue.put(json.dumps({"type": "line", "run": run.id, "line": line}).encode("ascii") + b"\n")

    def _read(self) -> None:
        """Take answers, and the wish to stop. When their pipe ends, whoever started this is gone, and so is the reason to be here."""
        for line in open(self._answers, "rb", buffering=0):  # noqa: SIM115  # until the process ends
            answer = json.loads(line)
            if "interrupt" in answer:
                self._interrupt(answer["interrupt"])
                continue
            event = self._waiting.get(answer["ack"])
            if event is not None:
                self._given[answer["ack"]] = answer.get("value")
                event.set()
        os.killpg(0, signal.SIGKILL)

    def _interrupt(self, id: str) -> None:
        """Interrupt the main thread. The signal that comes as well ends a call that waits, but is lost in one that
        ignores signals meanwhile, as `os.system` does."""
        if self.run is not None and self.run.id == id and self.interruptible:
            self.asked_to_stop = True
            _thread.interrupt_main()


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class Bytes(io.RawIOBase):
    """stdout or stderr of the run that the writer belongs to."""

    def __init__(self, number: int, channel: Channel) -> None:
        self._number = number
        self._channel = channel

    def close(self) -> None:
        """Nothing, as of `Console`."""

    def fileno(self) -> int:
        return self._number

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        run, number = self._channel.current, self._number
        if run is not None and run.newest != number:
            self._channel.ask("sync")  # what one stream has is read before the other gets more
            run.newest = number
        view = memoryview(data).cast("B")
        write_all(number if run is None else run.descriptors[number], view.tobytes())
        return len(view)


class Console(io.TextIOBase):
    """`sys.stdout` or `sys.stderr`. Nothing is held back."""

    def __init__(self, number: int, channel: Channel) -> None:
        self._raw = Bytes(number, channel)

    @property
    def buffer(self) -> Bytes:
        return self._raw

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "utf-8"

    @property
    def errors(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "backslashreplace"

    @property
    def name(self) -> str:
        return "<stdout>" if self._raw.fileno() == 1 else "<stderr>"

    def close(self) -> None:
        """Nothing: later runs print to it as well."""

    def fileno(self) -> int:
        return self._raw.fileno()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # the program's own mistake
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._raw.write(text.encode("utf-8", "backslashreplace"))
        return len(text)


def keep_runs_of_threads(channel: Channel) -> None:
    """What a thread writes is the run's that started it; what a pool's thread writes, the run's that gave it the work."""
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    def within(function: Callable[..., Any]) -> Callable[..., Any]:
        run = channel.current

        def call(*arguments: Any, **named: Any) -> Any:
            _run_of.set(run)
            return function(*arguments, **named)

        return call

    def start_in_run(self: threading.Thread) -> None:
        self.run = within(self.run)  # type: ignore[method-assign]
        start(self)

    def submit_in_run(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return submit(self, within(fn), *args, **kwargs)

    threading.Thread.start = start_in_run  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = submit_in_run  # type: ignore[method-assign, assignment]


def first_line(code: str) -> int:
    """The number of the first line that has code."""
    for number, line in enumerate(code.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            return number
    return 1


def empty_lines(lines: list[str]) -> list[str]:
    """Leave empty lines where they are, so that line numbers are those of the code as it was given; a cell magic alone
    has to come first."""
    filled = next((number for number, line in enumerate(lines) if line.strip()), 0)
    return lines[filled:] if lines and lines[filled].startswith("%%") else lines


def exit_text(code: Any) -> str:
    """What Python would say of an exit."""
    return "" if code in (None, 0) else f"SystemExit: {code}"


def exit_status(text: str) -> int:
    """The exit status of an exit, of which only the text is known."""
    try:
        return 0 if text in ("", "None") else int(text)
    except ValueError:
        return 1


def main() -> None:
    directory, frames, answers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    sys.path[0] = ""  # the program's own directory is the current one, not this file's
    for descriptor in (frames, answers):
        os.set_inheritable(descriptor, False)  # no child process is to have them
    channel = Channel(frames, answers)
    channel.start()

    from ipykernel.compiler import XCachingCompiler
    from ipykernel.displayhook import ZMQDisplayHook, ZMQShellDisplayHook
    from ipykernel.ipkernel import IPythonKernel
    from ipykernel.jsonutil import encode_images, json_clean
    from ipykernel.kernelapp import IPKernelApp
    from ipykernel.zmqshell import ZMQDisplayPublisher, ZMQInteractiveShell
    from IPython.core.interactiveshell import InteractiveShell

    def show(data: Any, *, result: bool = False) -> None:
        channel.ask("display", data=json_clean(encode_images(data)), result=result)

    class Publisher(ZMQDisplayPublisher):
        def publish(self, data: Any, metadata: Any = None, **other: Any) -> None:
            show(data)

        def clear_output(self, wait: bool = False) -> None:
            pass  # what was told stays told

    class Hook(ZMQShellDisplayHook):
        def finish_displayhook(self) -> None:
            message: Any = self.msg
            self.msg = None
            if message and message["content"]["data"]:
                show(message["content"]["data"], result=True)

    class Compiler(XCachingCompiler):
        def cache(self, transformed_code: str, number: int = 0, raw_code: str | None = None) -> str:
            name: str = super().cache(transformed_code, number, raw_code)
            if (run := channel.run) is not None:
                run.filename = name
                run.line = first_line(transformed_code)
                channel.ask("line", line=run.line)  # in order with what it prints
            return name

    class Shell(ZMQInteractiveShell):
        display_pub_class = Publisher
        displayhook_class = Hook

        def _showtraceback(self, etype: Any, evalue: Any, stb: list[str]) -> None:
            if getattr(self.displayhook, "msg", None) is not None:
                self._last_traceback_during_displayhook = True
            self._last_traceback = stb
            text = exit_text(evalue.code) if etype is SystemExit else PLAIN.sub("", "\n".join(stb)).rstrip("\n")
            if text and channel.forked:
                sys.stderr.write(text + "\n")
            elif text:
                channel.ask("traceback", name=etype.__name__, text=text)

        def ask_exit(self) -> None:
            pass  # `exit()` ends the run, and leaves the kernel for the next

    class Kernel(IPythonKernel):
        shell_class = Shell
        compiler_class = Compiler

        def pre_handler_hook(self) -> None:
            pass  # who may be interrupted, and when, is decided here

        def post_handler_hook(self) -> None:
            pass

        def raw_input(self, prompt: object = "") -> str:
            __tracebackhide__ = True
            return answered(str(prompt), False)

        def getpass(self, prompt: str = "Password: ", stream: Any = None, **other: Any) -> str:
            __tracebackhide__ = True
            return answered(prompt, True)

        @contextlib.contextmanager
        def _cancel_on_sigint(self, future: asyncio.Future[Any]) -> Generator[None]:
            loop = asyncio.get_running_loop()
            channel.cancel = lambda: loop.call_soon_threadsafe(future.cancel)
            try:
                yield
            finally:
                channel.cancel = None

        async def do_execute(self, code: str, silent: bool, *args: Any, cell_meta: Any = None, **named: Any) -> Any:
            begin(cell_meta["streamkit"])
            reply: dict[str, Any] = {"status": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": []}
            try:
                try:
                    channel.interruptible = True
                    channel.tell("begin")
                    reply = await super().do_execute(code, silent, *args, cell_meta=cell_meta, **named)
                finally:
                    channel.interruptible = False
            except KeyboardInterrupt:
                channel.interruptible = False  # it came between two steps of IPython's
            finally:
                end(reply)
            return reply

    def answered(prompt: str, password: bool) -> str:
        __tracebackhide__ = True
        value = channel.ask("input", prompt=prompt, password=password)
        if value is None:
            raise EOFError("there is nobody to answer input()")
        return str(value)

    def begin(given: dict[str, str]) -> None:
        signal.signal(signal.SIGINT, on_interrupt)  # earlier code may have put its own in its place
        channel.asked_to_stop = channel.interrupted = False
        channel.run = run = Run(given["run"], given["out"], given["err"])
        _run_of.set(run)
        run.take_over()

    def end(reply: dict[str, Any]) -> None:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).fflush(None)  # C code holds back what it writes to a pipe
        if channel.forked:
            os._exit(0 if reply["status"] == "ok" else 1)  # a fork that came to the end of the code: it is no kernel
        known = {key: reply.get(key) for key in ("status", "ename", "evalue")}
        if reply.get("ename") == "SystemExit":
            known["exit_code"] = exit_status(reply["evalue"])
            known["status"] = "ok"
        text = PLAIN.sub("", "\n".join(reply.get("traceback") or []))
        channel.tell("end", **known, traceback=text)
        _run_of.set(None)

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        if not channel.interruptible or (channel.asked_to_stop and channel.interrupted):
            return  # it is over, or was interrupted already, in the other of two ways
        channel.interrupted = True
        if channel.cancel is None or channel.runs_in(frame):
            raise KeyboardInterrupt
        channel.cancel()  # the code awaits; what raised here would end the event loop

    class App(IPKernelApp):
        kernel_class = Kernel

        def init_io(self) -> None:
            sys.stdout = sys.__stdout__ = Console(1, channel)  # type: ignore[misc,assignment]
            sys.stderr = sys.__stderr__ = Console(2, channel)  # type: ignore[misc,assignment]
            self.displayhook = ZMQDisplayHook(self.session, self.iopub_socket)  # the shell has its own
            sys.displayhook = self.displayhook

        def init_signal(self) -> None:
            signal.signal(signal.SIGINT, on_interrupt)

    warnings.filterwarnings("ignore", message="To exit: use")
    app = App.instance(connection_file=os.path.join(directory, "kernel.json"), log_level=logging.CRITICAL)
    app.config.HistoryManager.hist_file = ":memory:"
    app.config.InteractiveShell.colors = "NoColor"
    app.initialize([])
    shell = InteractiveShell.instance()
    transforms = shell.input_transformer_manager.cleanup_transforms
    transforms[:] = [empty_lines if getattr(t, "__name__", "") == "leading_empty_lines" else t for t in transforms]
    keep_runs_of_threads(channel)
    channel.tell("ready")
    app.start()


if __name__ == "__main__":
    main()
