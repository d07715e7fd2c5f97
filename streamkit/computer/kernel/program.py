"""The kernel: an ipykernel that is told of its run, and tells what it shows, how it failed and how it ended."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportIncompatibleMethodOverride=false, reportUntypedBaseClass=false
# mypy: disable-error-code="no-untyped-call, override"
# IPython and ipykernel are typed in part.

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import re
import signal
import sys
import warnings
from collections.abc import Generator, Mapping
from types import FrameType
from typing import Any

from ipykernel.compiler import XCachingCompiler
from ipykernel.displayhook import ZMQDisplayHook, ZMQShellDisplayHook
from ipykernel.ipkernel import IPythonKernel
from ipykernel.jsonutil import encode_images, json_clean
from ipykernel.kernelapp import IPKernelApp
from ipykernel.zmqshell import ZMQDisplayPublisher, ZMQInteractiveShell
from IPython.core import page
from IPython.core.interactiveshell import InteractiveShell

from . import console
from .channel import Run, channel, run_of

__all__ = ["serve"]

PLAIN = re.compile(r"\x1b\[[0-9;]*m")
BROKEN = 70  # the exit status of a kernel that cannot run code any more
_INTERRUPTED: dict[str, Any] = {"status": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": []}
_UNTOLD = ("KeyboardInterrupt", "SystemExit")  # errors that need no text

_exit = os._exit


# -- what it shows


def show(data: Any, *, result: bool = False) -> None:
    channel.ask("display", data=json_clean(encode_images(data)), result=result)


def show_page(text: str | Mapping[str, Any], start: int = 0, screen_lines: int = 0, pager_cmd: Any = None) -> None:
    """What another front end shows beside the code, as the help of `print?`."""
    plain = text if isinstance(text, str) else text.get("text/plain", "")
    show({"text/plain": PLAIN.sub("", str(plain))})


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


# -- what it runs


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

    def init_hooks(self) -> None:
        super().init_hooks()
        self.set_hook("show_in_pager", page.as_hook(show_page), 0)

    def _showtraceback(self, etype: Any, evalue: Any, stb: list[str]) -> None:
        if getattr(self.displayhook, "msg", None) is not None:
            self._last_traceback_during_displayhook = True
        self._last_traceback = stb
        text = exit_text(evalue.code) if etype is SystemExit else PLAIN.sub("", "\n".join(stb)).rstrip("\n")
        if text and channel.forked:
            sys.stderr.write(text + "\n")
        elif text:
            channel.ask("traceback", name=etype.__name__, text=text)
        if channel.run is not None:
            channel.run.said_why = True

    def ask_exit(self) -> None:
        """`exit()` ends the run, as `sys.exit` does, and leaves the kernel for the next."""
        raise SystemExit(self.keepkernel_on_exit or None)  # its first argument, whatever that is called here


class Kernel(IPythonKernel):
    shell_class = Shell
    compiler_class = Compiler

    def pre_handler_hook(self) -> None:
        pass  # who may be interrupted, and when, is decided here

    def post_handler_hook(self) -> None:
        pass

    async def dispatch_shell(self, *args: Any, **named: Any) -> None:
        try:
            await super().dispatch_shell(*args, **named)
        except Exception:
            _exit(BROKEN)  # it would take no run any more

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
        reply: dict[str, Any] = {}
        try:
            begin(cell_meta["streamkit"])
            try:
                channel.interruptible = True
                channel.tell("begin")
                reply = await super().do_execute(code, silent, *args, cell_meta=cell_meta, **named)
            finally:
                channel.interruptible = False
        except KeyboardInterrupt:
            channel.interruptible = False  # it came between two steps of IPython's
            reply = _INTERRUPTED
        finally:
            end(reply)
        return reply


def answered(prompt: str, password: bool) -> str:
    __tracebackhide__ = True
    value = channel.ask("input", prompt=prompt, password=password)
    if value is None:
        raise EOFError("there is nobody to answer input()")
    return str(value)


# -- how a run begins and ends


def begin(given: dict[str, str]) -> None:
    signal.signal(signal.SIGINT, on_interrupt)  # earlier code may have put its own in its place
    channel.asked_to_stop = channel.interrupted = False
    channel.run = run = Run(given["run"], given["out"], given["err"])
    run_of.set(run)
    run.take_over()
    console.take_back()


def end(reply: dict[str, Any]) -> None:
    """Tell how it ended. A run that failed and could not say why met a kernel that is broken, as the next one would."""
    console.flush()
    console.take_back()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)  # C code holds back what it writes to a pipe
    if channel.forked:
        _exit(0 if reply.get("status") == "ok" else 1)  # a fork that came to the end of the code: it is no kernel
    known = {key: reply.get(key) for key in ("status", "ename", "evalue")}
    said_why = known["ename"] in _UNTOLD or (channel.run is not None and channel.run.said_why)
    if known["status"] != "ok" and not said_why:
        _exit(BROKEN)
    if known["ename"] == "SystemExit":
        known["exit_code"] = exit_status(reply["evalue"])
        known["status"] = "ok"
    text = PLAIN.sub("", "\n".join(reply.get("traceback") or []))
    channel.tell("end", **known, traceback=text)
    run_of.set(None)


def exit_text(code: Any) -> str:
    """What Python would say of an exit."""
    return "" if code in (None, 0) else f"SystemExit: {code}"


def exit_status(text: str) -> int:
    """The exit status of an exit, of which only the text is known."""
    try:
        return 0 if text in ("", "None") else int(text)
    except ValueError:
        return 1


def on_interrupt(number: int, frame: FrameType | None) -> None:
    if not channel.interruptible or (channel.asked_to_stop and channel.interrupted):
        return  # it is over, or was interrupted already, in the other of two ways
    channel.interrupted = True
    if channel.cancel is None or channel.runs_in(frame):
        raise KeyboardInterrupt
    channel.cancel()  # the code awaits; what raised here would end the event loop


# -- the program


class App(IPKernelApp):
    kernel_class = Kernel

    def init_io(self) -> None:
        console.take_back()
        self.displayhook = ZMQDisplayHook(self.session, self.iopub_socket)  # the shell has its own
        sys.displayhook = self.displayhook

    def init_signal(self) -> None:
        signal.signal(signal.SIGINT, on_interrupt)
        channel.handler = on_interrupt


def serve(directory: str) -> None:
    """Run what is asked for, for as long as the process lives."""
    warnings.filterwarnings("ignore", message="To exit: use")
    app = App.instance(connection_file=os.path.join(directory, "kernel.json"), log_level=logging.CRITICAL)
    app.config.HistoryManager.hist_file = ":memory:"
    app.config.InteractiveShell.colors = "NoColor"
    app.initialize([])
    shell = InteractiveShell.instance()
    transforms = shell.input_transformer_manager.cleanup_transforms
    transforms[:] = [empty_lines if getattr(t, "__name__", "") == "leading_empty_lines" else t for t in transforms]
    console.keep_runs_of_threads()
    sys.path.insert(0, "")  # for the code, and not before
    channel.tell("ready")
    app.start()
    while True:
        app.io_loop.start()  # code may stop the loop that it runs in
