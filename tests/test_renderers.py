"""Both renderers: what they show, on sync and async streams; and what they never do to a terminal."""

from __future__ import annotations

import base64
import builtins
import contextlib
import gc
import io
import itertools
import os
import re
import sys
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.text import Text

import streamkit as sk
from streamkit.events import Delta, Event
from streamkit.messages import message_class
from streamkit.renderers import STYLES, ConsolePrinter, Label, LiveDisplay
from streamkit.renderers.characters import ConsoleText, PrintableText, encodable
from streamkit.renderers.code import Code
from streamkit.renderers.markdown import LONGEST, IncrementalMarkdown
from streamkit.renderers.prose import Prose
from streamkit.renderers.region import Region, rows_of

from .faces import LIMIT, Face, Source, body, calls, chat, every_face, interpreter
from .markdown_cases import CASES
from .telling import recordings

# -- streams, made of canonical events


def created(type: str, id: str, **header: Any) -> Event:
    kind = message_class(type, header.get("format"), header.get("role"))
    return kind.created_event(kind(id, type=type, **header))


def piece(type: str, id: str, text: str, *, replace: bool = False, stream: str | None = None, **header: Any) -> Event:
    kind = message_class(type, header.get("format"), header.get("role"))
    return kind.delta_event(id, text, replace=replace, metadata={"stream": stream} if stream else None)


def done(type: str, id: str, status: Any = "completed", **header: Any) -> Event:
    kind = message_class(type, header.get("format"), header.get("role"))
    return kind.done_event(kind(id, type=type, status=status, **header))


def message_events(type: str, *pieces: str, id: str = "m1", **header: Any) -> list[Event]:
    """One message, from its beginning to its end."""
    middle = [piece(type, id, text, **header) for text in pieces]
    return [created(type, id, **header), *middle, done(type, id, **header)]


def run_of(*events: Event | list[Event], status: Any = "completed") -> list[Event]:
    """A run of these events, to its end."""
    flat = [one for event in events for one in (event if isinstance(event, list) else [event])]
    return [sk.RunCreated(sk.Run(id="run")), *flat, sk.RunDone(sk.Run(id="run", status=status)), sk.StreamEnd()]


def printed(events: Iterable[Any], style: Any = "plain", file: Any = None, **options: Any) -> str:
    """What the printer prints of a stream."""
    file = file or io.StringIO()
    sk.stream(iter(list(events)), ConsolePrinter(file, style, **{"run_end": False, **options})).until_done()
    return str(file.getvalue())


def console(width: int = 80, height: int = 24, **options: Any) -> Console:
    return Console(
        **{
            "file": io.StringIO(),
            "force_terminal": True,
            "color_system": "truecolor",
            "width": width,
            "height": height,
            "legacy_windows": False,
            "no_color": False,
            "_environ": {"TERM": "xterm"},
            **options,
        }
    )


def shown(events: Iterable[Any], width: int = 80, **options: Any) -> str:
    """What a console that is no terminal shows in the end: the settled parts."""
    output = console(width, force_terminal=False, color_system=None)
    display = LiveDisplay(output, **{"run_end": False, **options})
    sk.stream(iter(list(events)), display).until_done()
    return str(output.file.getvalue())  # type: ignore[attr-defined]


class Glass:
    """A terminal that knows the sequences that a live display writes, and no other: `lines` is all that it shows, its
    history too."""

    SEQUENCE = re.compile(r"\x1b(?:\[(\??[0-9;]*))?([A-Za-z78])")

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.rows: list[list[str]] = [[]]  # cells; the second one of a wide character is empty
        self.row = self.column = 0
        self.wraps = self.cursor = True
        self.saved = (0, 0)

    def feed(self, text: str) -> None:
        position = 0
        while position < len(text):
            if found := self.SEQUENCE.match(text, position):
                self._obey(found[1] or "", found[2])
                position = found.end()
                continue
            self._put(text[position])
            position += 1

    def _obey(self, argument: str, code: str) -> None:
        match code, argument:
            case "m", _:
                pass
            case "K", "2":
                self.rows[self.row] = []
            case "K", "":
                del self.rows[self.row][self.column :]
            case "J", "":
                del self.rows[self.row][self.column :]
                for cells in self.rows[self.row + 1 :]:
                    cells.clear()
            case "A", _:
                self.row = max(self._top, self.row - int(argument))
            case "B", "":
                self.row = min(self._top + self.height - 1, self.row + 1)
                self.rows += [[] for _ in range(self.row + 1 - len(self.rows))]
            case "7", _:
                self.saved = self.row - self._top, self.column
            case "8", _:
                self.row, self.column = self._top + self.saved[0], self.saved[1]
            case "h" | "l", "?7":
                self.wraps = code == "h"
            case "h" | "l", "?25":
                self.cursor = code == "h"
            case _:
                raise AssertionError(f"no such sequence: {argument}{code}")

    def _put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.column = 0
            self.row += 1
            self.rows += [[] for _ in range(self.row + 1 - len(self.rows))]
        else:
            assert unicodedata.category(character) != "Cc", repr(character)
            wide = cell_len(character)
            if self.column + wide > self.width:
                if not self.wraps:
                    return
                self._put("\n")
            cells = self.rows[self.row]
            cells += [" "] * (self.column + wide - len(cells))
            cells[self.column : self.column + wide] = [character, ""][:wide]
            self.column += wide

    @property
    def _top(self) -> int:
        return max(0, len(self.rows) - self.height)

    @property
    def lines(self) -> list[str]:
        lines = ["".join(cells).rstrip() for cells in self.rows]
        while lines and not lines[-1]:
            lines.pop()
        return lines


def drawn(events: Iterable[Any], width: int = 80, height: int = 24, *, every: int = 1, **options: Any) -> Glass:
    """The terminal after a stream that was drawn after every so many events."""
    output = console(width, height)
    display = LiveDisplay(output, **{"refresh_per_second": 0, "run_end": False, **options})
    glass = Glass(width, height)

    class Drawn(sk.Handler):
        count = 0

        def handle(self, event: Event, /) -> None:
            self.count += 1
            if self.count % every == 0:
                display.refresh()
                glass.feed(output.file.getvalue())  # type: ignore[attr-defined]
                output.file.seek(0)
                output.file.truncate()
                assert glass.cursor
                assert glass.wraps

    sk.stream(iter(list(events)), display, Drawn()).until_done()
    glass.feed(output.file.getvalue())  # type: ignore[attr-defined]
    assert glass.cursor
    assert glass.wraps
    return glass


# -- printing along


def test_each_message_has_its_label() -> None:
    """Text as it arrives; a call with its arguments; code and console output in lines of their own."""
    events = run_of(
        message_events("reasoning", "Let me", " see."),
        message_events("tool_call", '{"a":', " 1}", id="m2", name="look_up", call_id="c1"),
        message_events("tool_output", "found", id="m3", call_id="c1"),
        message_events("code", "print(1)", id="m4", format="python"),
        message_events("console", "1\n", id="m5", role="computer", format="output"),
        message_events("image", "/tmp/a.png", id="m6", format="path"),
        message_events("image", "aGVsbG8=", id="m7", format="base64.png"),
        message_events("message", "No.", id="m8", format="refusal"),
        message_events("message", "Hi", id="m9", role="user"),
        message_events("message", "Done.", id="m10"),
    )
    assert printed(events, run_end=True).splitlines() == [
        "[reasoning] Let me see.",
        '[tool_call] look_up({"a": 1})',
        "[tool_output look_up] found",
        "[code python]",
        "print(1)",
        "[console output]",
        "1",
        "[image path] /tmp/a.png",
        "[image base64.png] 6 bytes",
        "[message refusal] No.",
        "[user message] Hi",
        "[message] Done.",
        "[run] completed",
    ]


@pytest.mark.parametrize("show", [printed, shown])
def test_what_is_for_the_assistant_alone_is_shown_only_where_that_is_wanted(show: Callable[..., str]) -> None:
    """People are no readers of it."""
    console = {"role": "computer", "type": "console", "format": "output"}
    items = [
        {**console, "content": "for people\n"},
        {**console, "content": "for the model\n", "recipient": "assistant"},
        {"role": "assistant", "type": "message", "content": "Done."},
    ]
    source = [
        {**item, **more}
        for item in items
        for more in ({"content": "", "start": True}, {}, {"content": "", "end": True})
    ]
    events = [*sk.stream(source, protocol="open_interpreter")]
    for wanted in (False, True):
        text = show(events, for_assistant=wanted)
        assert "for people" in text
        assert "Done." in text
        assert ("for the model" in text) is wanted


