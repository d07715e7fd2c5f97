"""Law 3 below the decoders: bytes become the same frames however they are cut.

The table is the WHATWG specification's (HTML, section 9.2), oddity by oddity; the properties hold the framers to a
second reading of it, written here as plainly as the specification has it.
"""

from __future__ import annotations

import itertools
import re
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.errors import LimitError
from streamkit.messages.json_text import LONG, shallow
from streamkit.protocols.framing import (
    Framer,
    JsonFramer,
    NdjsonFramer,
    SseFramer,
    as_data,
    as_frame,
    framer_for,
    sse_frame,
)

law = settings(deadline=None, derandomize=True, database=None, max_examples=50)

Frames = list[tuple[bytes, bytes, bytes]]

ODDITIES: dict[str, tuple[bytes, Frames]] = {
    "one event": (b"data: a\n\n", [(b"", b"", b"a")]),
    "no space after the colon": (b"data:a\n\n", [(b"", b"", b"a")]),
    "one space is taken off, no more": (b"data:  a \n\n", [(b"", b"", b" a ")]),
    "a tab is no space": (b"data:\ta\n\n", [(b"", b"", b"\ta")]),
    "colons in the value": (b"data: a:b: c\n\n", [(b"", b"", b"a:b: c")]),
    "a field without a colon has an empty value": (b"data\n\n", [(b"", b"", b"")]),
    "two of them make a newline": (b"data\ndata\n\n", [(b"", b"", b"\n")]),
    "lines of data are joined by newlines": (b"data: a\ndata\ndata: b\n\n", [(b"", b"", b"a\n\nb")]),
    "all three fields": (b"id: 7\nevent: e\ndata: a\n\n", [(b"7", b"e", b"a")]),
    "the fields in any order": (b"data: a\nevent: e\nid: 7\n\n", [(b"7", b"e", b"a")]),
    "the last name and the last id count": (
        b"event: d\nevent: e\nid: 6\nid: 7\ndata: a\n\n",
        [(b"7", b"e", b"a")],
    ),
    "an empty id takes the one before it back": (b"id: 7\nid\ndata: a\n\n", [(b"", b"", b"a")]),
    "an id with a NUL is ignored": (b"id: 7\nid: 8\x009\ndata: a\n\n", [(b"7", b"", b"a")]),
    "an id with a NUL, alone": (b"id: 8\x00\ndata: a\n\n", [(b"", b"", b"a")]),
    "a NUL in data is data": (b"data: a\x00b\n\n", [(b"", b"", b"a\x00b")]),
    "no data, no event; its name is forgotten": (b"event: e\n\ndata: a\n\n", [(b"", b"", b"a")]),
    "an id is its own event's": (b"id: 7\ndata: a\n\ndata: b\n\n", [(b"7", b"", b"a"), (b"", b"", b"b")]),
    "a comment": (b": c\n\ndata: a\n\n", [(b"", b"", b"a")]),
    "a comment that looks like a field": (b":data: c\ndata: a\n\n", [(b"", b"", b"a")]),
    "a comment inside an event": (b"event: e\n: c\ndata: a\n:\n\n", [(b"", b"e", b"a")]),
    "only comments": (b": c\n\n: c\n\n", []),
    "retry and unknown fields are ignored": (b"retry: 10\nwhy: not\ndata: a\n\n", [(b"", b"", b"a")]),
    "field names have a case": (b"Data: a\n\nDATA: a\n\n", []),
    "blank lines": (b"\n\n\ndata: a\n\n\n\n\ndata: b\n\n\n", [(b"", b"", b"a"), (b"", b"", b"b")]),
    "carriage returns with newlines": (
        b"event: e\r\ndata: a\r\n\r\ndata: b\r\n\r\n",
        [(b"", b"e", b"a"), (b"", b"", b"b")],
    ),
    "carriage returns alone": (b"event: e\rdata: a\r\rdata: b\r\r", [(b"", b"e", b"a"), (b"", b"", b"b")]),
    "line ends of all three kinds": (
        b"data: a\rdata: b\r\ndata: c\n\r\ndata: d\r\n\rdata: e\r\n\n",
        [(b"", b"", b"a\nb\nc"), (b"", b"", b"d"), (b"", b"", b"e")],
    ),
    "other characters end no line": (
        "data: a\u2028b\u0085c\x0bd\x0ce\n\n".encode(),
        [(b"", b"", "a\u2028b\u0085c\x0bd\x0ce".encode())],
    ),
    "what is no UTF-8 is kept": (b"data: \xff\xfe\n\n", [(b"", b"", b"\xff\xfe")]),
    "a byte order mark is dropped": (b"\xef\xbb\xbfdata: a\n\n", [(b"", b"", b"a")]),
    "once": (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", [(b"", b"", b"b")]),
    "only at the start": (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [(b"", b"", b"a")]),
    "nothing": (b"", []),
    "nothing but a byte order mark": (b"\xef\xbb\xbf", []),
    "half a byte order mark": (b"\xef\xbb", []),
    "the sentinel is data": (b"data: [DONE]\n\n", [(b"", b"", b"[DONE]")]),
    # Not by the letter, as the framer's docstring says:
    "the end of the stream ends an event": (b"data: a\n\nevent: e\ndata: b", [(b"", b"", b"a"), (b"", b"e", b"b")]),
    "the end of the stream after one newline": (b"data: a\n", [(b"", b"", b"a")]),
    "the end of the stream after one carriage return": (b"data: a\r", [(b"", b"", b"a")]),
    "the end of the stream makes no event of a name": (b"event: e\n", []),
    "an error in a field of its own": (b'error: {"code": 1}\n\n', [(b"", b"error", b'{"code": 1}')]),
    "fields that are indented": (b" data: a\n\n", [(b"", b"", b"a")]),
}

LINES: dict[str, tuple[bytes, Frames]] = {
    "one line": (b'{"a":1}\n', [(b"", b"", b'{"a":1}')]),
    "no newline at the end": (b'{"a":1}\n{"b":2}', [(b"", b"", b'{"a":1}'), (b"", b"", b'{"b":2}')]),
    "blank lines": (b'\n\n{"a":1}\n \n\n[2]\n\n', [(b"", b"", b'{"a":1}'), (b"", b"", b"[2]")]),
    "a byte order mark is dropped": (b'\xef\xbb\xbf{"a":1}\n', [(b"", b"", b'{"a":1}')]),
    "a byte order mark, and no newline at the end": (b'\xef\xbb\xbf{"a":1}', [(b"", b"", b'{"a":1}')]),
    "nothing": (b"", []),
}


def frames_of(framer: Framer, pieces: Iterable[bytes]) -> Frames:
    frames: Frames = []
    for piece in pieces:
        frames += map(as_frame, framer.feed(piece))
    return [*frames, *map(as_frame, framer.finish())]


def minded(frames: Frames, names: frozenset[bytes]) -> Frames:
    """These frames as someone reads them to whom only these names mean something."""
    return [(id, name if id or name in names else b"", data) for id, name, data in frames]


def by_the_letter(body: bytes) -> Frames:
    """The specification's own algorithm, over a whole body. An id counts for its own event alone."""
    frames: Frames = []
    id = name = data = b""
    for line in re.split(rb"\r\n|\r|\n", body.removeprefix(b"\xef\xbb\xbf"))[:-1]:
        if not line:
            if data:
                frames.append((id, name, data[:-1]))
            id = name = data = b""
        field, value = line.split(b":", 1) if b":" in line else (line, b"")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"data":
            data += value + b"\n"
        elif field == b"event":
            name = value
        elif field == b"id" and b"\x00" not in value:
            id = value
    return frames


def cut(body: bytes, places: Iterable[int]) -> list[bytes]:
    bounds = [0, *sorted({place % (len(body) + 1) for place in places}), len(body)]
    return [body[start:end] for start, end in itertools.pairwise(bounds)]


values = st.text("ab:é\u2028\x00 ", max_size=4).map(str.encode)
fields = st.builds(
    b"".join, st.tuples(st.sampled_from((b"data", b"event", b"id", b"retry", b"", b"x")), st.just(b":"), values)
)
regular = st.builds(
    sse_frame,
    st.sampled_from((b"{}", b'{"a":"\xc3\xa9"}', b"[DONE]")),
    st.sampled_from(("", "e")),
    st.sampled_from(("", "7")),
)
lines = st.one_of(fields, st.sampled_from((b"data", b"id", b"event", b"")), fields, st.just(b""))
ends = st.sampled_from((b"\n", b"\r\n", b"\r"))


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """SSE bodies: a few blocks as providers send them, between lines of all kinds; each body with one kind of line
    end, or with all three."""
    end = draw(st.one_of(ends, st.none()))
    parts = [b"\xef\xbb\xbf"] if draw(st.booleans()) else []
    for piece in draw(st.lists(st.one_of(regular, lines), max_size=12)):
        if piece.endswith(b"\n\n"):
            parts.append(piece.replace(b"\n", end or b"\n"))
        else:
            parts += [piece, end or draw(ends)]
    # A lone carriage return at the very end and the line feed after it would be one line end.
    return b"".join([*parts, b":\n\n"])


@pytest.mark.parametrize("oddity", ODDITIES)
def test_an_event_stream_is_read_by_the_letter(oddity: str) -> None:
    """Each oddity of the format has these frames: at once, in two pieces cut at every byte, and byte by byte."""
    body, expected = ODDITIES[oddity]
    assert frames_of(SseFramer(), [body]) == expected
    for place in range(len(body) + 1):
        assert frames_of(SseFramer(), [body[:place], body[place:]]) == expected
    assert frames_of(SseFramer(), (body[i : i + 1] for i in range(len(body)))) == expected


@pytest.mark.parametrize("oddity", LINES)
def test_lines_of_json_are_its_frames(oddity: str) -> None:
    """The same for newline-delimited JSON."""
    body, expected = LINES[oddity]
    assert frames_of(NdjsonFramer(), [body]) == expected
    for place in range(len(body) + 1):
        assert frames_of(NdjsonFramer(), [body[:place], body[place:]]) == expected
    assert frames_of(NdjsonFramer(), (body[i : i + 1] for i in range(len(body)))) == expected


@pytest.mark.slow
@law
@given(bodies(), st.lists(st.integers(0, 400), max_size=8))
def test_every_cut_of_an_event_stream_gives_the_frames_of_the_specification(body: bytes, places: list[int]) -> None:
    """Generated bodies, whole, in random pieces, byte by byte and cut once at every byte."""
    expected = by_the_letter(body)
    assert frames_of(SseFramer(), [body]) == expected
    assert frames_of(SseFramer(), cut(body, places)) == expected
    assert frames_of(SseFramer(), cut(body, range(len(body)))) == expected
    for place in range(len(body)):
        assert frames_of(SseFramer(), [body[:place], body[place:]]) == expected


blocks = st.one_of(regular, regular, regular, lines.map(lambda line: line + b"\n"))


@pytest.mark.slow
@law
@given(st.lists(st.tuples(blocks, st.integers(1, 6)), max_size=8), st.sets(st.sampled_from((b"", b"e", b"error"))))
def test_event_names_that_mean_nothing_may_be_left_out(parts: list[tuple[bytes, int]], names: set[bytes]) -> None:
    """Whoever minds few names gets the same data, in runs of equal blocks, cut into equal pieces of every size. The same of
    them are plain, for a decoder may read these in another way."""
    body = b"".join(block * times for block, times in parts)
    heeded = frozenset(names)
    expected = as_data(by_the_letter(body), heeded)
    for size in range(1, len(body) + 1):
        pieces = [body[start : start + size] for start in range(0, len(body), size)]
        framer = SseFramer()
        framer.expect_names(heeded)
        assert [frame for piece in pieces for frame in framer.feed(piece)] == expected
        unminded = SseFramer()
        assert [frame for piece in pieces for frame in map(as_frame, unminded.feed(piece))] == by_the_letter(body)


def test_frames_without_what_is_expected_names_are_their_data_alone() -> None:
    """A run of blocks, alone or together; a name that is minded, and an id, stay."""
    framer = SseFramer()
    framer.expect_names({b"error"})
    piece, error = sse_frame(b"{}", "piece"), sse_frame(b"{}", "error")
    assert framer.feed(piece) == [b"{}"]
    assert framer.feed(piece) == [b"{}"]
    assert framer.feed(piece * 2 + piece[:9]) == [b"{}", b"{}"]
    assert framer.feed(piece[9:] + error) == [b"{}", (b"", b"error", b"{}")]
    assert framer.feed(sse_frame(b"{}", "piece", "7")) == [(b"7", b"piece", b"{}")]


def test_blocks_that_come_alone_and_change_their_names_are_read_by_the_letter() -> None:
    """Each sequence of these blocks, one a chunk, for whoever heeds all names and for whoever heeds one."""
    data = (b"{}", b"[" * LONG, b"", b"a\rb")
    alone = [b"event: e\ndata: %b\n\n" % one for one in data]
    alone += [
        b"event: f\ndata: {}\n\n",
        b"event: error\ndata: {}\n\n",
        b"data: {}\n\n",
        b"event: e\ndata: {}\ndata: {}\n\n",
    ]
    for sequence in itertools.product(alone, repeat=3):
        expected = [(id, name, shallow(data)) for id, name, data in by_the_letter(b"".join(sequence)) if data]
        for names in (frozenset({b"error"}), frozenset({b"e", b"f", b"error"})):
            framer = SseFramer()
            framer.expect_names(names)
            frames = [frame for block in sequence for frame in map(as_frame, framer.feed(block)) if frame[2]]
            assert minded(frames, names) == minded(expected, names)


def test_a_server_with_a_new_name_for_each_event_does_not_fill_the_memory() -> None:
    """The names that are known by then belong to the process, not to the stream."""
    framer = SseFramer()
    tracemalloc.start()
    try:
        for number in range(3000):
            block = b"event: name%d\ndata: {}\n\n" % number
            assert framer.feed(block) == framer.feed(block) == [(b"", b"name%d" % number, b"{}")]
        assert tracemalloc.get_traced_memory()[0] < 200_000  # 3,000 names take 1.2 MB
    finally:
        tracemalloc.stop()


def test_a_long_block_in_small_pieces_is_not_joined_at_each() -> None:
    """Whether the newest blocks were like it or not, it is one list of pieces until it is over."""
    data = b"x" * 4_000_000
    for before in (b"event: e\ndata: y\n\n", b"event: another\ndata: y\n\n", b""):
        framer = SseFramer()
        framer.feed(before * 3)
        block = b"event: e\ndata: " + data + b"\n\n"
        frames = [frame for at in range(0, len(block), 100) for frame in framer.feed(block[at : at + 100])]
        assert frames == [(b"", b"e", data)]
        assert framer.finish() == []


@pytest.mark.slow
@law
@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=6))
def test_bytes_that_are_no_event_stream_are_cut_alike_too(body: bytes, places: list[int]) -> None:
    """Any bytes give some frames, and the same ones however they are cut."""
    for kind in (SseFramer, NdjsonFramer, JsonFramer):
        whole = frames_of(kind(), [body])
        assert frames_of(kind(), cut(body, places)) == whole
        assert frames_of(kind(), cut(body, range(len(body)))) == whole


