"""`streamkit chat`: the terminal assistant.

A model writes code, a person approves it, a computer runs it. Ctrl-C stops an answer but not the program; Ctrl-D exits.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import StreamkitError, UsageError
from ..renderers.characters import printable
from .clients import client_for
from .ctrl_c import stopped_by_ctrl_c
from .prompt import Asker, terminal_asker, wrapped
from .report import explain, renderer

if TYPE_CHECKING:
    from ..agent import Agent

__all__ = ["Chat", "run"]

_MAX_HISTORY = 1000  # lines
_INSTRUCTIONS = (
    "You are an assistant in the user's terminal. When running code helps, write it and call `execute`: it runs on the "
    "user's own machine once they approve it, and state persists between runs. Read the output before you continue. "
    "Keep answers short, and write them in Markdown."
)
_COMMANDS = {
    "/help": "list these commands",
    "/new": "start a new conversation; the computer keeps its state",
    "/save FILE": "write the conversation to a file",
    "/load FILE": "continue a saved conversation",
    "/exit": "exit, like Ctrl-D",
}


class Chat:
    """Reads lines from stdin, and shows the agent's streams.

    Args:
        agent: answers the lines.
        asker: asks the person before code runs.
    """

    def __init__(self, agent: Agent, asker: Asker) -> None:
        self._agent = agent
        self._asker = asker

    def run(self) -> int:
        """Talk until the input ends. Returns the exit code: 1 if an answer failed and stdin is not a terminal."""
        failed = False
        for line in _lines():
            if line.startswith("/"):
                if self._command(line):
                    break
            elif line.strip():
                failed = not self.answer(line) or failed
        return 1 if failed and not sys.stdin.isatty() else 0

    def answer(self, text: str) -> bool:
        """Send the person's text and show the answer. If that fails, prints the error and returns False."""
        stream = self._agent.stream(text, renderer(), self._asker)
        try:
            with stopped_by_ctrl_c(stream, self._asker), stream:
                stream.until_done()
        except StreamkitError as error:
            print(f"streamkit: {explain(error)}", file=sys.stderr, flush=True)
            return False
        if stream.status == "cancelled":
            print("(stopped)", flush=True)
        elif stream.status == "incomplete":
            run = stream.current_run
            print(printable(f"(cut short: {(run and run.finish_reason) or 'the provider gave no reason'})"), flush=True)
        return True

    def _command(self, line: str) -> bool:
        """Execute a command. Returns True if it ends the chat."""
        name, _, path = line.strip().partition(" ")
        path = os.path.expanduser(path.strip())
        try:
            match name:
                case "/exit" | "/quit":
                    return True
                case "/new":
                    self._agent.messages.clear()
                case "/save" | "/load" if not path:
                    print(f"{name} needs a file name")
                case "/save":
                    self._agent.save(path)
                case "/load":
                    self._agent.load(path)
                    number = len(self._agent.messages)
                    print(f"loaded {number} message{'' if number == 1 else 's'}")
                case _:
                    print(_help())
        except (OSError, UsageError) as error:
            print(f"streamkit: {explain(error)}", file=sys.stderr, flush=True)
        return False


def _help() -> str:
    width = max(map(len, _COMMANDS))
    return "\n".join(f"{command.ljust(width)}  {text}" for command, text in _COMMANDS.items())


# -- input


def _lines() -> Iterator[str]:
    """The lines of stdin. On a terminal, a line that ends with a backslash continues on the next."""
    if not sys.stdin.isatty():
        yield from (line.rstrip("\n") for line in sys.stdin)
        return
    with _line_history():
        while True:
            try:
                line = input("> ")
                while line.endswith("\\"):
                    line = f"{line[:-1]}\n{input('  ')}"
            except KeyboardInterrupt:
                print("\n(Ctrl-D exits)")
            except EOFError:
                print()
                return
            else:
                yield line


@contextlib.contextmanager
def _line_history() -> Generator[None]:
    """Inside of this context `input` offers editing, and the lines of this and earlier chats."""
    try:
        import readline
    except ImportError:  # Windows has none
        yield
        return
    path = _history_file()
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(_MAX_HISTORY)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the home directory may not be writable
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            readline.write_history_file(path)


def _history_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "streamkit" / "chat_history"


def run(
    *,
    model: str | None,
    base_url: str | None,
    protocol: str | None,
    auto_run: bool,
    instructions: str | None,
) -> int:
    """Run the chat. Returns the exit code.

    Args:
        model: the model's name, None for the default.
        base_url: the address of a compatible server, None for the provider's own.
        protocol: `openai_responses` or `openai_chat`; None decides by the client's address.
        auto_run: whether code runs without asking.
        instructions: the system prompt, None for the built-in one.

    Raises:
        UsageError: there is no model to talk to, or the extra that runs code is not installed.
    """
    from ..agent import Agent
    from ..computer import Computer

    client, name = client_for(model, base_url)
    with client, Computer() as computer:
        agent = Agent(
            client,
            model=name,
            computer=computer,
            instructions=_INSTRUCTIONS if instructions is None else instructions,
            auto_run=auto_run,
            protocol=protocol,
        )
        if sys.stdin.isatty():
            print(printable(f"{name} at {client.base_url}"))
            print(wrapped("/help lists the commands; Ctrl-C stops an answer, Ctrl-D exits."))
            if auto_run:
                print("Code runs without asking.")
        return Chat(agent, terminal_asker()).run()
