"""The kernel: an ipykernel that executes one run at a time, and reports its begin, its errors and its end as frames."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportIncompatibleMethodOverride=false, reportUntypedBaseClass=false
# mypy: disable-error-code="no-untyped-call, override"
# IPython and ipykernel are only partly typed.

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
import warnings
from collections.abc import Generator
from types import FrameType
from typing import Any

from ipykernel.compiler import XCachingCompiler
from ipykernel.displayhook import ZMQDisplayHook
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from ipykernel.zmqshell import ZMQInteractiveShell
from IPython.core import page
from IPython.core.interactiveshell import InteractiveShell

from . import console
from .channel import Run, channel, run_of_context
from .displays import DisplayPublisher, ResultHook, display_page, without_colours

__all__ = ["serve"]

BROKEN_EXIT = 70  # the exit status of a kernel that cannot run code any more
_INTERRUPTED: dict[str, Any] = {"status": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": []}
_SELF_EXPLAINING = ("KeyboardInterrupt", "SystemExit")  # errors for which no traceback is sent

_exit = os._exit


# -- how code is compiled and executed


def first_code_line(code: str) -> int:
    """The number of the first line, from 1, that is neither empty nor a comment; 1 if there is none."""
    for number, line in enumerate(code.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            return number
    return 1


def keep_empty_lines(lines: list[str]) -> list[str]:
    """Replaces the IPython transformation that drops leading empty lines, so that line numbers stay those of the code.

    Only before a cell magic, which must come first, they are dropped.
    """
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    return lines[first:] if lines and lines[first].startswith("%%") else lines


class Compiler(XCachingCompiler):
    """Notes the file name of the run's code, by which its frames are found."""

    def cache(self, transformed_code: str, number: int = 0, raw_code: str | None = None) -> str:
        """Called before a cell is compiled; reports its first line as the active one."""
        name: str = super().cache(transformed_code, number, raw_code)
        if (run := channel.run) is not None:
            run.filename = name
            run.line = first_code_line(transformed_code)
            channel.request("line", line=run.line)  # waits, so that it comes before all that the code prints
        return name


class Shell(ZMQInteractiveShell):
    """The interactive shell: sends displays, pages and tracebacks as frames."""

    display_pub_class = DisplayPublisher
    displayhook_class = ResultHook

    def init_hooks(self) -> None:
        """Display pages."""
        super().init_hooks()
        self.set_hook("show_in_pager", page.as_hook(display_page), 0)

    def _showtraceback(self, etype: Any, evalue: Any, stb: list[str]) -> None:
        if getattr(self.displayhook, "msg", None) is not None:
            self._last_traceback_during_displayhook = True
        self._last_traceback = stb
        text = exit_text(evalue.code) if etype is SystemExit else without_colours("\n".join(stb)).rstrip("\n")
        if text and channel.forked:
            sys.stderr.write(text + "\n")
        elif text:
            channel.request("traceback", name=etype.__name__, text=text)
        if channel.run is not None:
            channel.run.error_reported = True

    def ask_exit(self) -> None:
        """`exit()` ends the run, as `sys.exit` does, and leaves the kernel for the next."""
        raise SystemExit(self.keepkernel_on_exit or None)  # IPython puts the argument of `exit` there


class Kernel(IPythonKernel):
    """The kernel: executes requests that carry a run; `input()` is answered by the runner."""

    shell_class = Shell
    compiler_class = Compiler

    def pre_handler_hook(self) -> None:
        """Does nothing, where ipykernel sets the signal handler: `begin` does."""

    def post_handler_hook(self) -> None:
        """Does nothing, where ipykernel resets the signal handler."""

    async def dispatch_shell(self, *args: Any, **named: Any) -> None:
        """Handle a request. The process ends if that fails, for it would not handle another."""
        try:
            await super().dispatch_shell(*args, **named)
        except Exception:
            _exit(BROKEN_EXIT)

    def raw_input(self, prompt: object = "") -> str:
        """`input()`: answered by the runner."""
        __tracebackhide__ = True
        return request_input(str(prompt))

    def getpass(self, prompt: str = "Password: ", stream: Any = None, **other: Any) -> str:
        """`getpass()`: answered by the runner, like `input()`."""
        __tracebackhide__ = True
        return request_input(prompt)

    @contextlib.contextmanager
    def _cancel_on_sigint(self, future: asyncio.Future[Any]) -> Generator[None]:
        loop = asyncio.get_running_loop()
        channel.cancel = lambda: loop.call_soon_threadsafe(future.cancel)
        try:
            yield
        finally:
            channel.cancel = None

    async def do_execute(self, code: str, silent: bool, *args: Any, cell_meta: Any = None, **named: Any) -> Any:
        """Execute the code of a run; its id and its pipes are in the metadata."""
        reply: dict[str, Any] = {}
        try:
            begin(cell_meta["streamkit"])
            try:
                channel.interruptible = True
                channel.send("begin")
                reply = await super().do_execute(code, silent, *args, cell_meta=cell_meta, **named)
            finally:
                channel.interruptible = False
        except KeyboardInterrupt:
            channel.interruptible = False  # the interrupt came in code of IPython's own
            reply = _INTERRUPTED
        finally:
            end(reply)
        return reply


