"""`OpenInterpreter`: the interface of Open Interpreter 0.2 to 0.4, over `streamkit.Agent`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast, overload

from ...agent.agent import Agent
from ...agent.code import CODE_TOOL
from ...agent.computer_protocol import Computing
from ...errors import UsageError
from ...events import ConfirmationCreated
from ...protocols.open_interpreter import Encoder
from ...streams.sync import StreamManager
from .flat_chunks import Flat
from .history import Kept, chunks_of
from .llm import Llm
from .model_input import readable
from .terminal import displays

__all__ = ["OpenInterpreter"]

_SYSTEM = (
    "You run code on the user's computer to reach the user's goal; the user has agreed to that. Plan first, then act in "
    "small steps: run a piece of code, look at what it printed, go on. State is kept between runs. If a step fails, look "
    "for another way. When the goal is reached, say so in a few words."
)

# What the original has and is not served: nothing but this value can be set.
_FIXED: dict[str, Any] = {
    "safe_mode": "off",
    "loop": False,
    "os": False,
    "speak_messages": False,
    "import_skills": False,
    "import_computer_api": False,
    "conversation_history": False,
    "sync_computer": False,
    "contribute_conversation": False,
    "max_budget": None,
}
# What the original has and changes nothing here, whatever it is.
_IGNORED = frozenset(
    (
        *("verbose", "debug", "disable_telemetry", "anonymous_telemetry", "in_terminal_interface", "multi_line"),
        *("plain_text_display", "highlight_active_line", "shrink_images"),
    )
)


class OpenInterpreter:
    """A model that runs code on this machine, as Open Interpreter's class of this name.

    Attributes:
        llm: which model is asked; see `Llm`.
        messages: the conversation, as plain dicts in Open Interpreter's form. It can be assigned.
        auto_run: run code without asking.
        offline: ask no model but one that `llm.api_base` says.
        system_message, custom_instructions: what the model is told first.
        max_output: characters of what code printed that the model is told. `messages` keep all of it.
        computer: what runs the code: a `streamkit.computer.Computer`, made when it is first wanted, with that class's own
            methods; it can be assigned.

    Setting what the original has and this has not raises `UsageError`.
    """

    def __init__(
        self,
        messages: Sequence[Mapping[str, Any]] | None = None,
        offline: bool = False,
        auto_run: bool = False,
        max_output: int = 2800,
        system_message: str = _SYSTEM,
        custom_instructions: str = "",
        llm: Llm | None = None,
        computer: Computing | None = None,
        **others: Any,
    ) -> None:
        self.llm = llm or Llm()
        self.messages: list[dict[str, Any]] = [dict(message) for message in messages or ()]
        self.offline = offline
        self.auto_run: bool = auto_run
        self.max_output = max_output
        self.system_message = system_message
        self.custom_instructions = custom_instructions
        self._computer = computer
        self._owned = False  # whether the computer was made here
        self._stream: StreamManager | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._before = 0  # messages before the newest chat
        for name, value in others.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and value != _FIXED[name]:
            raise UsageError(f"interpreter.{name} = {value!r} is not served here; it is {_FIXED[name]!r}")
        if not (name.startswith("_") or name in _KNOWN or name in _FIXED or name in _IGNORED):
            raise UsageError(f"interpreter.{name} is not served here; there are: {', '.join(sorted(_KNOWN))}")
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:  # asked for what is not there
        if name in _FIXED:
            return _FIXED[name]
        raise AttributeError(f"interpreter.{name} is not served here; there are: {', '.join(sorted(_KNOWN))}")

    @property
    def computer(self) -> Any:
        """What runs the code."""
        if self._computer is None:
            from ...computer import Computer

            self._computer, self._owned = cast("Computing", Computer()), True
        return self._computer

    @computer.setter
    def computer(self, computer: Computing) -> None:
        self._close_computer()
        self._computer, self._owned = computer, False

    def reset(self) -> None:
        """Forget the conversation and all state of the computer's languages."""
        if self._stream is not None:
            self._stream.close()
        self.messages = []
        self._before = 0
        self._close_computer()

    def _close_computer(self) -> None:
        if self._owned and self._computer is not None:
            cast("Any", self._computer).close()
            self._computer, self._owned = None, False

    # -- chat

    @overload
    def chat(
        self, message: Any = None, display: bool = True, stream: Literal[False] = False, blocking: bool = True
    ) -> list[dict[str, Any]]: ...
    @overload
    def chat(
        self, message: Any = None, display: bool = True, *, stream: Literal[True], blocking: bool = True
    ) -> Iterator[dict[str, Any]]: ...
    def chat(self, message: Any = None, display: bool = True, stream: bool = False, blocking: bool = True) -> Any:
        """Say something and have it answered.

        Args:
            message: a text; a message, which is appended; or a list of messages, which takes the conversation's place.
                Without it the conversation goes on as it is.
            display: print what happens, and ask before code runs.
            stream: give the chunks, one after the other. Without `display`, going on past a confirmation chunk lets the
                code run; leaving the loop there, or closing the iterator, does not, and closing it stops what runs.
            blocking: False: answer in a thread; `wait()` gives the messages.

        Returns:
            The new messages, or with `stream` the chunks. Without either `stream` or `display` nobody can be asked:
            code then runs with `auto_run` alone, and else ends the answer.

        Raises:
            UsageError: another chat is going on, or what was set is not served.
            StreamkitError: as the stream failed. What had arrived is in `messages`.
        """
        self._say(message)
        if stream:
            return self._chunks(display=display, ask=True)
        if not blocking:
            self._error = None
            self._thread = threading.Thread(target=self._run_aside, args=(display,), name="interpreter", daemon=True)
            self._thread.start()
            return None
        return self._run(display=display)

    def wait(self) -> list[dict[str, Any]]:
        """The new messages of a chat that is not blocking, when it is over. Raises as that chat."""
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self.messages[self._before :]

    def _run(self, *, display: bool) -> list[dict[str, Any]]:
        for _ in self._chunks(display=display, ask=False):
            pass
        return self.messages[self._before :]

    def _run_aside(self, display: bool) -> None:
        try:
            self._run(display=display)
        except BaseException as error:  # raised by `wait`
            self._error = error

    def _say(self, message: Any) -> None:
        if self._stream is not None and not self._stream.ended:
            raise UsageError("a chat is going on: run it to its end, or close it")
        match message:
            case None:
                pass
            case str():
                self.messages.append({"role": "user", "type": "message", "content": message})
            case Mapping():
                self.messages.append({"role": "user", **cast("Mapping[str, Any]", message)})
            case list() | tuple():
                self.messages = [dict(one) for one in cast("list[Mapping[str, Any]]", message)]
            case _:
                raise UsageError(f"a chat begins with a text, a message or a list of messages, not {message!r}")
        self._before = len(self.messages)

    def _chunks(self, *, display: bool, ask: bool) -> Iterator[dict[str, Any]]:
        """The chunks. With `ask`, and nobody asked on the terminal, going on is the answer."""
        agent = self._agent()
        self._stream = stream = agent.stream(None, *(displays() if display else ()))
        flat, kept, encoder = Flat(CODE_TOOL), Kept(self.messages), Encoder()
        with stream:
            for event in stream:
                told = [*flat.feed(event)]
                kept.feed(told)
                for one in told:
                    yield from chunks_of(encoder, one)
                if ask and isinstance(event, ConfirmationCreated) and event.confirmation.waiting:
                    event.confirmation.approve()

    def _agent(self) -> Agent:
        client, model = self.llm.resolve(offline=self.offline)
        said = [self.system_message, self.custom_instructions]
        agent = Agent(
            client,
            model=model,
            computer=self.computer,
            instructions="\n\n".join(text for text in said if text),
            auto_run=self.auto_run,
            max_steps=_NO_LIMIT,
            output_limit=self.max_output,
            images=self.llm.supports_vision is not False,
            messages=readable(self.messages),
        )
        agent.options = self.llm.options(agent.provider.protocol)
        return agent


_NO_LIMIT = 1_000_000  # of rounds; the original has none
_KNOWN = frozenset(
    (
        *("llm", "messages", "offline", "auto_run", "max_output", "system_message", "custom_instructions"),
        *("computer", "reset", "chat", "wait"),
    )
)