def test_each_piece_is_printed_when_it_arrives() -> None:
    """Before the next one is made."""
    file = io.StringIO()
    seen: list[str] = []

    def events() -> Iterator[Event]:
        for event in run_of(message_events("message", "One", " two")):
            seen.append(file.getvalue())
            yield event

    sk.stream(events(), ConsolePrinter(file, run_end=False)).until_done()
    assert [text for text in seen if "One" in text][:2] == ["[message] One", "[message] One two"]


def test_calls_side_by_side_are_printed_one_after_the_other() -> None:
    """The second waits until the first is complete."""
    calls = [("a", "c1"), ("b", "c2")]
    events = run_of(
        *(created("tool_call", id, name=name) for name, id in calls),
        *(piece("tool_call", id, text) for text in ('{"n"', ": 1}") for _, id in calls),
        *(done("tool_call", id, name=name) for name, id in calls),
    )
    assert printed(events) == '[tool_call] a({"n": 1})\n[tool_call] b({"n": 1})\n'


ARGUMENTS = ['{"city": "Oslo", "days": 3, "units": "metric"}', '{"query": "ferries from Oslo to Kiel in May"}', "{}"]


def chat_chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chat", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def call_piece(index: int, arguments: str, **header: Any) -> dict[str, Any]:
    function = {"arguments": arguments, **header}
    begins = {"id": f"call_{index}", "type": "function"} if header else {}
    return chat_chunk(tool_calls=[{"index": index, **begins, "function": function}])


def chat_calls(order: str) -> list[dict[str, Any]]:
    """Three calls as Chat Completions streams them: one after the other, or their pieces in turns. All of them are done at
    the finish reason."""
    begin = [[call_piece(n, "", name=f"tool_{n}")] for n in range(3)]
    pieces = [[call_piece(n, one) for one in re.findall(".{1,2}", text)] for n, text in enumerate(ARGUMENTS)]
    if order == "one by one":
        middle = [chunk for n in range(3) for chunk in (*begin[n], *pieces[n])]
    else:
        turns = itertools.zip_longest(*(pieces if order == "in turns" else reversed(pieces)))
        middle = [*itertools.chain(*begin), *(chunk for turn in turns for chunk in turn if chunk)]
    return [chat_chunk(content="I will look."), *middle, chat_chunk("tool_calls")]


@pytest.mark.parametrize("order", ["one by one", "in turns", "in turns, the last first"])
def test_calls_of_one_answer_are_shown_once_each_and_whole(order: str) -> None:
    """In their order, whatever the order of their pieces, in both renderers."""
    calls = [f"tool_{n}({text})" for n, text in enumerate(ARGUMENTS)]
    assert printed(chat_calls(order)).splitlines() == ["[message] I will look.", *(f"[tool_call] {c}" for c in calls)]
    wanted = ["I will look.", "", *(f"● {call}" for call in calls)]
    assert shown(chat_calls(order)).splitlines() == wanted
    for every in (1, 7):
        assert drawn(chat_calls(order), every=every).lines == wanted


def test_a_call_is_over_where_its_arguments_are_complete_and_another_begins() -> None:
    """Its bracket is closed then, not at the end of the answer: the next call is shown as it arrives."""
    file = io.StringIO()
    seen: list[str] = []

    def chunks() -> Iterator[Any]:
        for chunk in chat_calls("one by one"):
            yield chunk
            seen.append(file.getvalue().splitlines()[-1])

    sk.stream(chunks(), ConsolePrinter(file, run_end=False)).until_done()
    assert f"[tool_call] tool_0({ARGUMENTS[0]}" in seen
    assert '[tool_call] tool_1({"query": "fer' in seen


def test_a_call_that_stalls_in_its_middle_is_not_cut_in_two_by_other_calls() -> None:
    """They wait for it, as they are to be in order; text does not wait for ever."""
    events = run_of(
        created("tool_call", "a", name="a"),
        piece("tool_call", "a", '{"n": '),
        *message_events("tool_call", *'{"text": "thirty pieces and more of it"}', id="b", name="b"),
        piece("tool_call", "a", "1}"),
        done("tool_call", "a", name="a"),
    )
    assert printed(events) == '[tool_call] a({"n": 1})\n[tool_call] b({"text": "thirty pieces and more of it"})\n'
    events = run_of(
        created("tool_call", "a", name="a"),
        piece("tool_call", "a", '{"n": '),
        message_events("message", *"Twenty-five pieces of text", id="t"),
        piece("tool_call", "a", "1}"),
        done("tool_call", "a", name="a"),
    )
    assert printed(events) == '[tool_call] a({"n": \n[message] Twenty-five pieces of text\n… [tool_call] a(1})\n'


def test_what_follows_complete_arguments_is_shown_too() -> None:
    """A repair, for example. White space alone is not."""
    head = [
        created("tool_call", "a", name="a"),
        piece("tool_call", "a", '{"n": 1}'),
        created("tool_call", "b", name="b"),
    ]
    tail = [done("tool_call", "a", name="a"), done("tool_call", "b", name="b")]
    assert printed(run_of(*head, piece("tool_call", "a", " "), *tail)).count("a(") == 1
    repaired = printed(run_of(*head, piece("tool_call", "a", '{"n": 2}', replace=True), *tail))
    assert "replaced: [tool_call] a({" in repaired
    assert repaired.count('{"n": 2})') == 1


def test_a_silent_message_is_paused_and_resumed_later() -> None:
    """Text does not wait for reasoning that never ends; a label shows where the reasoning is resumed."""
    events = run_of(
        created("reasoning", "r"),
        piece("reasoning", "r", "Hm."),
        created("message", "t"),
        piece("message", "t", "Yes"),
        piece("reasoning", "r", " Well."),
        piece("message", "t", "."),
        done("message", "t"),
        done("reasoning", "r"),
    )
    assert printed(events) == "[reasoning] Hm.\n[message] Yes.\n… [reasoning]  Well.\n"


def test_two_choices_are_printed_one_after_the_other() -> None:
    """Their pieces alternate."""
    pieces = [piece("message", id, text, choice=choice) for text in "abc" for choice, id in enumerate(("x", "y"))]
    events = run_of(created("message", "x"), created("message", "y", choice=1), *pieces, done("message", "x"))
    assert printed([*events[:-2], done("message", "y"), *events[-2:]]) == "[message] abc\n[message] abc\n"


TYPES = ("message", "reasoning", "tool_call", "code", "tool_output")


@st.composite
def interleaved(draw: st.DrawFn) -> list[Event]:
    """Messages that begin, grow and end in any order. The pieces of message 2 are `«2.0»`, `«2.1»` …."""
    events: list[Event] = []
    counts: dict[str, int] = {}
    kinds: dict[str, str] = {}
    for _ in range(draw(st.integers(0, 60))):
        step = draw(st.integers(0, 9))
        if not counts or step == 0:
            id = str(len(kinds))
            kinds[id] = draw(st.sampled_from(TYPES))
            counts[id] = 0
            events.append(created(kinds[id], id, name="f"))
        elif step == 1:
            id = draw(st.sampled_from(sorted(counts)))
            del counts[id]
            events.append(done(kinds[id], id, name="f"))
        else:
            id = draw(st.sampled_from(sorted(counts)))
            events.append(piece(kinds[id], id, f"«{id}.{counts[id]}»"))
            counts[id] += 1
    return [*events, *(done(kinds[id], id, name="f") for id in counts)]


@pytest.mark.slow
@given(interleaved())
@settings(deadline=None, max_examples=30)
def test_every_piece_is_shown_once_in_any_order(events: list[Event]) -> None:
    """Each message's pieces in their order, in both renderers."""
    emitted: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event, Delta):
            emitted.setdefault(event.message_id, []).append(event.value)
    for text in (
        printed(run_of(events), warnings=False),
        shown(run_of(events), 500, warnings=False),
        "\n".join(drawn(run_of(events), 500, 50, warnings=False).lines),
    ):
        found_pieces: dict[str, list[str]] = {}
        for found in re.finditer(r"«(\d+)\.\d+»", text):
            found_pieces.setdefault(found[1], []).append(found[0])
        assert found_pieces == emitted


