"""The kernel: it executes one run at a time, and reports its begin, its errors and its end as frames."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportIncompatibleMethodOverride=false, reportUntypedBaseClass=false
# mypy: disable-error-code="no-untyped-call, override, misc"
# IPython is only partly typed.

from __future__ import annotations

import builtins
import contextlib
import ctypes
import getpass
import logging
import os
import signal
import sys
import warnings
from types import FrameType
from typing import Any

from IPython.core.application import BaseIPythonApplication
from IPython.core.shellapp import InteractiveShellApp

from . import console
from .channel import KernelRun, channel, run_of_context
from .event_loop import EventLoop
from .shell import Shell, keep_empty_lines, text_of

__all__ = ["serve"]

BROKEN_EXIT = 70  # the exit status of a kernel that cannot run code any more

_exit = os._exit
_event_loop = EventLoop()


# -- one run


def execute(request: dict[str, str], shell: Shell) -> None:
    """Execute the code of a run, and report how it ended."""
    status: dict[str, Any] = {}
    try:
        begin(request)
        try:
            channel.interruptible = True
            channel.send("begin")
            result = shell.execute(request["code"])
            if (error := result.error_before_exec or result.error_in_exec) is not None:
                shell.show_unseen(error)
        finally:
            channel.interruptible = False
        status = describe(result)
    except KeyboardInterrupt:
        channel.interruptible = False  # the interrupt came in code of IPython's own
        status = {"status": "error", "ename": "KeyboardInterrupt", "evalue": ""}
    finally:
        end(status)


def begin(request: dict[str, str]) -> None:
    """Make a run the current one. Everything is set anew, for earlier code may have replaced it.

    Args:
        request: the run's id as `run`, the paths of its pipes as `out` and `err`.
    """
    signal.signal(signal.SIGINT, on_interrupt)
    channel.stop_requested = channel.interrupted = False
    channel.run = run = KernelRun(request["run"], request["out"], request["err"])
    run_of_context.set(run)
    run.redirect_process()
    console.install()
    builtins.__dict__["input"] = request_input
    getpass.getpass = request_password  # pyright: ignore[reportAttributeAccessIssue]  # its `echo_char` is not needed


def describe(result: Any) -> dict[str, Any]:
    """Return the outcome of a cell, as IPython reports it, as the fields of an `end` frame."""
    run, error = channel.run, result.error_before_exec or result.error_in_exec
    shown = run.error if run is not None else {}
    if isinstance(error, SystemExit):
        return {
            "status": "ok",
            "ename": "SystemExit",
            "evalue": text_of(error.code),
            "exit_code": exit_status(error.code),
        }
    if error is not None:
        return {**shown, "status": "error", "ename": type(error).__name__, "evalue": text_of(error)}
    if run is not None and run.failed_display:
        return {**shown, "status": "error"}
    return {"status": "ok"}


def end(status: dict[str, Any]) -> None:
    """Report how a run ended. If it failed without an error that was reported, the kernel is broken, and exits."""
    console.flush()
    console.install()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)  # C code buffers what it writes to a pipe
    if channel.forked:
        _exit(0 if status.get("status") == "ok" else 1)  # a fork that reached the end of the code; it is not a kernel
    explained = status.get("ename") == "KeyboardInterrupt" or (channel.run is not None and channel.run.error_reported)
    if not status or (status["status"] != "ok" and not explained):
        _exit(BROKEN_EXIT)
    channel.send("end", **status)
    run_of_context.set(None)


def exit_status(code: object) -> int:
    """Return the exit status of a `SystemExit` with this code: the number, 0 for none, 1 for anything else."""
    try:
        return 0 if code is None else int(str(code))
    except ValueError:
        return 1


def request_input(prompt: object = "", /) -> str:
    """`input()`: answered by the runner. Raises `EOFError` if it is refused."""
    value = channel.request("input", prompt=str(prompt))
    if value is None:
        raise EOFError("input() was not answered")
    return str(value)


def request_password(prompt: str = "Password: ", stream: Any = None, **other: Any) -> str:
    """`getpass()`: answered by the runner, like `input()`."""
    return request_input(prompt)


def on_interrupt(number: int, frame: FrameType | None) -> None:
    """The signal handler. Of the two ways in which an interrupt comes, by signal and by command, only the first counts."""
    if not channel.interruptible or (channel.stop_requested and channel.interrupted):
        return
    channel.interrupted = True
    cancel = _event_loop.cancel
    if cancel is None or channel.find_run_frame(frame):
        raise KeyboardInterrupt
    cancel()  # the code awaits something: an error raised here would end the event loop


# -- the program


class Application(BaseIPythonApplication, InteractiveShellApp):
    """IPython's application: it reads the user's profile, and runs what stands there for a start."""

    name = "ipython-kernel"  # so that it reads the configuration of kernels

    def init_shell(self) -> None:
        """Make the shell."""
        self.shell = Shell.instance(parent=self, profile_dir=self.profile_dir)

    def make_shell(self) -> Shell:
        """Return the shell, ready to run code."""
        self.log_level = logging.CRITICAL
        self.config.HistoryManager.hist_file = ":memory:"
        self.config.InteractiveShell.colors = "NoColor"
        self.initialize([])
        self.init_shell()
        os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        self.init_gui_pylab()
        self.init_extensions()
        self.init_code()
        shell = Shell.instance()
        shell.event_loop = _event_loop
        transforms = shell.input_transformer_manager.cleanup_transforms
        transforms[:] = [
            keep_empty_lines if getattr(t, "__name__", "") == "leading_empty_lines" else t for t in transforms
        ]
        return shell


def serve() -> None:
    """Run the kernel for as long as the process lives."""
    signal.signal(signal.SIGINT, on_interrupt)
    channel.handler, channel.wake = on_interrupt, _event_loop.wake
    warnings.filterwarnings("ignore", message="To exit: use")
    # The threads are the kernel's own, which a fork of the code does not need.
    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
    console.install()
    shell = Application.instance().make_shell()
    console.track_runs_of_threads()
    sys.path.insert(0, "")  # for the code; until now it would have shadowed modules that the kernel needs
    channel.send("ready")
    while True:
        try:
            _event_loop.open()
            request = channel.next_request()
            if request is None:
                _event_loop.run_until_woken()
            else:
                execute(request, shell)
        except Exception as error:  # it would not execute another run
            os.write(2, repr(error).encode("utf-8", "replace"))
            _exit(BROKEN_EXIT)
