"""`streamkit chat`: the terminal assistant.

A model that writes code, a person who is asked before it runs, a computer that runs it. Ctrl-C stops what is going on
and not the program; Ctrl-D leaves.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import StreamkitError, UsageError
from ..renderers.characters import printable
from ..streams.api import StreamManager
from .prompt import Asker, person, wrapped
from .report import explain, renderer

if TYPE_CHECKING:
    from ..agent import Agent

__all__ = ["Chat", "client_for", "run", "stopped_by_ctrl_c"]

MODEL = "gpt-5.4-mini"
_MAX_HISTORY = 1000  # lines
_INSTRUCTIONS = (
    "You are an assistant in a person's terminal. Where running code helps, write it and call `execute`: it runs on this "
    "person's own machine, after they agreed to it, and state lives on between runs. Look at what it printed before you "
    "go on. Keep answers short, in Markdown."
)
_COMMANDS = {
    "/help": "what can be typed",
    "/new": "forget this conversation; the computer keeps its state",
    "/save FILE": "write the conversation to a file",
    "/load FILE": "take up a conversation that was saved",
    "/exit": "leave, as Ctrl-D does",
}


class Chat:
    """Reads what is typed, and shows what the agent's streams tell.

    Args:
        agent: whom it talks to.
        asker: asks before code runs.
    """

    def __init__(self, agent: Agent, asker: Asker) -> None:
        self._agent = agent
        self._asker = asker

    def run(self) -> int:
        """Talk until the input ends. Gives the exit code: 1 where nobody sat there and an answer failed."""
        failed = False
        for line in _lines():
            if line.startswith("/"):
                if self._command(line):
                    break
            elif line.strip():
                failed = not self.answer(line) or failed
        return 1 if failed and not sys.stdin.isatty() else 0

    def answer(self, said: str) -> bool:
        """Ask the model, and show what comes. False if that failed; why was told."""
        stream = self._agent.stream(said, renderer(), self._asker)
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
            print(printable(f"(cut short: {(run and run.finish_reason) or 'no reason was given'})"), flush=True)
        return True

    def _command(self, line: str) -> bool:
        """Do what a command says. True if it says to leave."""
        name, _, path = line.strip().partition(" ")
        path = os.path.expanduser(path.strip())
        try:
            match name:
                case "/exit" | "/quit":
                    return True
                case "/new":
                    self._agent.messages.clear()
                case "/save" | "/load" if not path:
                    print(f"{name} needs the name of a file")
                case "/save":
                    self._agent.save(path)
                case "/load":
                    self._agent.load(path)
                    print(f"{len(self._agent.messages)} messages")
                case _:
                    width = max(map(len, _COMMANDS))
                    print("\n".join(f"{command.ljust(width)}  {what}" for command, what in _COMMANDS.items()))
        except (OSError, UsageError) as error:
            print(f"streamkit: {explain(error)}", file=sys.stderr, flush=True)
        return False


@contextlib.contextmanager
def stopped_by_ctrl_c(stream: StreamManager, asker: Asker | None = None) -> Generator[None]:
    """Ctrl-C stops this stream, and what runs in it, in place of the program. At a question it is the answer."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        if asker is not None and asker.asking:
            raise KeyboardInterrupt
        stream.cancel()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# -- what is typed


def _lines() -> Iterator[str]:
    """The lines that are typed, or piped in."""
    if not sys.stdin.isatty():
        yield from (line.rstrip("\n") for line in sys.stdin)
        return
    with _remembered():
        while True:
            try:
                line = input("> ")
                while line.endswith("\\"):
                    line = f"{line[:-1]}\n{input('  ')}"
            except KeyboardInterrupt:
                print("\n(Ctrl-D leaves)")
            except EOFError:
                print()
                return
            else:
                yield line


@contextlib.contextmanager
def _remembered() -> Generator[None]:
    """Lines can be edited, and those of earlier chats are there again."""
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
        with contextlib.suppress(OSError):  # a home that cannot be written to is no reason to fail
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            readline.write_history_file(path)


def _history_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "streamkit" / "chat_history"


# -- whom it talks to


def client_for(model: str | None, base_url: str | None) -> tuple[Any, str]:
    """A client, and the model's name: Anthropic's where the model is theirs, else openai's.

    Raises:
        UsageError: there is no key, and no server was named; the client is not installed.
    """
    if model is not None and model.startswith("claude") and base_url is None:
        return _anthropic(), model
    import openai

    key = os.environ.get("OPENAI_API_KEY")
    if not key and base_url is None:
        raise UsageError(
            "there is no model to talk to: set OPENAI_API_KEY, or give --base-url for a server of your own, or "
            "--model claude-… with ANTHROPIC_API_KEY set (`streamkit demo` needs none of them)"
        )
    return openai.OpenAI(base_url=base_url, api_key=key or "none", max_retries=1), model or MODEL


def _anthropic() -> Any:
    if not os.environ.get("ANTHROPIC_API_KEY"):
        raise UsageError("ANTHROPIC_API_KEY is not set")
    try:
        import anthropic
    except ImportError as error:
        raise UsageError("Claude needs the client: pip install 'streamkit-sdk[anthropic]'") from error
    return anthropic.Anthropic(max_retries=1)


def run(
    *,
    model: str | None,
    base_url: str | None,
    protocol: str | None,
    auto_run: bool,
    instructions: str | None,
) -> int:
    """Talk. Gives the exit code.

    Raises:
        UsageError: there is nobody to talk to, or what runs code is not installed.
    """
    from ..agent import Agent
    from ..computer import Computer

    client, name = client_for(model, base_url)
    names = {"responses": "openai_responses", "chat": "openai_chat", None: None}
    with client, Computer() as computer:
        agent = Agent(
            client,
            model=name,
            computer=computer,
            instructions=_INSTRUCTIONS if instructions is None else instructions,
            auto_run=auto_run,
            protocol=names[protocol],
        )
        if sys.stdin.isatty():
            print(printable(f"{name} at {client.base_url}"))
            print(wrapped("/help tells what can be typed; Ctrl-C stops an answer, Ctrl-D leaves."))
            if auto_run:
                print("Code runs without asking.")
        return Chat(agent, person()).run()