def test_replaced_text_is_printed_again() -> None:
    """Under a label that says so."""
    events = run_of(
        created("message", "m"), piece("message", "m", "Helo"), piece("message", "m", "Hello", replace=True)
    )
    assert printed([*events[:-2], done("message", "m"), *events[-2:]]) == "[message] Helo\nreplaced: [message] Hello\n"


def test_confirmations_warnings_errors_and_ends_are_printed() -> None:
    """Each in a line of its own."""
    items = interpreter()
    file = io.StringIO()
    stream = sk.stream(iter([items[1], *items[2:], {"role": 5}]), ConsolePrinter(file, active_line=True))
    stream.until_done()
    text = file.getvalue()
    assert "[confirmation] may this code run?\n[confirmation] unanswered\n[run] requires_action" in text
    assert "[warning] item 0: " in text
    file = io.StringIO()
    with pytest.raises(sk.IncompleteStreamError):
        sk.stream(chat("Hi", finish=None), ConsolePrinter(file)).until_done()
    assert re.search(r"^\[message\] Hi\n\[run\] incomplete\n\[error\] IncompleteStreamError: ", file.getvalue())


def test_the_active_line_is_printed_on_request() -> None:
    """It is not by default."""
    events = run_of(sk.ActiveLine("m", 3), message_events("message", "x"))
    assert "[line 3]" in printed(events, active_line=True)
    assert "[line 3]" not in printed(events)


def test_a_progress_bar_is_one_line() -> None:
    """In a file, where nothing can be overwritten: its first state and its last."""
    bar = message_events(
        "console", "go\r\n", " 0%", "\r10%", "\r\x1b[32m100%\x1b[0m", "\nend", role="computer", format="output"
    )
    assert printed(run_of(bar)) == "[console output]\ngo\n 0%\n100%\nend\n"


class Screen(io.StringIO):
    """A file that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_stderr_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a progress bar is overwritten. `NO_COLOR` turns colours off."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    events = [
        created("console", "c", role="computer", format="output"),
        piece("console", "c", "ok\n", role="computer", format="output", stream="stdout"),
        piece("console", "c", "bad\n 0%", role="computer", format="output", stream="stderr"),
        piece("console", "c", "\r9%\n", role="computer", format="output"),
        done("console", "c", role="computer", format="output"),
    ]
    red = "[console output]\nok\n\x1b[31mbad\x1b[0m\n\x1b[31m 0%\x1b[0m\r\x1b[K9%%\n"
    assert printed(run_of(*events), file=Screen()) == red
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in printed(run_of(*events), file=Screen())
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in printed(run_of(*events), file=Screen())


def console_pieces(*parts: tuple[str, str]) -> list[sk.Event]:
    return run_of(
        created("console", "c", role="computer", format="output"),
        *(piece("console", "c", text, role="computer", format="output", stream=stream) for text, stream in parts),
        done("console", "c", role="computer", format="output"),
    )


@pytest.mark.parametrize("place", ["file", "dumb terminal", "NO_COLOR"])
@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        ([("ok\n", "stdout"), ("oh\nno\n", "stderr"), ("two\n", "stdout")], "ok|! oh|! no|two"),
        ([("o", "stderr"), ("h", "stderr"), ("\n\nno", "stderr")], "! oh||! no"),
        ([("a", "stdout"), ("b", "stderr"), ("c\n", "stderr"), ("d", "stdout")], "a|! bc|d"),
        ([(" 0%", "stderr"), ("done\n", "stdout")], "!  0%|done"),
        ([("one ", "stdout"), ("line\n", "")], "one line"),
    ],
)
def test_without_colours_stderr_has_a_mark(
    monkeypatch: pytest.MonkeyPatch, parts: list[tuple[str, str]], lines: str, place: str
) -> None:
    """The one of `LiveDisplay`, at each line. The two streams never share a line."""
    monkeypatch.setenv("TERM", "dumb" if place == "dumb terminal" else "xterm")
    monkeypatch.setenv("NO_COLOR", "1" if place == "NO_COLOR" else "")
    file = io.StringIO() if place == "file" else Screen()
    shown = printed(console_pieces(*parts), file=file).replace("\r\x1b[K", "")
    assert shown == "[console output]\n" + lines.replace("|", "\n") + "\n"


def test_a_progress_bar_on_stderr_has_one_mark() -> None:
    """In a file."""
    bar = [("go\n", "stdout"), ("\r 0%", "stderr"), ("\r50%", "stderr"), ("\r100%\n", "stderr")]
    assert printed(console_pieces(*bar)) == "[console output]\ngo\n!  0%\n! 100%\n"


def test_the_memgpt_styles_print_what_memgpt_printed() -> None:
    """`Inner thoughts: ` and `Calling function: name(arguments)`; other messages as its complete lines."""
    events = run_of(
        message_events("reasoning", "User says hi."),
        message_events("tool_call", '{"message": "Hi"}', id="m2", name="send_message", call_id="c"),
        message_events("tool_output", "Success: ok", id="m3", call_id="c"),
        message_events("tool_output", "Error: no", id="m4"),
        message_events("tool_output", "None", id="m5"),
        message_events("message", "Hello!", id="m6"),
        message_events("message", "hey", id="m7", role="user"),
        message_events("message", "boot", id="m8", role="system"),
    )
    lines = [
        "⚡🟢 [function] Success: ok",
        "⚡🔴 [function] Error: no",
        "⚡ [function] None",
        "🤖 Hello!",
        "🧑 hey",
        "🖥️ [system] boot",
    ]
    first = ["Inner thoughts: User says hi.", 'Calling function: send_message({"message": "Hi"})']
    assert printed(events, "memgpt").splitlines() == [*first, *lines]
    first = ["💭 User says hi.", 'send_message({"message": "Hi"})']
    assert printed(events, "memgpt-fancy").splitlines() == [*first, *lines]


def test_with_memgpts_styles_every_message_has_its_own_label() -> None:
    """Whatever came before it; empty reasoning has none."""
    events = run_of(
        message_events("reasoning", "", id="m0"),
        message_events("tool_call", "{}", id="m1", name="a"),
        message_events("tool_call", "{}", id="m2", name="b"),
        message_events("reasoning", "Hm.", id="m3"),
        message_events("tool_call", "{}", id="m4", name="c"),
    )
    assert printed(events, "memgpt").splitlines() == [
        "Calling function: a({})",
        "Calling function: b({})",
        "Inner thoughts: Hm.",
        "Calling function: c({})",
    ]


def test_a_style_may_be_a_function() -> None:
    """It returns a label; an unknown name is an error."""

    def mine(message: sk.Message, text: str, name: str) -> Label:
        return Label(f"<{message.type}>", "</>")

    assert printed(run_of(message_events("message", "x")), mine) == "<message>x</>\n"
    with pytest.raises(sk.UsageError, match=", ".join(STYLES)):
        ConsolePrinter(style="loud")


def test_cited_sources_are_listed_below_the_text() -> None:
    """Each source once."""
    cite = sk.AnnotationAdded("m", sk.Annotation(type="url_citation", url="http://a.b/c", title="A\x1b[1m B"))
    events = run_of(created("message", "m"), piece("message", "m", "Yes."), cite, cite, done("message", "m"))
    assert printed(events) == "[message] Yes.\n[1] A␛[1m B http://a.b/c\n"
    assert shown(events) == "Yes.\n\n[1] A␛[1m B http://a.b/c\n"


# -- what a terminal obeys


EVIL = "\x1b[5mred\x1b]0;title\x07 \x9b2J\x7f\b over\u202eturned\ud800 \x1b]8;;http://evil\x1b\\link\x00"
FORMATS = ("python", EVIL, None)


def everything(text: str) -> list[Event]:
    """The text in every field of every kind of message."""
    one_liner = text.replace("\n", " ")
    return run_of(
        message_events("reasoning", text, id="m1"),
        message_events("message", text, id="m2"),
        message_events(
            "message", f"[{text}](http://x/{one_liner}) ![{text}]({one_liner}) `{text}`\n\n# {text}\n", id="m3"
        ),
        message_events("message", f"```{text}\n{text}\n```\n\n| {one_liner} |\n|--|\n| {one_liner} |\n", id="m4"),
        message_events("tool_call", text, id="m5", name=text, call_id=text),
        message_events("tool_output", text, id="m6", name=text, call_id=text),
        message_events("code", text, id="m7", format=text or None),
        message_events("console", text, id="m8", role="computer", format="output"),
        message_events("image", text, id="m9", format="path", name=text),
        message_events("image", text, id="m10", format=text or None),
        message_events("file", text, id="m11", format="path", name=text),
        message_events("message", text, id="m12", format="refusal"),
        message_events("strange" + text, text, id="m13", format=text or None, role="user"),
        message_events("code", text, id="m14", format="html", role="computer"),
        sk.StreamWarning(text, text),
    )


def assert_harmless(output: str) -> None:
    """No control character but line ends and tabs, no mark that turns text around, no half of a pair."""
    remaining = re.sub("\x1b\\[[0-9;]*m|\x1b\\[\\?(25|7)[hl]|\x1b\\[2K|\x1b\\[[0-9]*[ABJ]|\x1b[78]|\r", "", output)
    bad = [c for c in remaining if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"]
    assert not bad + re.findall("[\u202a-\u202e\u2066-\u2069]", remaining), bad
    assert "\x1b[5m" not in output
    assert "\x1b]" not in output


@pytest.mark.slow
@given(st.lists(st.sampled_from([*EVIL, EVIL, *"\n\ta[]()*`|#>-", "&#27;[5m", "&#x202e;"]), max_size=20).map("".join))
@settings(deadline=None, max_examples=40)
def test_no_text_of_a_stream_controls_the_terminal(text: str) -> None:
    """In any field, in either renderer; not as entities of Markdown either."""
    assert_harmless(printed(everything(text)))
    output = console(40, 10)
    sk.stream(iter(everything(text)), LiveDisplay(output)).until_done()
    assert_harmless(output.file.getvalue())  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", CASES)
def test_markdown_is_shown_as_the_table_of_cases_says(name: str) -> None:
    source, text = CASES[name]
    assert [line.rstrip() for line in shown(run_of(message_events("message", source)), 60).splitlines()] == text.split(
        "\n"
    )


@pytest.mark.parametrize("language", ["diff", "yaml", "html", "css", "toml"])
def test_code_in_markdown_has_colours(language: str) -> None:
    code = {"diff": "- a\n+ b", "yaml": "a: 1", "html": "<a>b</a>", "css": "a { color: red }", "toml": "a = 1"}[
        language
    ]
    output = console(60)
    output.print(Prose.of(MarkdownIt().parse(f"```{language}\n{code}\n```"), "ansi_dark"))
    assert re.search("\x1b\\[3[1-6]m|\x1b\\[9[1-6]m", output.file.getvalue())  # type: ignore[attr-defined]


def test_text_is_never_markup() -> None:
    """No markup of Rich, no emoji names, no HTML but elements that say how text looks; a link's address is shown beside it."""
    text = "[red]x[/red] :smile: <a href='b'>y</a> [ref]\n\n[ref]: http://a\n\n[see](http://b/c) <http://d/e> ![plot](p.png)"
    assert shown(run_of(message_events("message", text))).splitlines() == [
        "[red]x[/red] :smile: <a href='b'>y</a> [ref]",
        "",
        "[ref]: http://a",
        "",
        "see (http://b/c) http://d/e [image: plot] (p.png)",
    ]
    name = shown(run_of(message_events("tool_call", '{"a": "[red]:smile:"}', name="[b]f[/b]")))
    assert name == '● [b]f[/b]({"a": "[red]:smile:"})\n'
    assert (
        shown(run_of(message_events("console", "[red] :smile:\n", role="computer", format="output")))
        == "│ [red] :smile:\n"
    )