@pytest.mark.slow
@law
@given(
    st.lists(st.sampled_from((b'{"a":"\xc3\xa9\xe2\x80\xa8"}', b"[1]", b"", b"  ", b"{}\r")), max_size=8),
    st.booleans(),
    st.lists(st.integers(0, 200), max_size=6),
)
def test_every_cut_of_json_lines_gives_the_same_lines(texts: list[bytes], ended: bool, places: list[int]) -> None:
    """Only newlines end a line; blank ones mean nothing."""
    body = b"\n".join(texts) + (b"\n" if ended else b"")
    expected = [text.strip() for text in texts if text.strip()]
    for pieces in ([body], cut(body, places), cut(body, range(len(body)))):
        assert [data.strip() for _, _, data in frames_of(NdjsonFramer(), pieces)] == expected


VALUES = (
    b'{"a":"}]\\"{[,","b":{"c":[{}]}}',
    b'{\n  "text": "\\\\",\r\n  "o": {}\n}',
    '{"é":"\u2028"}'.encode(),
    b"{}",
    b"12",
    b'"a, ]b"',
    b"null",
)
layouts = st.sampled_from((b",", b"\n,\r\n", b" ,\n"))


@law
@given(st.lists(st.sampled_from(VALUES), min_size=1, max_size=6), layouts, st.lists(st.integers(0, 200), max_size=6))
def test_every_cut_of_a_list_gives_the_same_values(texts: list[bytes], between: bytes, places: list[int]) -> None:
    """Brackets and quotes in strings mean nothing, and neither does the layout. A list that is cut off has its whole values, and the
    beginning of the one after them."""
    body = b"[" + between.join(texts) + b"\n]\n"
    for pieces in ([body], cut(body, places), cut(body, range(len(body)))):
        assert [data for _, _, data in frames_of(JsonFramer(), pieces)] == texts
    broken = b"[" + between.join([*texts, b'{"a": "[{'])
    assert [data for _, _, data in frames_of(JsonFramer(), cut(broken, places))] == [*texts, b'{"a": "[{']


