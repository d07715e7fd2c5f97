"""MemGPT's streaming terminals: they print a model's answer while it arrives.

The rule: what was printed is not printed again (MemGPT's refreshing terminal redrew everything for each token). Each
kind of text has its own label, each call its closing parenthesis, and an empty piece has no label.
"""

from __future__ import annotations

from datetime import datetime

from ...handlers import Handler
from ...messages import Message, ReasoningMessage, TextMessage, ToolCallMessage
from ...renderers.console import ConsolePrinter
from ...renderers.printing import Label, Style, memgpt, memgpt_fancy
from .arguments import FunctionArgumentsStreamHandler
from .interfaces import AgentChunkStreamingInterface, AgentRefreshStreamingInterface
from .memgpt_format import FormattedLine
from .normalise import FunctionCall, calls_of, get, items_of, text_of
from .push_stream import PushedMessage, PushStream, require_sync
from .terminal import TerminalLines, put

__all__ = ["StreamingCLIInterface", "StreamingRefreshCLIInterface"]


class _ChunkLabels:
    """The labels of `StreamingCLIInterface`: an answer's text is inner thoughts, because texts to the user are calls. A call
    that follows another one has its name alone."""

    def __init__(self) -> None:
        self.follows_call = False

    def __call__(self, message: Message, text: str, name: str) -> Label:
        """Return the label of a message; see `Style`."""
        follows_call, self.follows_call = self.follows_call, isinstance(message, ToolCallMessage)
        if isinstance(message, TextMessage) and message.role == "assistant":
            return memgpt(ReasoningMessage(), text, name)
        return memgpt_fancy(message, text, name) if follows_call and self.follows_call else memgpt(message, text, name)


def _fancy_label(message: Message, text: str, name: str) -> Label:
    return Label("") if message.type == "output" else memgpt_fancy(message, text, name)


def _plain_label(message: Message, text: str, name: str) -> Label:
    if message.type == "reasoning":
        return Label("[inner thoughts] ", patient=True)
    return _fancy_label(message, text, name)._replace(colour="")


def _printer(style: Style) -> Handler:
    return ConsolePrinter(style=style, run_end=False, warnings=False)