def test_there_are_no_hyperlinks() -> None:
    """Addresses are text."""
    output = console()
    sk.stream(iter(run_of(message_events("message", "[a](http://b)"))), LiveDisplay(output)).until_done()
    assert "\x1b]8" not in output.file.getvalue()  # type: ignore[attr-defined]


def test_a_programs_colours_are_dropped() -> None:
    """And its other sequences, wherever they are cut."""
    text = "a\x1b[1;31mred\x1b[0m \x1b]0;title\x07b\x1b(Bc\x1b[?25l\x9b31md\n"
    for cut in range(len(text)):
        console_text = ConsoleText()
        assert [*console_text.feed(text[:cut]), *console_text.feed(text[cut:])] == ["ared bcd"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("abc\rd", "dbc"),
        ("abc\r\x1b[Kd", "d"),
        ("abc\x1b[2K\rd", "d"),
        ("ab\bc", "ac"),
        ("abc\r\r\n", "abc"),
        ("\t1\x07", "\t1␇"),
        ("abc\x1b[1Kd", "   d"),
    ],
)
def test_a_line_is_what_a_terminal_would_show(text: str, line: str) -> None:
    """After carriage returns, backspaces and erasures."""
    console_text = ConsoleText()
    assert [*console_text.feed(text), console_text.finish()][0] == line


def test_a_line_end_cut_in_two_is_one() -> None:
    """A carriage return alone is made visible."""
    text = PrintableText()
    assert [text.feed(piece) for piece in ("a\r", "\nb\r", "c\r")] == ["a", "\nb", "␍c"]
    assert text.finish() == "␍"


@given(st.lists(st.text(st.sampled_from("ab\r\n\b\x1b[K0m\t")), max_size=6))
def test_a_programs_text_may_be_cut_anywhere(pieces: list[str]) -> None:
    """The result is the same."""

    def lines(pieces: list[str]) -> list[str]:
        text = ConsoleText()
        return [*(line for piece in pieces for line in text.feed(piece)), text.finish()]

    assert lines(pieces) == lines(["".join(pieces)])