def test_an_object_of_a_list_is_returned_with_its_last_bracket() -> None:
    """A service sends the comma with the next one, which may come a minute later."""
    framer = JsonFramer()
    assert [*map(as_frame, framer.feed(b'[{"a": {}'))] == []
    assert framer.feed(b"}") == [(b"", b"", b'{"a": {}}')]
    assert framer.feed(b"\n,\r\n") == []


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_a_value_of_a_list_is_no_longer_than_the_limit(size: int) -> None:
    """Those before it are returned first, however the bytes are cut."""
    body = b'[{"a": 1},{"a": "' + b"x" * 2000 + b'"},{}]'
    framer = JsonFramer(1000)
    frames: Frames = []
    with pytest.raises(LimitError):
        for at in range(0, len(body), size):
            frames += map(as_frame, framer.feed(body[at : at + size]))
        framer.finish()
    assert frames == [(b"", b"", b'{"a": 1}')]


@law
@given(values.filter(lambda value: b"\x00" not in value), values, st.text("{}[]:, aé", max_size=9).map(str.encode))
def test_a_written_block_reads_as_it_was_written(id: bytes, name: bytes, data: bytes) -> None:
    """`sse_frame` and the framer agree."""
    block = sse_frame(data, name.decode(), id.decode())
    assert frames_of(SseFramer(), [block]) == [(id, name, data)]


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b'{"a"', NdjsonFramer),
        (b" \r\n\t[\n", JsonFramer),
        (b"[{", JsonFramer),
        (b"[DONE]", NdjsonFramer),
        (b"{\n", JsonFramer),
        (b"\xef\xbb\xbf{\r", JsonFramer),
        (b"\xef\xbb\xbf{\t", NdjsonFramer),
        (b"data: {", SseFramer),
        (b"\xef\xbb\xbfdata", SseFramer),
        (b": a comment", SseFramer),
        (b"e", SseFramer),
        (b"", None),
        (b" \n", None),
        (b"{", None),
        (b"[", None),
        (b"\xef", None),
        (b"\xef\xbb", None),
        (b"\xef\xbb\xbf", None),
    ],
)
def test_the_start_of_a_body_decides_its_framing(start: bytes, kind: type[Framer] | None) -> None:
    """JSON begins with a bracket, and of a list, and of an object over several lines, no line is a value; whatever else there is, is
    an event stream; too little says nothing yet."""
    framer = framer_for(start)
    assert framer is None if kind is None else type(framer) is kind


