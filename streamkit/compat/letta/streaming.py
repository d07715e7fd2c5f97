"""MemGPT's streaming terminals: they print along what a model's answer says.

What is printed stays as it is; MemGPT's refreshing terminal drew all of it again for each token. Where one kind of text
follows another, each has its own label, and each call its closing parenthesis; an empty piece has no label.
"""

from __future__ import annotations

from datetime import datetime

from ...handlers import Handler
from ...messages import Message, ReasoningMessage, TextMessage, ToolCallMessage
from ...renderers.console import ConsolePrinter
from ...renderers.labels import Label, Style, memgpt, memgpt_fancy
from .arguments import FunctionArgumentsStreamHandler
from .interfaces import AgentChunkStreamingInterface, AgentRefreshStreamingInterface
from .memgpt_format import Line
from .normalise import Call, calls_of, get, items_of, text_of
from .push_stream import Part, Telling, told_here
from .terminal import TerminalLines, put

__all__ = ["StreamingCLIInterface", "StreamingRefreshCLIInterface"]


def _along(message: Message, text: str, name: str) -> Label:
    """`Inner thoughts: ` is what MemGPT's models answer with; what they say to the user is a call."""
    if isinstance(message, TextMessage) and message.role == "assistant":
        return memgpt(ReasoningMessage(), text, name)
    return memgpt(message, text, name)


def _fancy(message: Message, text: str, name: str) -> Label:
    return Label("") if message.type == "output" else memgpt_fancy(message, text, name)


def _sober(message: Message, text: str, name: str) -> Label:
    if message.type == "reasoning":
        return Label("[inner thoughts] ", patient=True)
    return _fancy(message, text, name)._replace(colour="")


def _printer(style: Style) -> Handler:
    return ConsolePrinter(style=style, run_end=False, warnings=False)


class StreamingCLIInterface(TerminalLines, AgentChunkStreamingInterface):
    """Prints chunks as they come: `Inner thoughts: …`, `Calling function: name(arguments)`.

    Args:
        renderer: who is told the answer in the place of the printer: any handler that does without `self.stream`, as
            `LiveDisplay()`. Its `on_end` is called at the end of each answer.
    """

    def __init__(self, *, renderer: Handler | None = None) -> None:
        self._renderer = told_here(renderer if renderer is not None else _printer(_along))
        self._telling: Telling | None = None

    def process_chunk(self, chunk: object, message_id: str = "", message_date: datetime | None = None) -> None:
        if self._telling is None:
            self._telling = Telling(self._renderer)
        self._telling.chunk(chunk)

    def stream_start(self) -> None:
        self._start_line()

    def stream_end(self) -> None:
        self._start_line()

    def _start_line(self) -> None:
        telling, self._telling = self._telling, None
        if telling is not None:
            telling.end()