class Ascii(io.TextIOWrapper):
    """A terminal that can write few characters."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="ascii", newline="\n")

    def getvalue(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined, no-any-return]


def test_characters_that_the_encoding_lacks_are_replaced() -> None:
    """By their number, or by a substitute of the same width."""
    text = "14 °C, 東京\n\n- 🙂"
    assert printed(everything(text), "memgpt-fancy", Ascii())
    assert "14 \\xb0C, \\u6771" in printed(run_of(message_events("message", text)), file=Ascii())
    file = Ascii()
    sk.stream(iter(everything(text)), LiveDisplay(console(file=file))).until_done()
    assert " * ??" in re.sub(r"\x1b(\[[0-?]*[A-Za-z]|[78])", "", file.getvalue())
    assert encodable("│ 東 •…é", "latin-1") == "| ?? *.é"
    assert encodable("é", "no such encoding") == "?"


# -- the live display


def test_the_live_display_shows_each_kind_of_message() -> None:
    """Reasoning behind a line, calls with their outputs, code with numbers, console output behind a line, Markdown."""
    events = run_of(
        message_events("reasoning", "Let me\n\nsee."),
        message_events("tool_call", '{"a": 1}', id="m2", name="look_up", call_id="c1"),
        message_events("tool_output", "found\nit", id="m3", call_id="c1"),
        message_events("code", "x = 1\n", "print(x)\n", id="m4", format="python"),
        message_events("console", "1\r\n", "2", id="m5", role="computer", format="output"),
        message_events("image", "aGVsbG8=", id="m6", format="base64.png"),
        message_events("file", "/tmp/f", id="m7", format="path"),
        message_events("message", "I cannot.", id="m8", format="refusal"),
        message_events("message", "Hi", id="m9", role="user"),
        message_events("message", "# Done\n\n- **a**\n- b\n\n1. c\n\nBye.", id="m10"),
    )
    assert shown(events, run_end=True) == (
        "┊ Let me\n\n┊ see.\n\n"
        '● look_up({"a": 1})\n└ found\n  it\n\n'
        "── python\n  1 x = 1\n  2 print(x)\n\n"
        "│ 1\n│ 2\n\n"
        "▣ image (base64.png): 6 bytes\n\n▣ file (path): /tmp/f\n\n✗ I cannot.\n\nuser: Hi\n\n"
        "Done\n\n • a\n • b\n\n 1 c\n\nBye.\n\n─ completed\n"
    )


def test_outputs_of_calls_side_by_side_have_their_names() -> None:
    """In whatever order they arrive."""
    calls = [
        event
        for n in (1, 2)
        for event in message_events("tool_call", f'{{"n": {n}}}', id=f"m{n}", name=f"tool_{n}", call_id=f"c{n}")
    ]
    outputs = [
        event for n in (2, 1) for event in message_events("tool_output", f"out {n}", id=f"o{n}", call_id=f"c{n}")
    ]
    assert shown(run_of(calls, outputs)).splitlines() == [
        '● tool_1({"n": 1})',
        '● tool_2({"n": 2})',
        "└ tool_2: out 2",
        "└ tool_1: out 1",
    ]


def test_the_long_output_of_a_tool_is_cut() -> None:
    """The number of lines left out is shown. Console output is never cut."""
    lines = "".join(f"line {n}\n" for n in range(50))
    output = message_events("tool_output", lines, call_id="c")
    assert shown(run_of(output), output_lines=2).splitlines() == ["└ line 0", "  line 1", "  … 48 more lines"]
    assert len(shown(run_of(output), output_lines=None).splitlines()) == 50
    assert len(shown(run_of(message_events("console", lines, role="computer", format="output"))).splitlines()) == 50


EVENTS = run_of(
    message_events("reasoning", *("I think about it. " * 9).split(" ")),
    created("tool_call", "c1", name="first", call_id="c1"),
    created("tool_call", "c2", name="second", call_id="c2"),
    *(piece("tool_call", id, f"{n}, ") for n in range(9) for id in ("c1", "c2")),
    *(done("tool_call", id, name=name, call_id=id) for id, name in (("c1", "first"), ("c2", "second"))),
    message_events("tool_output", "b", id="o2", call_id="c2"),
    message_events("tool_output", "a", id="o1", call_id="c1"),
    message_events("code", *[f"step_{n}()\n" for n in range(9)], id="k", format="python"),
    created("console", "out", role="computer", format="output"),
    *(
        event
        for n in range(9)
        for event in (
            sk.ActiveLine("out", n + 1),
            piece("console", "out", f"\rstep {n}", role="computer", format="output"),
        )
    ),
    piece("console", "out", "\nend\n", role="computer", format="output"),
    sk.ActiveLine("out", None),
    done("console", "out", role="computer", format="output"),
    message_events(
        "message", *re.split(r"(?<= )", "Words in **bold**, and 東京 too. " * 20 + "\n\n- a\n- b\n\n" * 9), id="t"
    ),
)


@pytest.mark.parametrize("every", [1, 3, 10_000])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 15), (40, 5), (13, 3), (5, 2), (1, 1)])
def test_redrawing_leaves_nothing_behind(width: int, height: int, every: int) -> None:
    """On any size of terminal, drawn at any rate: in the end it shows what was settled, once."""
    assert drawn(EVENTS, width, height, every=every).lines == shown(EVENTS, width).rstrip().splitlines()


def frames(events: Iterable[Event], width: int = 80, height: int = 24) -> list[list[str]]:
    """The terminal after each event."""
    seen: list[list[str]] = []
    output = console(width, height)
    display = LiveDisplay(output, refresh_per_second=0, run_end=False)
    glass = Glass(width, height)

    class Watch(sk.Handler):
        def handle(self, event: Event, /) -> None:
            display.refresh()
            glass.feed(output.file.getvalue())  # type: ignore[attr-defined]
            output.file.seek(0)
            output.file.truncate()
            seen.append(glass.lines)

    sk.stream(iter(events), display, Watch()).until_done()
    return seen


def test_the_line_that_runs_is_marked() -> None:
    """With the lines around it, below the console output; when nothing runs it disappears."""
    source = "".join(f"step_{n}()\n" for n in range(1, 31))
    events = run_of(
        message_events("code", source, id="k", format="python"), sk.ActiveLine("k", 17), sk.ActiveLine("k", None)
    )
    seen = frames(events, 40, 40)
    (marked,) = {tuple(lines[-6:]) for lines in seen if any("❱" in line for line in lines)}
    assert marked == ("", *(f"{'❱' if n == 17 else ' '} {n} step_{n}()" for n in range(15, 20)))
    assert not any("❱" in line for line in seen[-1])


def test_calls_that_wait_have_a_line_each() -> None:
    """Until their output arrives."""
    calls = [e for n in "ab" for e in message_events("tool_call", "{}", id=n, name=f"tool_{n}", call_id=n)]
    seen = frames(run_of(calls, message_events("tool_output", "x", id="o", call_id="a")))
    waiting = [re.findall(r"^. (tool_\w)$", "\n".join(lines), re.MULTILINE) for lines in seen]
    assert ["tool_a"] in waiting
    assert ["tool_a", "tool_b"] in waiting
    assert waiting[-3] == ["tool_b"]
    assert waiting[-1] == []


def test_the_open_part_is_shown_as_it_grows() -> None:
    """At once, as Markdown."""
    seen = frames(run_of(message_events("message", "Some **bo", "ld** text", " and more.")))
    texts = [lines[0] for lines in seen if lines and lines[0].startswith("Some")]
    assert list(dict.fromkeys(texts)) == ["Some **bo", "Some bold text", "Some bold text and more."]


def test_of_a_long_open_part_the_end_is_shown() -> None:
    """As much as the screen holds."""
    lines = [f"line {n}\n" for n in range(100)]
    seen = frames(run_of(message_events("message", "```\n", *lines)), 40, 10)
    while_it_grew = seen[3:104]
    assert all(len(rows) < 10 for rows in while_it_grew)
    assert [rows[-1].strip() for rows in while_it_grew if rows][-50:] == [f"line {n}" for n in range(50, 100)]
    assert len(seen[-1]) == 100


def test_while_lines_rush_by_few_are_drawn() -> None:
    """All of them again once they are slower; in the end all of them stand above."""
    lines = [f"line {number}\n" for number in range(120)]
    output = console(80, 24)
    display = LiveDisplay(output, refresh_per_second=0, run_end=False)
    sizes: list[int] = []

    class Drawn(sk.Handler):
        def handle(self, event: Event, /) -> None:
            display.refresh()
            screen = display._drawing and display._drawing._screen  # type: ignore[attr-defined]
            sizes.append(len(screen._region._rows) if screen else 0)

    rushing = ["```\n", *("".join(lines[start : start + 20]) for start in range(0, 80, 20)), *lines[80:], "```\n"]
    sk.stream(iter(run_of(message_events("message", *rushing))), display, Drawn()).until_done()
    glass = Glass(80, 24)
    glass.feed(output.file.getvalue())  # type: ignore[attr-defined]
    assert [line.strip() for line in glass.lines] == [f"line {number}" for number in range(120)]
    assert max(sizes[5:8]) <= 8
    assert sizes[20] > 20


def test_a_console_that_is_no_terminal_gets_the_settled_parts() -> None:
    """Without any sequence that moves a cursor; so does a dumb terminal."""
    for output in (console(force_terminal=False), console(_environ={"TERM": "dumb"}, color_system=None)):
        sk.stream(iter(EVENTS), LiveDisplay(output)).until_done()
        assert not re.search("\x1b\\[[^m]*[A-LN-Za-ln-z]|\r", output.file.getvalue())  # type: ignore[attr-defined]


def test_a_console_without_colour_gets_none() -> None:
    """Bold, dim and italic text stays."""
    output = console(no_color=True)
    sk.stream(iter(EVENTS), LiveDisplay(output)).until_done()
    codes = re.findall("\x1b\\[([0-9;]*)m", output.file.getvalue())  # type: ignore[attr-defined]
    assert {code for group in codes for code in group.split(";")} <= {"0", "1", "2", "3", "4"}


def test_what_the_program_prints_goes_above(monkeypatch: pytest.MonkeyPatch) -> None:
    """By `print`, and on Rich's own console. An incomplete line waits for its end, or for the end of the stream."""
    file = Screen()
    monkeypatch.setattr(sys, "stdout", file)
    output = console(40, 10, file=file)
    display = LiveDisplay(output, refresh_per_second=0, run_end=False)

    class Chatty(sk.EventHandler):
        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
            print(f"saw {delta}", end="\n" if delta.value != "c" else "")
            output.print("and so did I")
            display.refresh()

    sk.stream(iter(run_of(message_events("message", "a", "b", "c"))), display, Chatty()).until_done()
    assert sys.stdout is file
    glass = Glass(40, 10)
    glass.feed(file.getvalue())
    assert sorted(glass.lines) == sorted(["saw a", "saw b", "saw c", *["and so did I"] * 3, "abc"])