class StreamingCLIInterface(TerminalLines, AgentChunkStreamingInterface):
    """Prints chunks as they arrive: `Inner thoughts: …`, `Calling function: name(arguments)`.

    Args:
        renderer: A handler that gets the answer's events instead of the printer, such as `LiveDisplay()`. It must do
            without `self.stream`. Its `on_end` is called at the end of each answer.

    Raises:
        UsageError: The renderer has async hooks.
    """

    def __init__(self, *, renderer: Handler | None = None) -> None:
        self._labels = _ChunkLabels()
        self._renderer = require_sync(renderer if renderer is not None else _printer(self._labels))
        self._stream: PushStream | None = None

    def process_chunk(self, chunk: object, message_id: str = "", message_date: datetime | None = None) -> None:
        """Print a Chat Completions chunk. Its id and its time are not used."""
        if self._stream is None:
            self._stream = PushStream(self._renderer)
        self._stream.push_chunk(chunk)

    def stream_start(self) -> None:
        """An answer begins, on a new line."""
        self._start_line()

    def stream_end(self) -> None:
        """The answer is complete; its line ends."""
        self._start_line()

    def _start_line(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.end()
        self._labels.follows_call = False


class StreamingRefreshCLIInterface(TerminalLines, AgentRefreshStreamingInterface):
    """Prints what each refresh adds: `💭 …`, `🤖 …` for `send_message`, `name(arguments)` for other calls.

    Args:
        fancy: Print thoughts in italics after an emoji; otherwise as `[inner thoughts] …`.
        separate_send_message: Print a call of `send_message` as the text that it sends. Then `assistant_message` prints
            nothing, because it gets the same text again.
        disable_inner_mono_call: Let `internal_monologue` print nothing, because the answer had the same text.
        renderer: As in `StreamingCLIInterface`.

    Raises:
        UsageError: The renderer has async hooks.
    """

    def __init__(
        self,
        fancy: bool = True,
        separate_send_message: bool = True,
        disable_inner_mono_call: bool = True,
        *,
        renderer: Handler | None = None,
    ) -> None:
        self.fancy = fancy
        self.streaming = True
        self.separate_send_message = separate_send_message
        self.disable_inner_mono_call = disable_inner_mono_call
        self._options = (separate_send_message, disable_inner_mono_call)
        self._spaced = renderer is None
        self._renderer = require_sync(
            renderer if renderer is not None else _printer(_fancy_label if fancy else _plain_label)
        )
        self._answer: _StreamedAnswer | None = None

    def toggle_streaming(self, on: bool) -> None:
        """Off: answers are not printed, and the other methods print everything they get. On: the options of the
        constructor apply again."""
        if not on:
            self.stream_end()
        self.streaming = on
        self.separate_send_message, self.disable_inner_mono_call = self._options if on else (False, False)

    def stream_start(self) -> None:
        """An answer begins, after an empty line."""
        self._start_line()
        if self.streaming:
            self._space()

    def process_refresh(self, response: object) -> None:
        """Print what a Chat Completions answer has more than it had at the last refresh."""
        choices = items_of(get(response, "choices"))
        if choices and self.streaming:
            self._current_answer().refresh(get(choices[0], "message"), separate=self.separate_send_message)

    def update_output(self, content: str) -> None:
        """Print a text of the caller, replacing the one before. Markup such as `[bold]` is printed unchanged."""
        if self.streaming:
            self._current_answer().push_output(content)

    def stream_end(self) -> None:
        """The answer is complete; an empty line follows."""
        if self._answer is not None:
            self._start_line()
            self._space()

    def internal_monologue(self, msg: str, msg_obj: object | None = None) -> None:
        """As `CLIInterface.internal_monologue`, unless `disable_inner_mono_call` is set."""
        if not self.disable_inner_mono_call:
            super().internal_monologue(msg, msg_obj)

    def assistant_message(self, msg: str, msg_obj: object | None = None) -> None:
        """As `CLIInterface.assistant_message`, unless `separate_send_message` is set."""
        if not self.separate_send_message:
            super().assistant_message(msg, msg_obj)

    def _current_answer(self) -> _StreamedAnswer:
        if self._answer is None:
            self._answer = _StreamedAnswer(PushStream(self._renderer))
        return self._answer

    def _space(self) -> None:
        if self._spaced:
            put([FormattedLine("")])

    def _start_line(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.end()


class _SentSoFar:
    """A text that is passed in full each time. What it has more than before is pushed."""

    def __init__(self, stream: PushStream, header: Message) -> None:
        self._stream = stream
        self._message = PushedMessage(header)
        self._text = ""

    def begin(self) -> None:
        """Push the message without text."""
        self._stream.push_text(self._message, "")

    def update(self, text: str) -> None:
        """Push what is new. A text that does not continue the one before replaces it."""
        before, self._text = self._text, text
        if text.startswith(before):
            if len(text) > len(before):
                self._stream.push_text(self._message, text[len(before) :])
        else:
            self._stream.push_text(self._message, text, replace=True)


class _StreamedAnswer:
    """The messages of one answer: thoughts, calls, and the caller's own output."""

    def __init__(self, stream: PushStream) -> None:
        self._stream = stream
        self._thoughts = _SentSoFar(stream, ReasoningMessage("thoughts"))
        self._output = _SentSoFar(stream, Message("output", type="output"))
        self._calls: dict[int, _AnswerCall] = {}
        self._incomplete_names: dict[int, FunctionCall] = {}  # calls without arguments: more of their names may follow

    def refresh(self, message: object, *, separate: bool) -> None:
        """Push what a message has more than before. `separate`: `send_message` calls are pushed as text."""
        self._thoughts.update(text_of(get(message, "content")) or "")
        for position, call in enumerate(calls_of(message)):
            pushed = self._calls.get(position)
            if pushed is None and not (call.name and call.arguments):
                self._incomplete_names[position] = call
                continue
            if pushed is None:
                self._incomplete_names.pop(position, None)
                pushed = self._calls[position] = _AnswerCall(self._stream, call, position, separate=separate)
            pushed.update(call.arguments or "")

    def push_output(self, text: str) -> None:
        """Push the caller's own text."""
        self._output.update(text)

    def end(self) -> None:
        """Push the calls that never had arguments, and end the stream."""
        for position, call in self._incomplete_names.items():
            if call.name:
                _AnswerCall(self._stream, call, position, separate=False)
        self._stream.end()


class _AnswerCall:
    """A call of an answer, pushed as the text that it sends (`separate`, for `send_message`) or with its arguments."""

    def __init__(self, stream: PushStream, call: FunctionCall, position: int, *, separate: bool) -> None:
        self._text_reader = FunctionArgumentsStreamHandler() if separate and call.name == "send_message" else None
        self._arguments = ""
        self._text = ""
        header = (
            TextMessage(f"text-{position}")
            if self._text_reader is not None
            else ToolCallMessage(f"call-{position}", name=call.name, provider_executed=True)
        )
        self._growing = _SentSoFar(stream, header)
        if self._text_reader is None:
            self._growing.begin()

    def update(self, arguments: str) -> None:
        """Push what is new in the call's arguments."""
        if self._text_reader is None:
            self._growing.update(arguments)
            return
        if not arguments.startswith(self._arguments):
            self._text_reader.reset()
            self._arguments = self._text = ""
        piece = self._text_reader.process_json_chunk(arguments[len(self._arguments) :])
        self._arguments = arguments
        if piece:
            self._text += piece
            self._growing.update(self._text)