def test_an_unfinished_event_is_not_returned_before_the_end() -> None:
    """A frame comes with the byte that completes it, and not again at the end."""
    framer = SseFramer()
    assert framer.feed(b"data: a\n") == []
    assert framer.feed(b"\n") == [(b"", b"", b"a")]
    assert framer.feed(b"data: b\r") == []
    assert framer.feed(b"\r") == [(b"", b"", b"b")]
    assert framer.feed(b"\n") == []
    assert framer.finish() == []
    assert framer.finish() == []


LONGEST = 1000  # bytes of an item, with all its fields and comments

# Items by what makes them long: how they begin, what fills the line that is begun, what follows as often as fits, how they end.
EVENTS: dict[str, tuple[bytes, bytes, bytes, bytes]] = {
    "data": (b"data: ", b"x", b"", b"\n"),
    "data of the newest name": (b"event: e\ndata: ", b"x", b"", b"\n"),
    "data of another name": (b"event: f\ndata: ", b"x", b"", b"\n"),
    "data with an id": (b"id: 7\nevent: e\ndata: ", b"x", b"", b"\n"),
    "lines of data": (b"data: ", b"x", b"\ndata: y", b"\n"),
    "comments before data": (b":", b"c", b"\n: c", b"\ndata: {}\n"),
    "comments alone": (b":", b"c", b"\n: c", b"\n"),
    "one comment": (b":", b"c", b"", b"\n"),
    "a name": (b"event: ", b"e", b"", b"\ndata: {}\n"),
    "a name without data": (b"event: ", b"e", b"", b"\n"),
    "an id": (b"id: ", b"7", b"", b"\nevent: e\ndata: {}\n"),
    "another field": (b"retry: ", b"7", b"", b"\ndata: {}\n"),
    "no field at all": (b"", b"x", b"", b"\n"),
}
JSON_LINES: dict[str, tuple[bytes, bytes, bytes, bytes]] = {
    "a value": (b'{"a":"', b"x", b"", b'"}'),
    "spaces after the value": (b"{}", b" ", b"", b""),
    "spaces before the value": (b"", b" ", b"", b"{}"),
    "spaces alone": (b"", b" ", b"", b""),
}


