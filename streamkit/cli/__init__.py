"""The command line: `streamkit demo`, `streamkit chat`, `streamkit serve`, `streamkit replay`,
`streamkit convert`, `streamkit mock` and `streamkit doctor`.

A failure is one line on stderr. Exit codes: 1 the stream failed, 2 the caller made a mistake, 130 Ctrl-C, 141 the reader
of stdout left.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence

from ..errors import StreamkitError, UsageError
from .commands import parser
from .report import explain

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        argv: the arguments; by default those of this process.

    Returns:
        The exit code.

    Raises:
        SystemExit: from argparse, after `--help`, and for arguments that it cannot parse.
    """
    output: object = sys.stdout
    if output is None:  # stdout was closed before Python started
        return _fail("cannot write: stdout is closed", 1)
    if isinstance(output, io.TextIOWrapper):
        output.reconfigure(errors="backslashreplace")
    try:
        return _run(argv)
    except KeyboardInterrupt:
        _discard_output()
        return 130
    except BrokenPipeError:
        _discard_output()
        return 141
    except (StreamkitError, OSError) as error:
        _discard_output()
        return _fail(explain(error), 2 if isinstance(error, UsageError) else 1)


def _run(argv: Sequence[str] | None) -> int:
    arguments_parser = parser()
    try:
        arguments = arguments_parser.parse_args(argv)
        if not hasattr(arguments, "run"):
            arguments_parser.print_help()
            return 0
        code: int = arguments.run(arguments)
        return code
    finally:
        if sys.exc_info()[0] in (None, SystemExit):
            sys.stdout.flush()  # so that a failure to write is reported here, not by Python at exit


def _discard_output() -> None:
    """Make sure that buffered output which cannot be written does not fail again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(text: str, code: int) -> int:
    error: object = sys.stderr
    if error is not None:  # with `file=None`, `print` would write to stdout
        with contextlib.suppress(OSError):
            print(f"streamkit: {text}", file=sys.stderr, flush=True)
    return code
