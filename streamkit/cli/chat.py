"""`streamkit chat`: the terminal assistant.

A model writes code, a person approves it, a computer runs it. Ctrl-C stops an answer but not the program; Ctrl-D exits.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import StreamkitError, UsageError
from ..messages import Message
from ..renderers.characters import one_line, printable
from .clients import client_for, computer_here
from .ctrl_c import stopped_by_ctrl_c
from .keyboard import echo, lines
from .prompt import Asker, terminal_asker, wrapped
from .report import explain, picture_folder, renderer

if TYPE_CHECKING:
    from ..agent import Agent
__all__ = ["Chat", "instructions_for", "run"]

_ROLE = "You are an assistant on the user's own machine. "
_TOOL = (
    "When running code helps, write it and call `execute`: it runs on the user's own machine once they approve it, and "
    "state persists between runs. Read the output before you continue. "
)
_STYLE = "Keep answers short, and write them in Markdown."
_COMMANDS = {
    "/help": "list these commands",
    "/new": "new conversation, code asks again; the computer keeps its state",
    "/undo": "forget the last question and its answer; what ran has run",
    "/ask": "ask before code runs again, after [a]lways",
    "/save FILE": "write the conversation to a file",
    "/load FILE": "continue a saved conversation",
    "/exit": "exit, like Ctrl-D",
}


def instructions_for(has_computer: bool) -> str:
    """The built-in system prompt, of a model that can run code or cannot."""
    return _ROLE + (_TOOL if has_computer else "") + _STYLE


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
        for line in lines(self._prompt):
            if line.startswith("/") and "\n" not in line:
                if self._command(line):
                    break
            elif line.strip():
                failed = not self.answer(line) or failed
        return 1 if failed and not sys.stdin.isatty() else 0

    def _prompt(self) -> str:
        return "always runs code > " if self._asker.always else "> "

    def answer(self, text: str) -> bool:
        """Send the person's text and show the answer. If that fails, prints the error and returns False."""
        stream = self._agent.stream(text, renderer(picture_folder(), cut_off=False), self._asker)
        try:
            with echo(False), stopped_by_ctrl_c(stream, self._asker), stream:
                stream.until_done()
        except StreamkitError as error:
            print(f"streamkit: {explain(error)}", file=sys.stderr, flush=True)
            if sys.stdin.isatty():
                print("(/undo takes the question back)", flush=True)
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
                    self._asker.always = False
                case "/ask":
                    self._asker.always = False
                case "/undo":
                    print(_undone(self._agent.undo()))
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


def _undone(messages: Sequence[Message]) -> str:
    """Return the line to print about a turn that was taken out of the conversation."""
    if not messages:
        return "there is nothing to undo"
    text = one_line(messages[0].content)
    return f"forgotten: {text[:60]}{'…' if len(text) > 60 else ''}"


def _help() -> str:
    width = max(map(len, _COMMANDS))
    return "\n".join(f"{command.ljust(width)}  {text}" for command, text in _COMMANDS.items())


def run(
    *,
    model: str | None,
    base_url: str | None,
    protocol: str | None,
    auto_run: bool,
    images: bool,
    instructions: str | None,
) -> int:
    """Run the chat. Returns the exit code.

    Args:
        model: the model's name, None for the default.
        base_url: the address of a compatible server, None for the provider's own.
        protocol: `openai_responses` or `openai_chat`; None decides by the client's address.
        auto_run: whether code runs without asking.
        images: whether the model takes images.
        instructions: the system prompt, None for the built-in one.

    Raises:
        UsageError: there is no model to talk to, or the extra that runs code is not installed. Where code cannot run at
            all, because the system is not a POSIX one, the chat goes without.
    """
    from ..agent import Agent

    client, name = client_for(model, base_url)
    with client, computer_here() or contextlib.nullcontext() as computer:
        agent = Agent(
            client,
            model=name,
            computer=computer,
            instructions=instructions if instructions is not None else instructions_for(computer is not None),
            auto_run=auto_run,
            images=images,
            protocol=protocol,
        )
        if sys.stdin.isatty():
            print(printable(f"{name} at {client.base_url}"))
            print(wrapped("/help lists the commands; Ctrl-C stops an answer, Ctrl-D exits."))
            if computer is None:
                print(wrapped("Code cannot run here: that needs a POSIX system, such as Linux, macOS or WSL."))
            elif auto_run:
                print("Code runs without asking.")
        return Chat(agent, terminal_asker()).run()