def of_size(size: int, begin: bytes, fill: bytes, more: bytes, end: bytes) -> bytes:
    """An item of so many bytes."""
    room = size - len(begin) - len(end)
    times, rest = divmod(room, len(more)) if more else (0, room)
    return begin + fill * rest + more * times + end


def limited(framer: Framer, pieces: Iterable[bytes]) -> tuple[Frames, bool]:
    """The frames, and whether an item was too long. That is raised again by each call that follows."""
    frames: Frames = []
    try:
        for piece in pieces:
            frames += map(as_frame, framer.feed(piece))
        return [*frames, *map(as_frame, framer.finish())], False
    except LimitError:
        for again in (lambda: framer.feed(b"data: {}\n\n"), framer.finish):
            with pytest.raises(LimitError):
                again()
        return frames, True


def check_limit(kind: type[Framer], head: bytes, before: bytes, item: bytes, after: bytes, *, too_long: bool) -> None:
    """Whole, in equal pieces of some sizes, and cut once: at many bytes, and at each near an end of the item."""
    body = head + before + item + after
    start = len(head + before)
    places = {*range(0, len(body), 97), *range(start - 4, start + 20), *range(start + len(item) - 12, len(body) + 1)}
    expected = frames_of(kind(), [head + before if too_long else body])
    cuts = [[body[at : at + size] for at in range(0, len(body), size)] for size in (1, 7, 399, 400, 401)]
    cuts += [[body[:place], body[place:]] for place in sorted(places)]
    for pieces in [[body], *cuts]:
        assert limited(kind(LONGEST), pieces) == (expected, too_long), [*map(len, pieces)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("name", EVENTS)
def test_an_event_is_too_long_however_it_is_cut(name: str, end: bytes) -> None:
    """All its fields and its comments count, also those of a block without data: what is held until its end is bounded. The
    events before it come all the same; blank lines are no item's."""
    before = b"data: a\n\nevent: e\ndata: b\n\nevent: e\ndata: c\n\n\n"
    afters = (b"\n", b"\n\n\ndata: d\n\n", b"\nevent: e\ndata: d\n\nevent: e\ndata")
    for too_long in (False, True):
        item = of_size(LONGEST + too_long, *EVENTS[name])
        for head, after in zip((b"", b"\xef\xbb\xbf", b""), afters, strict=True):
            parts = (part.replace(b"\n", end) for part in (before, item, after))
            check_limit(SseFramer, head, *parts, too_long=too_long)


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_without_its_end_is_too_long_however_it_is_cut(name: str) -> None:
    """Its last newline has not come, and does not count."""
    for too_long in (False, True):
        item = of_size(LONGEST + 1 + too_long, *EVENTS[name])[:-1]
        check_limit(SseFramer, b"", b"event: e\ndata: a\n\n", item, b"", too_long=too_long)
        check_limit(SseFramer, b"", b"", item, b"", too_long=too_long)


@pytest.mark.parametrize("name", JSON_LINES)
def test_a_line_of_json_is_too_long_however_it_is_cut(name: str) -> None:
    """With the spaces around it, also where there is nothing but these, and without its newline."""
    for too_long, head in itertools.product((False, True), (b"", b"\xef\xbb\xbf")):
        item = of_size(LONGEST + too_long, *JSON_LINES[name])
        for before, after in itertools.product((b"", b"{}\n[1]\n\n"), (b"", b"\n", b'\n{"b":2}\n[')):
            check_limit(NdjsonFramer, head, before, item, after, too_long=too_long)
