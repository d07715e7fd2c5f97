"""A handler that asks the person at the terminal before code runs.

The rule: it does not show the code. A renderer, placed before it among the stream's handlers, has done so. Every answer
but a clear yes means no.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path

from ..answers import Confirmation
from ..errors import UsageError
from ..handlers import EventHandler
from ..messages import CodeMessage, Message
from ..renderers.characters import one_line
from .keyboard import echo, is_interactive

__all__ = ["Asker", "edit", "terminal_asker", "wrapped"]

_SUFFIXES = {"python": ".py", "shell": ".sh", "javascript": ".js", "html": ".html"}
_HELP = (
    "y: run it. n: do not run it. n and a reason: do not run it, and tell the model why. e: edit it first. a: run it, and "
    "everything after it, in a chat until /ask or /new."
)
_HINT = "n and a reason: tell the model why not. ?: help."
_EDITORS = ("vi", "nano")  # where neither `VISUAL` nor `EDITOR` names one


class Asker(EventHandler):
    """Answers confirmations by asking `[y]es [n]o [e]dit [a]lways` at the terminal.

    `n` alone ends the run; `n` followed by a reason sends it to the model, which continues. `e` opens the code in the
    editor that `VISUAL` or `EDITOR` names, else in vi or nano. Ctrl-C or the end of the input means no; Ctrl-C also cancels the stream. Place
    it after the handler that shows the code:

        agent.stream("Plot a sine.", LiveDisplay(), Asker()).until_done()

    Args:
        always: answer yes without asking.
        read: reads a line after a prompt, as `input` does.

    Attributes:
        always: as the argument; the answer `a` sets it.
        asking: whether a question is open, to which Ctrl-C is an answer.
    """

    always = False
    asking = False
    _read: Callable[[str], str] = staticmethod(input)

    def __init__(self, *, always: bool = False, read: Callable[[str], str] = input) -> None:
        self.always = always
        self._read = read

    def on_confirmation(self, confirmation: Confirmation, /) -> None:
        """Ask, and answer the confirmation. A malformed one stays unanswered, and so does one where the answer cannot be
        read."""
        if confirmation.malformed:
            return
        if self.always:
            confirmation.approve()
            return
        self.asking = True
        try:
            with echo(True):
                self._ask(confirmation)
        except EOFError:
            confirmation.decline()
        except KeyboardInterrupt:
            confirmation.decline()
            self.stream.cancel()
        except UsageError:  # the answer itself was refused
            raise
        except Exception as error:  # a notebook or a service without an input raises errors of its own
            if confirmation.waiting:
                print(f"Nobody can be asked here ({type(error).__name__}: {one_line(str(error))}), so nothing runs.")
        finally:
            self.asking = False

    def _ask(self, confirmation: Confirmation) -> None:
        subject = confirmation.subject
        question = _question(subject, editable=confirmation.editable)
        print(wrapped(_HINT))
        while True:
            _discard_typed_input()
            answer = self._read(question).strip()
            word, _, reason = answer.partition(" ")
            match word.lower():
                case "y" | "yes" if not reason:  # "yes, but" is not a yes
                    return confirmation.approve()
                case "a" | "always" if not reason:
                    self.always = True
                    return confirmation.approve()
                case "n" | "no":
                    return confirmation.decline(reason.strip() or None)
                case "e" | "edit" if confirmation.editable and not reason:
                    edited = edit(subject.content, _SUFFIXES.get(subject.format or "", ".txt"), self._read)
                    if edited is not None and edited.strip() and edited.rstrip("\n") != subject.content.rstrip("\n"):
                        return confirmation.approve(edited)
                    print("Nothing was changed.")  # so ask again: looking at the code is not a yes
                case _:
                    print(wrapped(_HELP))


def terminal_asker(*, always: bool = False) -> Asker:
    """An `Asker` for the person at the terminal. Without a terminal it declines: lines of a pipe are not answers."""

    def end_of_input(question: str) -> str:
        raise EOFError

    return Asker(always=always) if is_interactive() else Asker(always=always, read=end_of_input)


def _discard_typed_input() -> None:
    """Drop what was typed before the question, such as the second line of a pasted text: it is not an answer."""
    if not is_interactive():
        return
    try:
        import termios
    except ImportError:  # Windows has none
        return
    with contextlib.suppress(termios.error):  # the terminal is gone, which reading from it will report
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def wrapped(text: str) -> str:
    """The text, wrapped to the width of the terminal."""
    return "\n".join(textwrap.wrap(text, shutil.get_terminal_size().columns, break_on_hyphens=False))


def _question(subject: Message, *, editable: bool) -> str:
    question, answers = f"Run this {_kind(subject)}?", f"[y]es [n]o {'[e]dit ' if editable else ''}[a]lways: "
    fits = len(question) + len(answers) + 10 < shutil.get_terminal_size().columns  # 10 columns for the answer
    return f"{question}{' ' if fits else chr(10)}{answers}"


def _kind(subject: Message) -> str:
    if isinstance(subject, CodeMessage):
        return one_line(subject.format or "code")
    return f"call of {one_line(subject.name or 'a tool')}"


def edit(text: str, suffix: str, read: Callable[[str], str] = input) -> str | None:
    """Let the person edit a text, in the editor that `VISUAL` or `EDITOR` names, else in vi or nano. Without an editor they
    type it anew.

    Args:
        text: what to edit.
        suffix: of the file that the editor opens, such as `.py`.
        read: reads a line after a prompt, as `input` does.

    Returns:
        The edited text; None if the editor failed, which means that nothing is to be changed.
    """
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    editor = named or next(filter(shutil.which, _EDITORS), None)
    if not editor or not sys.stdin.isatty():
        return _read_code(read)
    with tempfile.TemporaryDirectory(prefix="streamkit-") as folder:
        path = Path(folder, f"code{suffix}")
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        try:
            exit_code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
        except (OSError, ValueError) as error:
            print(f"{one_line(editor)}: {error}", file=sys.stderr)
            return _read_code(read)
        return path.read_text(encoding="utf-8", errors="surrogatepass") if exit_code == 0 else None


def _read_code(read: Callable[[str], str]) -> str:
    print("Type the code to run instead, and end it with a line that is a single dot.")
    lines: list[str] = []
    while (line := read("")) != ".":
        lines.append(line)
    return "\n".join(lines)