def assert_restored(file: Any) -> None:
    """The terminal is restored, and no thread is left."""
    assert not [thread for thread in threading.enumerate() if thread.name == "streamkit-display"]
    text = file.getvalue()
    assert text.rfind("\x1b[?25h") >= text.rfind("\x1b[?25l")
    assert text.rfind("\x1b[?7h") >= text.rfind("\x1b[?7l")


class Boom(sk.EventHandler):
    """Raises in the middle."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        raise self.error


@pytest.mark.parametrize("first", [True, False], ids=["before it", "after it"])
@pytest.mark.parametrize("error", [ValueError("boom"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_a_hook_that_raises_stops_the_display(error: BaseException, first: bool, monkeypatch: Any) -> None:
    """Of any handler, and whatever it raises."""
    file = Screen()
    monkeypatch.setattr(sys, "stdout", file)
    display = LiveDisplay(console(file=file))
    handlers = [Boom(error), display] if first else [display, Boom(error)]
    with pytest.raises(type(error)):
        sk.stream(iter(run_of(message_events("message", "Hi"))), *handlers).until_done()
    assert not display.drawing
    assert sys.stdout is file
    assert_restored(file)


@every_face
@body
async def test_the_terminal_is_restored_however_a_stream_ends(face: Face) -> None:
    """At its end, closed in the middle, cut off, and never begun; the display can be used again each time."""
    file = Screen()
    display = LiveDisplay(console(file=file))
    await face.stream(chat("Hello", " you"), display).until_done()
    assert "Hello you" in re.sub(r"\x1b(\[[0-?]*[A-Za-z]|[78])", "", file.getvalue())
    assert_restored(file)
    async with face.stream(face.generator(Source(chat("Hello", " again"))), display) as stream:
        async for _ in stream.text_deltas:
            break
        assert display.drawing
    assert not display.drawing
    assert_restored(file)
    with pytest.raises(sk.IncompleteStreamError):
        await face.stream(chat("Hello", finish=None), display).until_done()
    assert "IncompleteStreamError" in file.getvalue()
    assert_restored(file)
    async with face.stream(face.generator(Source(chat("never"))), display):
        pass
    assert not display.drawing
    assert_restored(file)


@every_face
@body
async def test_both_renderers_work_on_sync_and_async_streams(face: Face) -> None:
    """They are plain handlers, and show the same."""
    file, output = io.StringIO(), console(force_terminal=False, color_system=None)
    handlers = [ConsolePrinter(file, run_end=False), LiveDisplay(output, run_end=False)]
    stream = face.stream(iter(EVENTS), *handlers)
    await stream.until_done()
    assert file.getvalue() == printed(EVENTS)
    assert output.file.getvalue() == shown(EVENTS)  # type: ignore[attr-defined]


class Slow(Screen):
    """A terminal that shows nothing before the source has given all of its items."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.may_go_on, self.was_late = threading.Event(), threading.Event(), False

    def write(self, text: str, /) -> int:
        self.waits.set()
        self.was_late |= not self.may_go_on.wait(LIMIT / 4)
        return super().write(text)


class Before(Source):
    """Gives its items while a terminal waits."""

    def __init__(self, items: Iterable[Any], terminal: Slow) -> None:
        super().__init__(items)
        self.terminal = terminal

    def generate(self) -> Iterator[Any]:
        for number, item in enumerate(super().generate()):
            while number == 100 and not self.terminal.waits.is_set():
                time.sleep(0.005)
            yield item
        self.terminal.may_go_on.set()

    async def generate_async(self) -> AsyncIterator[Any]:
        number = 0
        async for item in super().generate_async():
            while number == 100 and not self.terminal.waits.is_set():  # noqa: ASYNC110 - a thread sets it
                await anyio.sleep(0.005)
            yield item
            number += 1
        self.terminal.may_go_on.set()


@every_face
@body
async def test_a_slow_terminal_does_not_delay_the_stream(face: Face) -> None:
    """Nor the event loop: no piece waits for it."""
    file = Slow()
    source = Before(chat(*["word "] * 200), file)
    await face.stream(face.generator(source), LiveDisplay(console(file=file))).until_done()
    assert not file.was_late
    assert "word word word" in file.getvalue()
    assert_restored(file)


class Broken(Screen):
    """A terminal that has gone."""

    def write(self, text: str, /) -> int:
        raise OSError(5, "Input/output error")


def test_a_terminal_that_fails_ends_the_stream() -> None:
    """Its error is raised, not lost in a thread."""

    def slowly() -> Iterator[Event]:
        for event in run_of(message_events("message", *["word "] * 1000)):
            time.sleep(0.002)
            yield event

    with pytest.raises(OSError, match="Input/output"):
        sk.stream(slowly(), LiveDisplay(console(file=Broken()))).until_done()
    assert not [thread for thread in threading.enumerate() if thread.name == "streamkit-display"]


