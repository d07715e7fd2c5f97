"""`OpenInterpreter`: the interface of Open Interpreter 0.2 to 0.4, over `streamkit.Agent`."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import anyio.to_thread

from ...agent.agent import Agent
from ...agent.computer_protocol import Computing
from ...errors import StreamkitError, UsageError
from ...events import ConfirmationCreated, Event
from ...messages import ReasoningMessage, ToolCallMessage, ToolOutputMessage
from ...protocols.open_interpreter import Encoder
from ...protocols.values import as_list, is_object
from ...renderers.characters import printable
from ...streams.api import astream
from ...streams.readers import AsyncGeneratorLoop, GeneratorLoop
from ...streams.sync import StreamManager
from .history import MessageHistory, chunks_of
from .llm import Llm
from .model_input import messages_for_model
from .settings import FIXED, check_setting, unsupported
from .terminal import display_handlers, typed_messages

if TYPE_CHECKING:
    from ...computer import Computer

__all__ = ["OpenInterpreter"]

_LEFT_OUT = (ToolCallMessage, ToolOutputMessage, ReasoningMessage)  # Open Interpreter has none of these types

_SYSTEM = (
    "You reach the user's goal by running code on the user's computer, to which the user has agreed. Plan first, then act "
    "in small steps: run a piece of code, read its output, continue. State persists between runs. If a step fails, try "
    "another way. When the goal is reached, say so in a few words."
)

_LONGEST_END = 10  # seconds
_NO_LIMIT = 1_000_000  # steps: the original has no limit


class OpenInterpreter:
    """A model that runs code on this machine, with the interface of Open Interpreter's class of this name.

    The arguments are the attributes of the same names, and may be set at any time between two chats. `with` ends the
    processes in which code ran, as `close` does.

    Attributes:
        llm: which model is used; see `Llm`.
        messages: the conversation, as plain dicts in Open Interpreter's form.
        auto_run: whether code runs without asking.
        offline: whether only a model on this machine, or at `llm.api_base`, may be used.
        system_message, custom_instructions: the system prompt, in two parts.
        max_output: characters of one run's console output that the model reads. `messages` keep all of it.
        computer: runs the code. By default a `streamkit.computer.Computer`, which is created at its first use.

    Raises:
        UsageError: on setting an attribute of the original that is not supported here, or one that does not exist.
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
        self._own_llm = None if llm is not None else self.llm  # created here, so closed here
        self.messages: list[dict[str, Any]] = [dict(message) for message in messages or ()]
        self.offline = offline
        self.auto_run: bool = auto_run
        self.max_output = max_output
        self.system_message = system_message
        self.custom_instructions = custom_instructions
        self._computer = computer
        self._own_computer: Computer | None = None  # created here, so closed here
        self._stream: StreamManager | None = None
        self._thread: threading.Thread | None = None
        self._has_ended = threading.Event()  # the newest chat
        self._error: BaseException | None = None
        self._previous = 0  # number of messages before the newest chat
        for name, value in others.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            check_setting(name, value)
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:  # called for attributes that were never set
        if name in FIXED:
            return FIXED[name]
        raise AttributeError(unsupported(name))

    @property
    def computer(self) -> Any:
        """Runs the code. One that is assigned is not closed by `reset`."""
        if self._computer is None:
            from .computer import InterpreterComputer

            self._computer = self._own_computer = InterpreterComputer()
        return self._computer

    @computer.setter
    def computer(self, computer: Computing) -> None:
        self._close_computer()
        self._computer = computer

    def reset(self) -> None:
        """Close a chat that is running, clear the conversation, and end the processes in which code ran."""
        self.close()
        self.messages = []
        self._previous = 0

    def close(self) -> None:
        """Stop a chat that is running, end the processes in which code ran, and close the connections to the model. The
        conversation stays. What was passed in is not closed.

        Leaving `with` calls it. Another chat may follow: it starts new processes.
        """
        if self._stream is not None:
            self._stream.close()
        self._close_computer()
        if self._own_llm is not None:
            self._own_llm.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _close_computer(self) -> None:
        if self._own_computer is not None:
            self._own_computer.close()
            self._computer = self._own_computer = None

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
        """Send a message and return the answer.

        Args:
            message: a text; a message, which is appended; or a list of messages, which replaces the conversation.
                Without it, a conversation whose last message is the user's is answered; otherwise, if it is displayed,
                the person at the terminal types messages until Ctrl-D, Ctrl-C or `exit`.
            display: print what happens, and ask before code runs.
            stream: return an iterator of chunks. Without `display`, pulling the chunk after a confirmation approves it;
                leaving the loop there, or closing the iterator, declines it. Closing also stops code that runs.
            blocking: False to answer in a thread; `wait()` then returns the messages.

        A streaming chat that was left before its end is ended first, and the code that it runs with it.

        Returns:
            The new messages; with `stream` the chunks; None if it does not block. With neither `stream` nor `display`
            there is no way to ask: code then runs if `auto_run` is set, and otherwise ends the answer.

        Raises:
            UsageError: a chat in a thread of its own is still running, or a setting is not supported.
            StreamkitError: the stream failed. What had arrived is in `messages`.
        """
        self._add_input(message)
        interactive = message is None and display and self._is_answered()
        if stream:
            chunks = self._converse() if interactive else self._chunks(display=display, pull_approves=True)
            return GeneratorLoop(chunks)
        if not blocking:
            self._error = None
            self._thread = threading.Thread(
                target=self._run_in_thread, args=(display, interactive), name="interpreter", daemon=True
            )
            self._thread.start()
            return None
        return self._run(display, interactive)

    def achat(self, message: Any = None, *, display: bool = False) -> AsyncGenerator[dict[str, Any], None]:
        """Send a message; the chunks of the answer, as `chat(message, stream=True)` gives them, on asyncio and trio.

            async with aclosing(interpreter.achat("What is 34/24?")) as chunks:
                async for chunk in chunks: ...

        A thread runs the answer. Leaving the loop ends it: code that runs is stopped before `aclose()` returns, as it is where
        the task is cancelled. Without `display`, pulling the chunk after a confirmation approves it.

        Args:
            message: as of `chat`; without it the conversation is answered.
            display: as of `chat`.

        Raises:
            UsageError, StreamkitError: as of `chat`.
            IncompleteStreamError: a wait for the next chunk was cancelled, which has ended the answer.
        """
        return AsyncGeneratorLoop(self._read_in_task(message, display))

    async def _read_in_task(self, message: Any, display: bool) -> AsyncGenerator[dict[str, Any], None]:
        await anyio.to_thread.run_sync(self._add_input, message)
        stream, chunks = self._begin(display=display)
        try:
            async with astream(stream) as answer:
                async for event in answer:
                    for chunk in chunks.of(event):
                        yield chunk
                    _approve(event)
        finally:
            self._has_ended.set()

    def wait(self) -> list[dict[str, Any]]:
        """Return the new messages of a chat that does not block, once it has ended.

        Raises:
            StreamkitError: the chat failed.
        """
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self.messages[self._previous :]

    def _run(self, display: bool, interactive: bool) -> list[dict[str, Any]]:
        before = self._previous
        for _ in self._converse() if interactive else self._chunks(display=display, pull_approves=False):
            pass
        return self.messages[before:]

    def _run_in_thread(self, display: bool, interactive: bool) -> None:
        try:
            self._run(display, interactive)
        except BaseException as error:  # raised by `wait`
            self._error = error

    def _is_answered(self) -> bool:
        return not self.messages or self.messages[-1].get("role") != "user"

    def _converse(self) -> Generator[dict[str, Any], None, None]:
        """Yield the chunks of a chat with the person at the terminal."""
        for line in typed_messages():
            self._add_input(line)
            try:
                yield from self._chunks(display=True, pull_approves=True)
            except KeyboardInterrupt:  # ends this answer alone
                print()
            except StreamkitError as error:
                print(f"{type(error).__name__}: {printable(str(error))}")

    def _add_input(self, message: Any) -> None:
        self._end_abandoned()
        match message:
            case None:
                pass
            case str():
                self.messages.append({"role": "user", "type": "message", "content": message})
            case _ if is_object(message):
                self.messages.append({"role": "user", **message})
            case list() | tuple():
                self.messages = [dict(one) for one in as_list(message)]
            case _:
                raise UsageError(f"chat takes a text, a message or a list of messages, not {message!r}")
        self._previous = len(self.messages)

    def _end_abandoned(self) -> None:
        """End a streaming chat that nobody reads any more, such as that of a client that has left.

        Raises:
            UsageError: a chat in a thread of its own is still running, or one could not be ended.
        """
        if self._thread is not None and self._thread.is_alive() and self._thread is not threading.current_thread():
            raise UsageError("a chat is still running in its thread: `wait()` for it, or close it")
        stream, deadline = self._stream, time.monotonic() + _LONGEST_END
        while stream is not None and not stream.ended:
            stream.close()  # in another thread's pull it only asks
            if time.monotonic() > deadline:
                raise UsageError(f"the chat before did not end within {_LONGEST_END} seconds: close it")
            self._has_ended.wait(0.05)

    def _chunks(self, *, display: bool, pull_approves: bool) -> Generator[dict[str, Any], None, None]:
        """Yield the chunks. With `pull_approves`, a confirmation that no handler answered is approved by the next
        pull."""
        stream, chunks = self._begin(display=display)
        with stream:
            try:
                for event in stream:
                    yield from chunks.of(event)
                    if pull_approves:
                        _approve(event)
            finally:
                self._has_ended.set()

    def _begin(self, *, display: bool) -> tuple[StreamManager, _ChunkMaker]:
        """Return the stream of an answer, and what makes chunks of it."""
        self._has_ended.clear()
        self._stream = stream = self._agent().stream(None, *(display_handlers() if display else ()))
        return stream, _ChunkMaker(self.messages)

    def _agent(self) -> Agent:
        client, model = self.llm.resolve(offline=self.offline)
        instructions = [self.system_message, self.custom_instructions]
        agent = Agent(
            client,
            model=model,
            computer=self.computer,
            instructions="\n\n".join(text for text in instructions if text),
            auto_run=self.auto_run,
            max_steps=_NO_LIMIT,
            output_limit=self.max_output,
            images=self.llm.supports_vision is not False,
            messages=messages_for_model(self.messages),
        )
        agent.options = self.llm.options(agent.provider.protocol)
        return agent


class _ChunkMaker:
    """Makes the chunks of an answer, and appends its messages to a conversation.

    Args:
        messages: the conversation.
    """

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self._encoder = Encoder(left_out=_LEFT_OUT)
        self._history = MessageHistory(messages)

    def of(self, event: Event) -> Iterator[dict[str, Any]]:
        """Yield the chunks that follow from the stream's next event."""
        events = [*self._encoder.in_order(event)]
        self._history.feed(events)
        for emitted in events:
            yield from chunks_of(self._encoder, emitted)


def _approve(event: Event) -> None:
    """Approve what an event asks, unless a handler has answered: its chunk was passed on, and the next one is pulled."""
    if isinstance(event, ConfirmationCreated) and event.confirmation.waiting:
        event.confirmation.approve()
