"""IPython's shell as the kernel uses it: it sends displays, pages and tracebacks as frames."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportIncompatibleMethodOverride=false, reportUntypedBaseClass=false
# mypy: disable-error-code="no-untyped-call, override"
# IPython is only partly typed.

from __future__ import annotations

import ast
import contextlib
import os
import sys
import traceback
from itertools import zip_longest
from types import TracebackType
from typing import Any

from IPython.core import page
from IPython.core.autocall import ExitAutocall
from IPython.core.compilerop import CachingCompiler
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from .channel import channel
from .displays import FramePublisher, ResultHook, display_page, without_colours
from .event_loop import EventLoop

__all__ = ["Shell", "exit_text", "first_code_line", "keep_empty_lines", "text_of"]

_KERNEL = os.path.dirname(__file__)
MOST_FRAMES = 40  # of one traceback; more would take long to format, and say no more


def first_code_line(code: str) -> int:
    """Return the number of the first line, from 1, that is neither empty nor a comment; 1 if there is none."""
    for number, line in enumerate(code.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            return number
    return 1


def first_line(statement: ast.stmt) -> int:
    """Return the number of the line at which a statement begins, from 1."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def keep_empty_lines(lines: list[str]) -> list[str]:
    """Replaces the IPython transformation that drops leading empty lines, so that line numbers stay those of the code.

    Only before a cell magic, which must come first, they are dropped.
    """
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    return lines[first:] if lines and lines[first].startswith("%%") else lines


def text_of(value: object) -> str:
    """Return the text of an error, even if its class cannot give one."""
    try:
        return str(value)
    except (Exception, SystemExit):
        return f"<unprintable {type(value).__name__}>"


def exit_text(code: Any) -> str:
    """Return the console text for a `SystemExit` with this code; "" for success."""
    return "" if code in (None, 0) else f"SystemExit: {text_of(code)}"


class Compiler(CachingCompiler):
    """Notes the file name of the run's code, by which its frames are found, and reports which statement runs."""

    def cache(self, transformed_code: str, number: int = 0, raw_code: str | None = None) -> str:
        """Called before a cell is compiled; reports its first line as the active one."""
        name: str = super().cache(transformed_code, number, raw_code)
        if (run := channel.run) is not None and not run.filename:  # not for a cell that the code itself runs
            run.filename = name
            run.line = first_code_line(transformed_code)
            channel.request("line", line=run.line, step=True)  # waits, so that it comes before all that the code prints
        return name

    def __call__(self, source: Any, filename: str, *arguments: Any, **named: Any) -> Any:
        """Compile a statement of a cell, which runs then; reports its first line as the active one."""
        if isinstance(source, ast.Module | ast.Interactive):
            self._report_step(source, filename)
        compiled: Any = super().__call__
        return compiled(source, filename, *arguments, **named)

    def _report_step(self, source: ast.Module | ast.Interactive, filename: str) -> None:
        # A function of its own: an error of the compiler, which Python remembers, has the frames of its callers, and so would
        # keep the run and its pipes.
        if (run := channel.run) is not None and filename == run.filename:
            channel.report_line(first_line(source.body[0]), step=True)


class Exit(ExitAutocall):
    """`exit` and `quit`, which end the run as `sys.exit` does, and leave the kernel for the next."""

    def __call__(self, code: object = None) -> None:
        """End the run with an exit status."""
        raise SystemExit(code)