def request_input(prompt: str) -> str:
    """The answer to a prompt. Raises `EOFError` if it is refused."""
    __tracebackhide__ = True
    value = channel.request("input", prompt=prompt)
    if value is None:
        raise EOFError("input() was not answered")
    return str(value)


# -- how a run begins and ends


def begin(metadata: dict[str, str]) -> None:
    """Make a run the current one. Everything is set anew, for earlier code may have replaced it.

    Args:
        metadata: the run's id as `run`, the paths of its pipes as `out` and `err`.
    """
    signal.signal(signal.SIGINT, on_interrupt)
    channel.stop_requested = channel.interrupted = False
    channel.run = run = Run(metadata["run"], metadata["out"], metadata["err"])
    run_of_context.set(run)
    run.redirect_process()
    console.install()


def end(reply: dict[str, Any]) -> None:
    """Report how a run ended. If it failed without an error that was reported, the kernel is broken, and exits."""
    console.flush()
    console.install()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)  # C code buffers what it writes to a pipe
    if channel.forked:
        _exit(0 if reply.get("status") == "ok" else 1)  # a fork that reached the end of the code; it is no kernel
    result = {key: reply.get(key) for key in ("status", "ename", "evalue")}
    explained = result["ename"] in _SELF_EXPLAINING or (channel.run is not None and channel.run.error_reported)
    if result["status"] != "ok" and not explained:
        _exit(BROKEN_EXIT)
    if result["ename"] == "SystemExit":
        result["exit_code"] = exit_status(reply["evalue"])
        result["status"] = "ok"
    text = without_colours("\n".join(reply.get("traceback") or []))
    channel.send("end", **result, traceback=text)
    run_of_context.set(None)


def exit_text(code: Any) -> str:
    """The console text for a `SystemExit` with this code; "" for success."""
    return "" if code in (None, 0) else f"SystemExit: {code}"


def exit_status(text: str) -> int:
    """The exit status of a `SystemExit` with this text: the number, 0 for none, 1 for any other text."""
    try:
        return 0 if text in ("", "None") else int(text)
    except ValueError:
        return 1


def on_interrupt(number: int, frame: FrameType | None) -> None:
    """The signal handler. Of the two ways in which an interrupt comes, by signal and by command, only the first counts."""
    if not channel.interruptible or (channel.stop_requested and channel.interrupted):
        return
    channel.interrupted = True
    if channel.cancel is None or channel.find_run_frame(frame):
        raise KeyboardInterrupt
    channel.cancel()  # the code awaits something: an error raised here would end the event loop


# -- the program


class Application(IPKernelApp):
    """ipykernel's application, with the console and the signal handler of this program."""

    kernel_class = Kernel

    def init_io(self) -> None:
        """Install the console in place of ipykernel's streams."""
        console.install()
        self.displayhook = ZMQDisplayHook(self.session, self.iopub_socket)  # a default; the shell has its own
        sys.displayhook = self.displayhook

    def init_signal(self) -> None:
        """Install the signal handler."""
        signal.signal(signal.SIGINT, on_interrupt)
        channel.handler = on_interrupt


def serve(directory: str) -> None:
    """Run the kernel for as long as the process lives.

    Args:
        directory: where the connection file `kernel.json` is.
    """
    warnings.filterwarnings("ignore", message="To exit: use")
    application = Application.instance(
        connection_file=os.path.join(directory, "kernel.json"), log_level=logging.CRITICAL
    )
    application.config.HistoryManager.hist_file = ":memory:"
    application.config.InteractiveShell.colors = "NoColor"
    application.initialize([])
    shell = InteractiveShell.instance()
    transforms = shell.input_transformer_manager.cleanup_transforms
    transforms[:] = [keep_empty_lines if getattr(t, "__name__", "") == "leading_empty_lines" else t for t in transforms]
    console.track_runs_of_threads()
    sys.path.insert(0, "")  # for the code; until now it would have shadowed modules that the kernel needs
    channel.send("ready")
    application.start()
    while True:
        application.io_loop.start()  # again, for code may stop the event loop that it runs in
