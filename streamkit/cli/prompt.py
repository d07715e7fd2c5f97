"""Asking the person at the terminal before code runs.

The rule: what asks shows nothing itself. The code was shown by a renderer, which stands before this handler on the
stream; here it is only asked about, and whatever is not a yes is a no.
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
from ..handlers import EventHandler
from ..messages import CodeMessage, Message
from ..renderers.characters import one_line

__all__ = ["Asker", "edit", "person", "somebody_there", "wrapped"]

_SUFFIXES = {"python": ".py", "shell": ".sh", "javascript": ".js", "html": ".html"}
_HELP = (
    "y: run it. n: do not. n and a text: do not, and the model is told why. e: change it first. a: run all from now on."
)


class Asker(EventHandler):
    """Asks `[y]es [n]o [e]dit [a]lways` where something wants to run.

    `n` alone ends the run; `n` with a text after it tells the model why, and it goes on. Ctrl-C at the question is a no
    that stops the stream.

    Args:
        always: answer yes without asking; `a` sets it.
        read: asks for a line, as `input` does.

    Attributes:
        asking: whether somebody is being asked now: Ctrl-C then is an answer.
    """

    always = False
    asking = False
    _read: Callable[[str], str] = staticmethod(input)

    def __init__(self, *, always: bool = False, read: Callable[[str], str] = input) -> None:
        self.always = always
        self._read = read

    def on_confirmation(self, confirmation: Confirmation, /) -> None:
        if confirmation.malformed:
            return
        if self.always:
            confirmation.approve()
            return
        self.asking = True
        try:
            self._ask(confirmation)
        except EOFError:
            confirmation.decline()
        except KeyboardInterrupt:
            confirmation.decline()
            self.stream.cancel()
        finally:
            self.asking = False

    def _ask(self, confirmation: Confirmation) -> None:
        subject = confirmation.subject
        question = _question(subject, editable=confirmation.editable)
        while True:
            _forget_typed()
            answer = self._read(question).strip()
            word, _, reason = answer.partition(" ")
            match word.lower():
                case "y" | "yes" if not reason:  # "yes, but" is none
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
                    print("Nothing was changed.")  # to have looked at it is no yes
                case _:
                    print(wrapped(_HELP))


def somebody_there() -> bool:
    """Whether a person can be asked: both ends are a terminal's."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def person(*, always: bool = False) -> Asker:
    """Who is asked: the person at the terminal. Where nobody is, the answer is no; a line from a pipe is no answer."""

    def nobody(question: str) -> str:
        raise EOFError

    return Asker(always=always) if somebody_there() else Asker(always=always, read=nobody)


def _forget_typed() -> None:
    """What was typed before the question, as the second line of a pasted text, is no answer to it."""
    if not somebody_there():
        return
    try:
        import termios
    except ImportError:  # Windows has none
        return
    with contextlib.suppress(termios.error):  # a terminal that went away: reading will tell
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def wrapped(text: str) -> str:
    """The text in lines that a terminal does not cut."""
    return "\n".join(textwrap.wrap(text, shutil.get_terminal_size().columns, break_on_hyphens=False))


def _question(subject: Message, *, editable: bool) -> str:
    what, answers = f"Run this {_kind(subject)}?", f"[y]es [n]o {'[e]dit ' if editable else ''}[a]lways: "
    fits = len(what) + len(answers) + 10 < shutil.get_terminal_size().columns  # with room for an answer
    return f"{what}{' ' if fits else chr(10)}{answers}"


def _kind(subject: Message) -> str:
    if isinstance(subject, CodeMessage):
        return one_line(subject.format or "code")
    return f"call of {one_line(subject.name or 'a tool')}"


def edit(text: str, suffix: str, read: Callable[[str], str] = input) -> str | None:
    """This text as the person changed it, None if they gave it up. In the editor that `VISUAL` or `EDITOR` names; where
    none does, it is typed anew, up to a line with a dot alone."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor or not sys.stdin.isatty():
        return _typed(read)
    with tempfile.TemporaryDirectory(prefix="streamkit-") as folder:
        path = Path(folder, f"code{suffix}")
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        try:
            ended = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
        except (OSError, ValueError) as error:
            print(f"{one_line(editor)}: {error}", file=sys.stderr)
            return _typed(read)
        return path.read_text(encoding="utf-8", errors="surrogatepass") if ended == 0 else None


def _typed(read: Callable[[str], str]) -> str:
    print("Type the code that shall run in its place. A line with a dot alone ends it.")
    lines: list[str] = []
    while (line := read("")) != ".":
        lines.append(line)
    return "\n".join(lines)