@pytest.mark.parametrize("first", [True, False], ids=["before it", "after it"])
def test_nothing_is_drawn_while_a_handler_asks_the_user(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the code in question stands above."""
    file = Screen()
    monkeypatch.setattr(sys, "stdout", file)
    display = LiveDisplay(console(file=file))
    during: list[str] = []

    class Asks(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation) -> None:
            print("sure? ", end="", flush=True)
            before = file.getvalue()
            time.sleep(0.3)
            during.append(file.getvalue()[len(before) :])
            assert before.endswith("sure? ")
            assert "34/24" in re.sub(r"\x1b(\[[0-?]*[A-Za-z]|[78])", "", before)
            confirmation.approve()

    def agent() -> Iterator[Any]:
        yield from interpreter()

    handlers = [Asks(), display] if first else [display, Asks()]
    sk.stream(agent(), *handlers, protocol="open_interpreter").until_done()
    assert during == [""]
    text = re.sub(r"\x1b(\[[0-?]*[A-Za-z]|[78])", "", file.getvalue())
    assert "✓ approved" in text
    assert "1.41" in text


def test_a_subclass_need_not_call_the_constructor_of_its_base() -> None:
    """Its own hooks run, and it shows the stream."""

    class Mine(ConsolePrinter):
        def __init__(self) -> None:
            self.heard = ""

        def on_text_delta(self, delta: Delta, snapshot: sk.Message) -> None:
            self.heard += delta.value

    class MyDisplay(LiveDisplay):
        def __init__(self) -> None:
            self.heard = ""

    mine = Mine()
    sk.stream(chat("Hi"), mine, MyDisplay()).until_done()
    assert mine.heard == "Hi"


def test_without_rich_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The printer needs none."""
    for name in [name for name in sys.modules if name.split(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "rich":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(sk.UsageError, match=r"pip install 'streamkit-sdk\[live\]'"):
        LiveDisplay()
    assert printed(run_of(message_events("message", "Hi"))) == "[message] Hi\n"


def test_a_negative_refresh_rate_is_refused() -> None:
    """It is a number of times a second."""
    with pytest.raises(sk.UsageError, match="refresh_per_second has to be 0 or more"):
        LiveDisplay(console(), refresh_per_second=-1)


# -- Markdown in pieces


LINES = st.sampled_from(
    [
        *(
            "",
            "",
            "",
            "word",
            "two words **bold**",
            "# Head",
            "===",
            "---",
            "- item",
            "- other",
            "  - inner",
            "    deep",
        ),
        *("1. one", "2. two", "10) ten", "> quote", "> - in quote", "```python", "```", "~~~", "x = 1", "\ttab"),
        *(
            "| a | b |",
            "|---|---|",
            "| 1 | 2 |",
            "`code`",
            "<a id=1>html</a>",
            "a<br>b",
            "$$",
            "\\[ x",
            "\\]",
            "[a]: http://b",
            "* * *",
            "***",
            "+ plus",
        ),
        *("  lazy", "-", "1.", "\\", "![i](u)", "&amp;", "    ```"),
    ]
)


def rendered(pieces: Iterable[str], width: int = 60) -> str:
    """The blocks as they are settled, with the blank lines between them."""
    output = console(width, force_terminal=False, color_system=None)
    markdown = IncrementalMarkdown()
    lines: list[str] = []

    def put(final: bool) -> None:
        for block in markdown.take_settled(final=final):
            rows = rows_of(output, Prose.of(block.tokens, "ansi_dark"), width)
            text = "\n".join("".join(segment.text for segment in row) for row in rows).strip("\n")
            lines.extend([*([""] if lines and not block.joins else []), *text.split("\n")])

    for text in pieces:
        markdown.feed(text)
        markdown.tail(width, 5)
        put(final=False)
    put(final=True)
    return "".join(f"{line.rstrip()}\n" for line in lines)


@pytest.mark.slow
@given(st.lists(LINES, max_size=14), st.data())
@settings(deadline=None, max_examples=50)
def test_markdown_in_pieces_is_the_same_markdown(lines: list[str], data: st.DataObject) -> None:
    """Wherever it is cut."""
    text = "\n".join(lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert rendered(pieces) == rendered([text]) == rendered(list(text))


def test_an_empty_block_of_code_is_no_line() -> None:
    """Whether its item is settled together with the next one or alone."""
    text = "- item\n    ```\n- item\n# Head\n"
    assert rendered([text]) == rendered(list(text)) == " • item\n • item\n\nHead\n"


@given(st.lists(LINES, max_size=10), st.integers(2, 12))
@settings(deadline=None)
def test_no_letter_is_lost_on_a_narrow_terminal(lines: list[str], width: int) -> None:
    """However narrow it is."""

    def letters(text: str) -> Counter[str]:
        return Counter(re.sub(r"[\W\d_]", "", re.sub("python|amp|<br>", "", text)))

    text = "\n".join(lines)
    assert not letters(text) - letters(rendered([text], width))


def test_a_settled_block_is_forgotten() -> None:
    """Only the last block of a long text is held."""
    markdown = IncrementalMarkdown()
    for _ in range(1000):
        markdown.feed("A paragraph.\n\n- an item\n- another\n\n```\ncode\n```\n")
        markdown.take_settled()
        assert len(markdown.source) < 20


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "word " * 10_000,
        "x" * 40_000,
        "```\n" + "line of code\n" * 3_000,
        "| a | b |\n|--|--|\n" + "| cell | other |\n" * 2_000,
        "> quoted\n" * 4_000,
        "- item\n" + "  goes on\n" * 3_000,
        "[" * 40_000,
        "*a **b " * 5_000,
        "`" * 30_000,
        "> " * 3_000 + "x",
        "- " * 3_000 + "x",
        "![" * 10_000,
        "<" * 30_000,
        "&" * 30_000 + ";",
    ],
    ids=lambda text: str(text)[:12].strip(),
)
def test_no_block_is_too_long(text: str) -> None:
    """It is settled in parts, completely, and in little time."""
    markdown = IncrementalMarkdown()
    began = time.process_time()
    longest = 0
    for start in range(0, len(text), 997):
        markdown.feed(text[start : start + 997])
        markdown.take_settled()
        markdown.tail(80, 24)
        longest = max(longest, len(markdown.source))
    markdown.take_settled(final=True)
    assert time.process_time() - began < LIMIT / 5
    assert longest <= LONGEST + 1000


@pytest.mark.parametrize("text", ["word " * 9_000, "```\n" + "code\n" * 9_000, "> quoted\n" * 4_000, "x" * 40_000])
def test_nothing_of_a_long_block_is_lost(text: str) -> None:
    """Not one word of it."""

    def words(text: str) -> str:
        return re.sub(r"[\s>`▌]", "", text)

    assert words(rendered([text])) == words(text)


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (
            60,
            [
                " name                                        value x   c",
                " ─────────────────────────────────────────────────────────",
                " some cell                                         1  mid",
                " another code with a long text inside of it    12345  日本",
                " a",
            ],
        ),
        (
            26,
            [
                " name        value x   c",
                " ─────────────────────────",
                " some cell         1  mid",
                " another       12345  日本",
                " code with",
                " a long",
                " text",
                " inside of",
                " it",
                " a",
            ],
        ),
    ],
)
def test_a_table_has_columns(width: int, lines: list[str]) -> None:
    """Each as wide as it needs, the widest folded where the terminal is narrow; aligned as the table says."""
    cells = "| some cell | 1 | mid |\n| another `code` with a long text inside of it | 12345 | 日本 |\n| a |\n"
    assert rendered(["| name | value **x** | c |\n|---|--:|:-:|\n" + cells], width).splitlines() == lines


@pytest.mark.parametrize(
    ("source", "language"),
    [
        ("def f(x):\n    '''Doc\n  string'''\n    return x + 1  # a comment\n\n\nclass A: pass", "python"),
        ("\n\n  trailing  \n  ", "python"),
        ("SELECT 'a\nb' FROM t; -- c", "sql"),
        ("no such language", "klingon"),
        ("日本 = '語' * 3", "python"),
    ],
)
@pytest.mark.parametrize("theme", ["ansi_dark", "monokai"])
def test_highlighting_changes_only_colours(source: str, language: str, theme: str) -> None:
    """Characters and lines stay; a token of several lines is coloured on each."""
    rows = rows_of(console(80), Code(source, language, theme), 80)
    assert ["".join(segment.text for segment in row) for row in rows] == [line.rstrip() for line in source.split("\n")]
    colours = {segment.text: segment.style and segment.style.color for row in rows for segment in row}
    if language == "python" and "Doc" in source:
        assert colours["'''Doc"] == colours["  string'''"] is not None
        assert colours["return"] not in (None, colours["# a comment"])


def test_an_empty_item_has_its_mark() -> None:
    """It does not vanish from its list."""
    assert rendered(["- one\n-\n- three\n"]).splitlines() == [" • one", " •", " • three"]


def test_a_table_keeps_the_text_of_its_cells() -> None:
    """On a narrow terminal too."""
    row = "".join(f"| word{n} " for n in range(20)) + "|\n"
    text = rendered([row + "|--" * 20 + "|\n" + row], 40)
    assert all(text.count(f"word{n}") >= 2 for n in range(20))
    narrow = rendered(["| a |\n|---|\n| " + "x" * 100 + " |\n"], 20)
    assert narrow.count("x") == 100


def test_line_ends_stay_where_they_are() -> None:
    """Models mean them, although Markdown does not."""
    assert rendered(["Roses are red\nviolets are blue"]) == "Roses are red\nviolets are blue\n"


# -- recordings


@pytest.mark.slow
@pytest.mark.parametrize(
    "protocol", ["anthropic-messages", "letta", "open-interpreter", "openai-chat", "openai-responses"]
)
def test_every_recorded_stream_can_be_shown(protocol: str) -> None:
    """In either renderer, on a small terminal, with all of its text."""
    for parameter in recordings(protocol):
        path: Path | None = parameter.values[0]
        if path is None:
            pytest.skip("the recorded streams are not beside this checkout")
        file, output = io.StringIO(), console(40, 10)
        display = LiveDisplay(output, refresh_per_second=0, run_end=False, warnings=False)
        stream = sk.stream(path, ConsolePrinter(file), display)
        try:
            stream.until_done()
        except sk.StreamkitError:
            continue
        glass = Glass(40, 10)
        glass.feed(output.file.getvalue())  # type: ignore[attr-defined]
        for message in stream.messages:
            if isinstance(message, sk.TextMessage) and message.role == "assistant" and message.content.strip():
                word = max(re.findall(r"\w+", message.content) or [""], key=len)
                assert word in file.getvalue()
                assert Text(word).plain in "".join(glass.lines).replace(" ", "") or len(word) > 30


def test_the_end_of_an_earlier_message_does_not_end_the_current_one() -> None:
    """A text that stays open before a call; the call's bracket is closed once."""
    out = io.StringIO()
    sk.stream(chat("thinking", finish=None) + calls("f")[1:], ConsolePrinter(out)).until_done()
    assert '[tool_call] f({"n": 0})\n' in out.getvalue()


