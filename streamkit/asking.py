"""Asking the person at the terminal before code runs.

The rule: what asks shows nothing itself. The code was shown by a renderer, which stands before this handler on the
stream; here it is only asked about, and whatever is not a yes is a no.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from .answers import Confirmation
from .handlers import EventHandler
from .messages import CodeMessage, Message
from .renderers.characters import one_line

__all__ = ["Asker", "edit", "person", "somebody_there"]

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
        editable = "[e]dit " if confirmation.editable else ""
        while True:
            answer = self._read(f"Run this {_kind(subject)}? [y]es [n]o {editable}[a]lways: ").strip()
            word, _, reason = answer.partition(" ")
            match word.lower():
                case "y" | "yes":
                    return confirmation.approve()
                case "a" | "always":
                    self.always = True
                    return confirmation.approve()
                case "n" | "no":
                    return confirmation.decline(reason.strip() or None)
                case "e" | "edit" if confirmation.editable:
                    edited = edit(subject.content, _SUFFIXES.get(subject.format or "", ".txt"), self._read)
                    if edited is not None:
                        return confirmation.approve(edited)
                case _:
                    print(_HELP)


def somebody_there() -> bool:
    """Whether a person can be asked: both ends are a terminal's."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def person(*, always: bool = False) -> Asker:
    """Who is asked: the person at the terminal. Where nobody is, the answer is no; a line from a pipe is no answer."""

    def nobody(question: str) -> str:
        raise EOFError

    return Asker(always=always) if somebody_there() else Asker(always=always, read=nobody)


def _kind(subject: Message) -> str:
    if isinstance(subject, CodeMessage):
        return one_line(subject.format or "code")
    return f"call of {one_line(subject.name or 'a tool')}"


def edit(text: str, suffix: str, read: Callable[[str], str] = input) -> str | None:
    """This text as the person changed it, None if they gave it up. In the editor that `VISUAL` or `EDITOR` names; where
    none does, it is typed anew, up to a line with a dot alone."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if editor is None or not sys.stdin.isatty():
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