class Shell(InteractiveShell):
    """The interactive shell.

    Attributes:
        event_loop: in which code awaits.
    """

    event_loop: EventLoop
    compiler_class = Compiler
    display_pub_class = FramePublisher
    displayhook_class = ResultHook
    exiter = Exit()
    autoindent = False

    def init_environment(self) -> None:
        """Keep child processes from paging, for there is nobody to turn the page."""
        os.environ["PAGER"] = os.environ["GIT_PAGER"] = "cat"

    def init_hooks(self) -> None:
        """Display pages."""
        super().init_hooks()
        self.set_hook("show_in_pager", page.as_hook(display_page), 0)

    def enable_gui(self, gui: Any = None) -> None:
        """Called by `%matplotlib`: only what needs no window can be shown."""
        if gui not in (None, "inline"):
            raise UsageError(f"there is no event loop of {gui} here; `%matplotlib inline` displays figures")

    def execute(self, code: str) -> Any:
        """Run a cell, and return IPython's `ExecutionResult`. What it prints is not recorded, as `run_cell` would."""
        failure: Any = None
        try:
            transformed = self.transform_cell(code)
        except Exception:
            transformed, failure = code, sys.exc_info()
        cell = self.run_cell_async(
            code, store_history=True, transformed_cell=transformed, preprocessing_exc_tuple=failure
        )
        result: Any = None
        try:
            if self.should_run_async(code, transformed_cell=transformed, preprocessing_exc_tuple=failure):
                result = self.event_loop.run(cell)
            else:
                with self.event_loop.beside():
                    result = run_at_once(cell)
        finally:
            self.events.trigger("post_execute")
            self.events.trigger("post_run_cell", result)
        return result

    # -- errors

    def showtraceback(self, exc_tuple: Any = None, *arguments: Any, **named: Any) -> None:
        """Show the error that was raised, with at most `MOST_FRAMES` frames."""
        error = sys.exc_info()[1] if exc_tuple is None else exc_tuple[1]
        left_out = tidy(error)
        if isinstance(error, BaseExceptionGroup):  # IPython would print it with its own frames
            self._show_plainly(error)
        else:
            try:
                super().showtraceback(exc_tuple, *arguments, **named)
            except (Exception, SystemExit) as another:  # its class cannot give its text
                self._show_plainly(error or another, f"{type(another).__name__}: {text_of(another)}")
        if left_out:
            sys.stderr.write(f"[{left_out} frames in the middle of the traceback are left out]\n")

    def show_usage_error(self, exc: BaseException) -> None:
        """Show the error of a magic that is used wrongly, or does not exist."""
        self._showtraceback(type(exc), exc, [f"UsageError: {text_of(exc)}"])

    def show_unseen(self, error: BaseException) -> None:
        """Show the error that a run ended with if IPython showed none, as where a debugger found nobody to ask."""
        if (run := channel.run) is not None and not run.error_reported:
            tidy(error)
            self._show_plainly(error)

    def _show_plainly(self, error: BaseException, *more: str) -> None:
        lines = traceback.format_exception(type(error), error, self._own_frames(error.__traceback__))
        self._showtraceback(type(error), error, [*(line.rstrip("\n") for line in lines), *more])

    def _own_frames(self, trace: TracebackType | None) -> TracebackType | None:
        """Return the traceback from the run's own code on."""
        own = trace
        while own is not None and not channel.is_run_frame(own.tb_frame):
            own = own.tb_next
        return own or trace

    def _format_exception_for_storage(self, *arguments: Any, **named: Any) -> dict[str, Any]:
        """Nothing: IPython would hold on to every traceback, and fails where an error has no text."""
        return {}

    def _showtraceback(self, etype: Any, evalue: Any, stb: list[str]) -> None:
        text = exit_text(evalue.code) if etype is SystemExit else without_colours("\n".join(stb)).rstrip("\n")
        if text and channel.forked:
            sys.stderr.write(text + "\n")
        elif text:
            channel.request("traceback", name=etype.__name__, text=text)
        if (run := channel.run) is not None:
            run.error_reported = True
            run.error = {"ename": etype.__name__, "evalue": text_of(evalue), "traceback": text}
            run.failed_display = run.failed_display or run.displaying


def run_at_once(coroutine: Any) -> Any:
    """Return the result of a coroutine that awaits nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("code without `await` awaited something")


def tidy(error: BaseException | None) -> int:
    """Take the kernel's own frames out of the traceback of an error and of those that led to it, and the middle out of
    long ones; returns how many frames that left out.

    The frames of the kernel that have ended lose their variables: what they called is in the traceback, and keeps them.
    """
    left_out, seen = 0, set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        frames: list[TracebackType] = []
        trace = error.__traceback__
        while trace is not None:
            is_own = trace.tb_frame.f_code.co_filename.startswith(_KERNEL)
            if is_own:
                with contextlib.suppress(RuntimeError):  # it has not ended
                    trace.tb_frame.clear()
            if not frames or not is_own:
                frames.append(trace)
            trace = trace.tb_next
        if len(frames) > MOST_FRAMES:
            left_out += len(frames) - MOST_FRAMES
            del frames[MOST_FRAMES // 2 : -MOST_FRAMES // 2]
        for one, following in zip_longest(frames, frames[1:]):
            one.tb_next = following
        error = error.__cause__ or error.__context__
    return left_out