TURNING = ("\u061c", "\u200e", "\u200f", "\u2028", "\u2029", "\u202e", "\u2066", "\x9b", "\x1b")
UNSEEN = (
    "\u200b",
    "\u2060",
    "\u2064",
    "\u206a",
    "\ufeff",
    "\ufff9",
    "\u3164",
    "\U000e0001",
    "\U000e0041",
    "\U000e0101",
)


@pytest.mark.parametrize("mark", [*TURNING, *UNSEEN], ids=lambda mark: f"{ord(mark):x}")
def test_no_invisible_or_direction_changing_character_reaches_the_terminal(mark: str) -> None:
    """Either renderer replaces it, in any kind of message."""
    events = run_of(
        message_events("message", f"a{mark}b"),
        message_events("code", f"a{mark}b", id="m2", format="python"),
        message_events("tool_call", f"a{mark}b", id="m3", name=f"f{mark}", call_id="c1"),
        message_events("console", f"a{mark}b", id="m4", role="computer", format="output"),
    )
    for text in (printed(events), shown(events)):
        assert mark not in text
        assert text.count("b") >= 4


@pytest.mark.parametrize("text", ["👩\u200d👩\u200d👧", "❤\ufe0f", "\u0645\u06cc\u200c\u062e", "co\xadoperate"])
def test_joined_emoji_and_letters_stay(text: str) -> None:
    """Their invisible characters are legitimate."""
    assert text in printed(run_of(message_events("message", text)))


@pytest.mark.parametrize("renderer", [ConsolePrinter, lambda file: LiveDisplay(Console(file=file))])
def test_a_broken_pipe_fails_the_stream(renderer: Any) -> None:
    """As any error of a hook does; whether to report it is the program's decision."""
    reading, writing = os.pipe()
    os.close(reading)
    file = os.fdopen(writing, "w", buffering=1)
    stream = sk.stream(iter(run_of(message_events("message", "One\n\n", "Two\n"))), renderer(file))
    with pytest.raises(BrokenPipeError):
        stream.until_done()
    assert stream.ended
    assert stream.status == "failed"
    with contextlib.suppress(BrokenPipeError):
        file.close()


# -- what a display folds, times and saves

LONG_CODE = "\n".join(f"step_{n}()" for n in range(1, 101))


def test_long_code_is_folded() -> None:
    """The first and the last lines are shown, with their numbers, and how many are left out."""
    events = run_of(message_events("code", LONG_CODE, id="k", format="python"))
    lines = shown(events, code_lines=8).splitlines()
    assert lines == [
        "── python",
        *(f"  {n} step_{n}()" for n in range(1, 7)),
        "    … 92 more lines",
        "   99 step_99()",
        "  100 step_100()",
    ]
    assert "more lines" in shown(events)
    for options in ({"code_lines": None}, {"code_lines": 100}, {"code_lines": 99}):
        assert len(shown(events, **options).splitlines()) == 101


def test_code_that_waits_for_a_yes_is_shown_completely() -> None:
    """Nobody says yes to lines that are not there. The question has the keys of who asks it."""
    code = message_events("code", LONG_CODE, id="k", format="python")
    asked = sk.ConfirmationCreated(sk.Confirmation("c", sk.CodeMessage("k", format="python", content=LONG_CODE)))
    text = shown(run_of(code, asked), code_lines=8, answers="y: yes, n: no")
    assert text.count("step_50()") == 1
    assert text.index("100 step_100()") < text.index("? may this code run? (y: yes, n: no)")


def test_code_and_calls_show_for_how_long_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """While they run, and afterwards; a fraction of a second is not worth a line."""
    now = [1000.0]
    monkeypatch.setattr("streamkit.renderers.activity.time", SimpleNamespace(monotonic=lambda: now[0]))

    def events(seconds: float) -> Iterator[Event]:
        yield from run_of(message_events("code", "f()", id="k", format="python"))[:-2]
        now[0] += seconds
        yield from message_events("console", "1\n", id="o", role="computer", format="output")
        yield from message_events("tool_call", "{}", id="c", name="look", call_id="c")
        now[0] += seconds
        yield sk.RawEvent("tick", {})
        yield from message_events("tool_output", "found", id="f", call_id="c")
        yield from run_of()[-2:]

    seen = ["\n".join(lines) for lines in frames(events(7))]
    assert any(re.search(r"^. python 7 s$", screen, re.MULTILINE) for screen in seen)
    assert any(re.search(r"^. look 7 s$", screen, re.MULTILINE) for screen in seen)
    assert "│ 1\n  took 7 s\n" in seen[-1]
    assert seen[-1].endswith("└ found\n  took 7 s")
    assert "took" not in "\n".join(frames(events(0.4))[-1])


def test_errors_differ_from_output_without_colours() -> None:
    """What came from stderr has another mark, a tool's failure a word."""
    parts = [("one\n", "stdout"), ("oh\n", "stderr"), ("no\n", "stderr"), ("two\n", "stdout")]
    events = run_of(
        created("console", "o", role="computer", format="output"),
        *(piece("console", "o", text, stream=stream, role="computer", format="output") for text, stream in parts),
        done("console", "o", role="computer", format="output"),
        [created("tool_output", "t"), piece("tool_output", "t", "broken"), done("tool_output", "t", status="failed")],
    )
    assert shown(events).splitlines()[:4] == ["│ one", "! oh", "! no", "│ two"]
    assert shown(events).splitlines()[-2:] == ["└ broken", "(failed)"]


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="  # 1 x 1


@pytest.mark.parametrize("show", [printed, shown])
def test_pictures_are_saved_and_their_paths_shown(show: Any, tmp_path: Path) -> None:
    """For their owner alone. What is no picture is not saved, and a folder that cannot be written is said."""
    events = run_of(
        message_events("image", PIXEL, format="base64.png"),
        message_events("image", "no base64", id="m2", format="base64.png"),
    )
    folder = tmp_path / "pictures"
    text = show(events, pictures=folder)
    (path,) = folder.iterdir()
    assert path.read_bytes() == base64.b64decode(PIXEL)
    assert (path.suffix, path.stat().st_mode & 0o077) == (".png", 0)
    assert str(path) in text.replace("\n", "").replace("  ", "")
    assert "not saved" in text
    assert "bytes" in show(events)
    (tmp_path / "file").touch()
    assert "not saved" in show(events, pictures=tmp_path / "file")


@pytest.mark.parametrize("show", [printed, shown])
def test_a_displayed_document_is_shown_as_its_text(show: Any) -> None:
    """Not as its markup: a table is for a browser. Without a text its size is shown."""
    table = "<table><tr><td>1</td></tr></table>"
    header: dict[str, Any] = {"role": "computer", "format": "html"}
    text = show(run_of(message_events("code", table, **header, metadata={"text": "   a\n0  1"})))
    assert "<table>" not in text
    assert "a\n" in text
    assert "0  1" in text
    assert f"(html, {len(table)} characters)" in show(run_of(message_events("code", table, **header)))


def test_a_text_that_was_cut_off_is_marked_on_request() -> None:
    """Not where the program says so itself."""
    events = run_of(created("message", "m"), piece("message", "m", "half"), done("message", "m", status="cancelled"))
    assert shown(events).splitlines() == ["half", "(cancelled)"]
    assert shown(events, cut_off=False).splitlines() == ["half"]


def test_lines_are_drawn_again_where_the_terminal_has_another_width() -> None:
    """Though they are the same: the terminal has wrapped or moved what stood there. With the same width nothing is written."""
    output = console(80)
    region = Region(output)
    written = []
    for width in (80, 80, 40, 40, 80):
        output.width = width
        before = len(output.file.getvalue())  # type: ignore[attr-defined]
        region.show([], [[Segment("a line")]])
        written.append("a line" in output.file.getvalue()[before:])  # type: ignore[attr-defined]
    region.close()
    assert written == [True, False, True, False, True]


def test_a_stream_that_never_starts_leaves_no_thread() -> None:
    """The one that waits for the start of a stream ends with the stream that nobody holds any more."""
    before = {*threading.enumerate()}
    stream = sk.stream(chat("Hello"), LiveDisplay(console()))
    (thread,) = {*threading.enumerate()} - before
    assert not stream.started
    del stream
    gc.collect()
    thread.join(LIMIT)
    assert not thread.is_alive()
