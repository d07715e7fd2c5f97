"""The keyboard: the lines that a person types or pastes, and keys that are pressed while an answer is shown.

Lines are read by prompt_toolkit, which takes a pasted text of several lines as one, edits, and has a history, on every
system. It comes with IPython, so with the extra `computer`. Without it, a line is what `input` reads.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

__all__ = ["echo", "is_interactive", "line_reader", "lines"]


def is_interactive() -> bool:
    """Whether a person can be asked: stdin and stdout are both a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


_LONGEST_HISTORY = 1_000_000  # bytes


@contextlib.contextmanager
def echo(on: bool) -> Generator[None]:
    """Inside of this context the terminal shows the keys that are pressed, or does not: those that are pressed while an
    answer is shown would stand in its middle. They are not lost: the next line begins with them."""
    try:
        import termios
    except ImportError:  # Windows has none
        yield
        return
    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (termios.error, OSError, ValueError, AttributeError):  # stdin is no terminal, or there is none
        yield
        return
    now = [*before]
    now[3] = before[3] | termios.ECHO if on else before[3] & ~termios.ECHO
    try:
        termios.tcsetattr(descriptor, termios.TCSANOW, now)
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal is gone, which reading from it will report
            termios.tcsetattr(descriptor, termios.TCSANOW, before)


def lines(prompt: Callable[[], str]) -> Iterator[str]:
    """Yield the person's texts, up to Ctrl-D. A line that ends with a backslash continues on the next; a pasted text is one.

    Args:
        prompt: returns what stands before the line.
    """
    if not sys.stdin.isatty():
        yield from (line.rstrip("\n") for line in sys.stdin)
        return
    read = line_reader()
    while True:
        try:
            line = read(prompt())
            while line.endswith("\\"):
                line = f"{line[:-1]}\n{read('  ')}"
        except KeyboardInterrupt:
            print("\n(Ctrl-D exits)" if read is input else "(Ctrl-D exits)")
        except EOFError:
            print()
            return
        else:
            yield line


def line_reader() -> Callable[[str], str]:
    """The function that reads a line after a prompt, as `input` does."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return input
    try:
        from platformdirs import user_state_path
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory, History, InMemoryHistory
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    except ImportError:
        return input
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def add_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    history: History = InMemoryHistory()
    path = user_state_path("streamkit", appauthor=False) / "chat_history"
    with contextlib.suppress(OSError):  # the home directory may not be writable
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        _bound(path)
        history = FileHistory(str(path))
    session: PromptSession[str] = PromptSession(history=history, key_bindings=keys)
    return session.prompt


def _bound(path: Path) -> None:
    """Forget the older half of a history that has grown long."""
    if path.stat().st_size > _LONGEST_HISTORY:
        content = path.read_bytes()
        path.write_bytes(content[content.find(b"\n#", len(content) // 2) :])  # an entry begins with its time