class StreamingRefreshCLIInterface(TerminalLines, AgentRefreshStreamingInterface):
    """Prints what each refresh adds: `💭 …`, `🤖 …` for `send_message`, `name(arguments)` for other calls.

    Args:
        fancy: whether thoughts are in italics, under an emoji; else `[inner thoughts] …`.
        separate_send_message: whether a call of `send_message` is shown as what it says; then `assistant_message`,
            which tells the same once more, shows nothing.
        disable_inner_mono_call: whether `internal_monologue` shows nothing, as the answer has told it.
        renderer: as in `StreamingCLIInterface`.
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
        self._wanted = (separate_send_message, disable_inner_mono_call)
        self._spaced = renderer is None
        self._renderer = told_here(renderer if renderer is not None else _printer(_fancy if fancy else _sober))
        self._answer: _Answer | None = None

    def toggle_streaming(self, on: bool) -> None:
        """Off, answers are not shown, and the other methods show all that they are told; on, the options are again as
        they were given."""
        if not on:
            self.stream_end()
        self.streaming = on
        self.separate_send_message, self.disable_inner_mono_call = self._wanted if on else (False, False)

    def stream_start(self) -> None:
        self._start_line()
        if self.streaming:
            self._space()

    def process_refresh(self, response: object) -> None:
        choices = items_of(get(response, "choices"))
        if choices and self.streaming:
            self._shown.refresh(get(choices[0], "message"), separate=self.separate_send_message)

    def update_output(self, content: str) -> None:
        """A text of the caller's own in the place of the last one. It is text: `[bold]` is shown as it stands."""
        if self.streaming:
            self._shown.output(content)

    def stream_end(self) -> None:
        if self._answer is not None:
            self._start_line()
            self._space()

    def internal_monologue(self, msg: str, msg_obj: object | None = None) -> None:
        if not self.disable_inner_mono_call:
            super().internal_monologue(msg, msg_obj)

    def assistant_message(self, msg: str, msg_obj: object | None = None) -> None:
        if not self.separate_send_message:
            super().assistant_message(msg, msg_obj)

    @property
    def _shown(self) -> _Answer:
        if self._answer is None:
            self._answer = _Answer(Telling(self._renderer))
        return self._answer

    def _space(self) -> None:
        if self._spaced:
            put([Line("")])

    def _start_line(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.end()


class _Growing:
    """A text that is told whole each time, and the part that shows it."""

    def __init__(self, telling: Telling, header: Message) -> None:
        self._telling = telling
        self._part = Part(header)
        self._text = ""

    def begin(self) -> None:
        """Show that it is there, empty."""
        self._telling.grow(self._part, "")

    def become(self, text: str) -> None:
        """Show what is new. What does not go on with what was shown takes its place."""
        before, self._text = self._text, text
        if text.startswith(before):
            if len(text) > len(before):
                self._telling.grow(self._part, text[len(before) :])
        else:
            self._telling.grow(self._part, text, replace=True)


class _Answer:
    """What is shown of one answer."""

    def __init__(self, telling: Telling) -> None:
        self._telling = telling
        self._thoughts = _Growing(telling, ReasoningMessage("thoughts"))
        self._output = _Growing(telling, Message("output", type="output"))
        self._calls: dict[int, _Shown] = {}
        self._unbegun: dict[int, Call] = {}  # their names may be only the beginning of their names

    def refresh(self, message: object, *, separate: bool) -> None:
        self._thoughts.become(text_of(get(message, "content")) or "")
        for place, call in enumerate(calls_of(message)):
            shown = self._calls.get(place)
            if shown is None and not (call.name and call.arguments):
                self._unbegun[place] = call
                continue
            if shown is None:
                self._unbegun.pop(place, None)
                shown = self._calls[place] = _Shown(self._telling, call, place, separate=separate)
            shown.become(call.arguments or "")

    def output(self, text: str) -> None:
        self._output.become(text)

    def end(self) -> None:
        for place, call in self._unbegun.items():
            if call.name:
                _Shown(self._telling, call, place, separate=False)
        self._telling.end()


class _Shown:
    """A call: as what it says, or with its arguments."""

    def __init__(self, telling: Telling, call: Call, place: int, *, separate: bool) -> None:
        self._says = FunctionArgumentsStreamHandler() if separate and call.name == "send_message" else None
        self._read = ""
        self._said = ""
        header = (
            TextMessage(f"said-{place}")
            if self._says is not None
            else ToolCallMessage(f"call-{place}", name=call.name, provider_executed=True)
        )
        self._growing = _Growing(telling, header)
        if self._says is None:
            self._growing.begin()

    def become(self, arguments: str) -> None:
        if self._says is None:
            self._growing.become(arguments)
            return
        if not arguments.startswith(self._read):
            self._says.reset()
            self._read = self._said = ""
        piece = self._says.process_json_chunk(arguments[len(self._read) :])
        self._read = arguments
        if piece:
            self._said += piece
            self._growing.become(self._said)
