"""The reader of string fields in streaming JSON, beside `json.loads`."""

from __future__ import annotations

import itertools
import json
import random
import re
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import streamkit as sk
from streamkit.core import json_fields
from streamkit.core.json_fields import FieldText, JsonFields
from streamkit.core.json_paths import join_path, split_path
from streamkit.messages import json_reader

from . import values as q
from .costs import assert_costs, seconds_of


def examples(count: int) -> settings:
    """So many, without the database: what counts here is how many there are."""
    unhurried = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=count, deadline=None, suppress_health_check=unhurried, database=None)


# -- what json.loads gives


def clean(text: str) -> str:
    """Text as UTF-8 can have it: lone surrogates are lost."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def loads(text: str) -> Any:
    """As `json.loads`; of keys that are equal once they are UTF-8, the last counts."""
    return json.loads(text, object_pairs_hook=lambda pairs: {clean(key): value for key, value in pairs})


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def expected(document: str, paths: Iterable[str]) -> dict[str, str]:
    """The strings at these paths, by their own paths."""
    wanted = [split_path(path) for path in paths]
    return {
        join_path(keys): clean(value)
        for keys, value in leaves(loads(document), ())
        if any(
            len(keys) == len(path) and all(w in (None, k) for w, k in zip(path, keys, strict=True)) for path in wanted
        )
    }


def leaves(value: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    match value:
        case dict():
            for key, inner in value.items():
                yield from leaves(inner, (*keys, key))
        case list():
            for index, inner in enumerate(value):
                yield from leaves(inner, (*keys, str(index)))
        case str():
            yield keys, value
        case _:
            pass


# -- what the reader gives


class Reading:
    """What was told so far: the text of each field, and which of them are done."""

    def __init__(self, *paths: str) -> None:
        self.reader = JsonFields(*paths)
        self.texts: dict[str, str] = {}
        self.done: set[str] = set()

    def feed(self, piece: str) -> list[FieldText]:
        told = self.reader.feed(piece)
        for one in told:
            if one.replace:
                assert one.path in self.texts, "only what was told can be taken back"
                assert one.path in self.done, "a key comes again after its value"
                self.done.discard(one.path)
                self.texts[one.path] = one.text
            else:
                assert one.path not in self.done, "nothing is added to what is done"
                assert one.text or one.done, "no piece is empty"
                self.texts[one.path] = self.texts.get(one.path, "") + one.text
            one.text.encode("utf-8")
            if one.done:
                self.done.add(one.path)
        return told

    @property
    def values(self) -> dict[str, str]:
        return {path: text for path, text in self.texts.items() if path in self.done}


def read(pieces: Iterable[str], *paths: str) -> Reading:
    reading = Reading(*paths)
    for piece in pieces:
        reading.feed(piece)
    return reading


def cut(text: str, *places: int) -> list[str]:
    return [text[a:b] for a, b in itertools.pairwise((0, *sorted(places), len(text)))]


# -- documents, as text: few keys, so that they come again; all kinds of escapes, numbers and spaces

PLAIN = q.sampled_from(("a", "b c", "é", "😀", "\u2028", "\x7f", "{", "}", "[", ":", ",", "\ud800", "\udc00"))
ESCAPES = ("\\n", '\\"', "\\\\", "\\/", "\\b", "\\u0041", "\\u00E9", "\\ud83d\\ude00", "\\uD83D", "\\uDE00", "\\u0000")
inside = q.lists(PLAIN | q.sampled_from(ESCAPES), max_size=4).map("".join)
keys = q.sampled_from(("a", "b", "a", "b", "*", "a.b", "\\u0061", "0", "1", "", "\\\\", "😀"))
space = q.sampled_from(("", "", "", " ", "\n", "\t \r"))
scalars = q.sampled_from(
    ("0", "-0", "12", "-1.50", "1e9", "1E+2", "2.5e-3", "true", "false", "null", "NaN", "-Infinity", "Infinity")
)


def spaced(*parts: str | q.Values) -> q.Values:
    given = [part if isinstance(part, q.Values) else q.just(part) for part in parts]
    return q.tuples(*(one for part in given for one in (space, part))).map("".join)


strings = inside.map('"{}"'.format)
pairs: Callable[[q.Values], q.Values] = lambda value: spaced(  # noqa: E731
    keys.map('"{}"'.format), ":", value
)
values = q.recursive(
    strings | strings | scalars,
    lambda inner: (
        spaced("{", q.lists(pairs(inner), max_size=2).map(",".join), "}")
        | spaced("[", q.lists(spaced(inner), max_size=2).map(",".join), "]")
    ),
    depth=2,
)
objects = spaced("{", q.lists(pairs(values), min_size=1, max_size=4).map(",".join), "}", "")
documents = objects | objects | objects | spaced(values, "")
paths = q.lists(
    q.lists(q.sampled_from(("a", "b", "*", "a\\.b", "\\*", "0", "1", "", "\\\\", "😀")), min_size=1, max_size=3).map(
        ".".join
    ),
    min_size=1,
    max_size=3,
)

CASES = 5_000


@pytest.mark.slow
def test_any_document_in_any_pieces_gives_what_json_loads_gives() -> None:
    """At least 5,000 cases. A case is a document with paths, and one way of cutting it: equal ones count once.
    Each document that Hypothesis draws is cut in two at every place, into single characters, and at 20 random sets
    of places; so the cases are many more than the documents, of which there are 80 and more."""
    seen: set[tuple[str, tuple[str, ...], tuple[int, ...]]] = set()

    @examples(100)
    @given(q.drawn(documents, paths, q.integers(0, 2**32)))
    def check(case: tuple[str, list[str], int]) -> None:
        document, paths, seed = case
        wanted = expected(document, paths)
        chance = random.Random(seed)
        size = len(document)
        ways: list[tuple[int, ...]] = [(place,) for place in range(1, size)] + [tuple(range(1, size))]
        ways += [tuple(sorted(chance.choices(range(size + 1), k=chance.randint(2, 8)))) for _ in range(20)]
        for places in ways:
            reading = read(cut(document, *places), *paths)
            assert reading.reader.error is None
            assert reading.reader.complete
            assert reading.values == wanted
            seen.add((document, tuple(paths), places))

    check()
    assert len({document for document, _, _ in seen}) >= 80
    assert len(seen) >= CASES


@pytest.mark.slow
@examples(120)
@given(
    q.drawn(
        q.recursive(
            q.none() | q.booleans() | q.integers(-(2**60), 2**60) | q.floats() | q.text(),
            lambda inner: q.lists(inner, max_size=3) | q.dictionaries(q.text(max_size=3), inner, max_size=3),
            depth=2,
        )
    ),
    q.drawn(q.booleans()),
    q.drawn(q.sampled_from((None, 1))),
)
def test_what_json_dumps_writes_is_read(value: Any, ascii: bool, indent: int | None) -> None:
    """Any Unicode text, any keys, escaped or not; chosen are all strings up to three levels deep."""
    document = json.dumps(value, ensure_ascii=ascii, indent=indent)
    chosen = ("*", "*.*", "*.*.*")
    for pieces in ([document], [*document], cut(document, *range(0, len(document), 3))):
        reading = read(pieces, *chosen)
        assert reading.reader.complete
        assert reading.values == expected(document, chosen)


@pytest.mark.slow
@examples(120)
@given(q.drawn(objects), q.drawn(paths))
def test_what_was_told_is_the_beginning_of_what_is_told_in_the_end(document: str, paths: list[str]) -> None:
    """At every place of the document, and nothing is held back but what an escape leaves open."""
    last: dict[str, str] = {}
    reading = Reading(*paths)
    for character in document:
        for told in reading.feed(character):
            before = "" if told.replace else last.get(told.path, "")
            assert reading.texts[told.path].startswith(before)
            last[told.path] = reading.texts[told.path]
    assert {path: text for path, text in last.items() if path in reading.done} == expected(document, paths)


def test_text_is_told_with_the_piece_that_has_it() -> None:
    """Only a cut escape waits, and the first half of a pair."""
    reader = JsonFields("a")
    told = [reader.feed(piece) for piece in ('{"a":"x', "y\\", "nz", "\\ud8", "3d", "\\ude00", '"', "}")]
    assert [[(one.text, one.done) for one in some] for some in told] == [
        [("x", False)],
        [("y", False)],
        [("\nz", False)],
        [],
        [],
        [("😀", False)],
        [("", True)],
        [],
    ]


# -- the rules, one by one

TRICKY: list[tuple[str, tuple[str, ...]]] = [
    (r'{"a":"\ud83d\ude00"}', ("a",)),
    (r'{"a":"\ud83d"}', ("a",)),
    (r'{"a":"\ude00\ud83d"}', ("a",)),
    (r'{"a":"\ud83d\ud83d\ude00\ude00"}', ("a",)),
    (r'{"a":"\ud83dx\u0041\ud83d\n\ud83d\\ude00"}', ("a",)),
    ('{"a":"\ud83d\\ude00 \\ud83d\ude00 \ud83d\ude00"}', ("a",)),
    (r'{"a":"\\\"\/\b\f\n\r\t\u0000\uFFFF\uABCD\\u0041"}', ("a",)),
    ('{"a":""}', ("a",)),
    ('{"a":"x","a":"y","b":{"a":"z"},"b":{"c":""},"a":1}', ("a", "b.a", "b.c")),
    ('{"a":"x","a":"","\\u0061":"\\u0061"}', ("a",)),
    ('{"a":[{"b":"x"},{"b":"y"}],"a":[{"b":"z"}]}', ("a.*.b", "a.1.b")),
    ('{"a":"x","a":{"a":"y"},"a":"z","a":["q"]}', ("a", "a.a", "a.*", "*")),
    ('{"items":["x",{"text":"y"},["z",[],{}],null,"w"]}', ("items.0", "items.*.text", "items.2.0", "items.4")),
    ('[{"a":"x"},["y"],"z"]', ("0.a", "1.0", "2", "*")),
    ('{"a.b":"x","a":{"b":"y"},"*":"z","":{"":"w"}}', ("a\\.b", "a.b", "\\*", ".")),
    (' { "a" : "x" ,\n"b"\t:\r[ 1 , "y" ] } ', ("a", "b.1")),
    ('{"n":-0,"m":[0.5e-7,1E+9,-12.0],"t":true,"f":false,"z":null,"a":"x"}', ("a", "n", "m.0")),
    ('{"n":NaN,"m":[-Infinity,Infinity],"a":"x"}', ("a",)),
    ('"x"', ("x", "*")),
    ("-12.5e3", ("a",)),
    ("null", ()),
    ("[]", ("0",)),
    ("[[[[[[]]]]],{}]", ("0.0", "*.*.*")),
]


@pytest.mark.parametrize(("document", "paths"), TRICKY)
def test_a_tricky_document_reads_the_same_at_every_two_cuts(document: str, paths: tuple[str, ...]) -> None:
    """In three pieces: at every two places that are close together, and at one of three of the other pairs."""
    wanted = expected(document, paths)
    for places in itertools.combinations_with_replacement(range(len(document) + 1), 2):
        if places[1] - places[0] > 2 and sum(places) % 3:
            continue
        reading = read(cut(document, *places), *paths)
        assert (reading.values, reading.reader.complete, reading.reader.error) == (wanted, True, None), places


def test_a_key_that_comes_again_takes_back_what_was_told() -> None:
    """At once, and below it too. Without new text the field is open: it has no value."""
    reader = JsonFields("a", "b.*")
    told = reader.feed('{"a": "x", "b": {"c": "y", "d": "z"}, "b": 7, "a": "w')
    assert told == [
        FieldText("a", "x", True),
        FieldText("b.c", "y", True),
        FieldText("b.d", "z", True),
        FieldText("b.c", "", False, True),
        FieldText("b.d", "", False, True),
        FieldText("a", "", False, True),
        FieldText("a", "w", False),
    ]


def test_of_nested_paths_each_is_told() -> None:
    """A path may be the beginning of another, and two may fit the same field, which is told once."""
    assert read(['{"a": {"b": "x"}}'], "a", "a.b", "a.*", "*.b").values == {"a.b": "x"}
    assert read(['{"a": "y"}'], "a", "a.b").values == {"a": "y"}


@pytest.mark.slow
def test_deep_nesting_is_no_limit() -> None:
    """Where `json.loads` gives up; a field after it is still told."""
    deep = 50_000
    reading = read(['{"b":' + '[{"b":' * deep, "1", "}]" * deep, ',"a":"x"}'], "a", "b.0.b")
    assert reading.reader.complete
    assert reading.values == {"a": "x"}
    with pytest.raises(RecursionError):
        json.loads("[" * deep)


def test_a_number_on_its_own_is_complete_while_it_may_grow() -> None:
    """Anything else is complete for good."""
    reader = JsonFields()
    told = []
    for piece in "-12.5e+3 ":
        reader.feed(piece)
        told.append(reader.complete)
    assert told == [False, True, True, False, True, False, False, True, True]
    reader.feed("4")
    assert reader.error == "character 9: nothing more should come here, not '4'"


@pytest.mark.parametrize(
    "keys", [("a",), ("a", "b"), ("a.b", "c"), ("*",), ("", ""), ("\\",), ("\\.", "*x", "."), ("\n",)]
)
def test_a_path_is_its_keys_and_back(keys: tuple[str, ...]) -> None:
    """Whatever is in them."""
    assert split_path(join_path(keys)) == keys
    assert read([json.dumps({keys[0]: "x"})], join_path(keys[:1])).values == {join_path(keys[:1]): "x"}


@pytest.mark.slow
@examples(100)
@given(q.drawn(q.lists(q.none() | q.text(), min_size=1)))
def test_any_keys_make_a_path(keys: list[str | None]) -> None:
    """None stands for any key."""
    assert split_path(join_path(keys)) == tuple(keys)


@pytest.mark.parametrize("path", ["a\\", "\\", "a.\\", None, 3, b"a"])
def test_a_malformed_path_is_refused(path: Any) -> None:
    """A backslash that stands before nothing, and what is no text."""
    with pytest.raises(sk.UsageError, match="invalid path"):
        JsonFields(path)


# -- what is no JSON

MALFORMED = {
    "": None,
    "{": None,
    '{"a" "b"}': "character 5: a colon should come here, not '\"'",
    '{"a":"x" "b"}': "character 9: a comma or a closing brace should come here, not '\"'",
    '["x" 1]': "character 5: a comma or a closing bracket should come here, not '1'",
    '{"a":"x",}': "character 9: a key in quotes should come here, not '}'",
    "[1,]": "character 3: a value should come here, not ']'",
    "{1:2}": "character 1: a key in quotes should come here, not '1'",
    "{'a':1}": 'character 1: a key in quotes should come here, not "\'"',
    '{"a":"x\ny"}': "character 7: text, with an escape for a control character should come here, not '\\n'",
    '{"a":"\\x41"}': "character 6: an escape that JSON has should come here, not '\\\\x'",
    '{"a":"\\u00g0"}': "character 6: an escape that JSON has should come here, not '\\\\u00g'",
    '{"a":01}': "character 6: the rest of a number should come here, not '1'",
    '{"a":1.}': "character 7: the rest of a number should come here, not '}'",
    '{"a":tru}': "character 5: a value should come here, not 'tru}'",
    '{"a":"x"} {': "character 10: nothing more should come here, not '{'",
    "{]": "character 1: a key in quotes should come here, not ']'",
    "[}": "character 1: a value should come here, not '}'",
    "\ufeff{}": "character 0: a value should come here, not '\\ufeff'",
    "Hello": "character 0: a value should come here, not 'H'",
    "[Infinite]": "character 1: a value should come here, not 'Infinite'",
    "[-1.5e+x]": "character 7: the rest of a number should come here, not 'x'",
    "[-1.5ee1]": "character 6: the rest of a number should come here, not 'e'",
    "[--1]": "character 2: the rest of a number should come here, not '-'",
    "[-Ix]": "character 1: a value should come here, not '-Ix'",
}


@pytest.mark.parametrize(("text", "error"), MALFORMED.items())
def test_what_is_malformed_is_said_once_and_for_all(text: str, error: str | None) -> None:
    """Where it is, and what should have come. Nothing is told after it, and nothing that was told was wrong."""
    reader = JsonFields("a", "*")
    told = reader.feed(text)
    assert reader.error == error
    assert not reader.complete
    if error is not None:
        assert reader.feed('{"a":"y"}') == []
        assert reader.error == error
        assert [(one.path, one.text) for one in told] in ([], [("a", "x")], [("0", "x")])


@pytest.mark.parametrize("text", MALFORMED)
def test_an_error_is_the_same_wherever_the_pieces_are_cut(text: str) -> None:
    """Position and excerpt: every cut in two, and a character at a time."""
    cuts = [[text[:at], text[at:]] for at in range(len(text) + 1)]
    for pieces in (*cuts, list(text)):
        reader = JsonFields("a", "*")
        for piece in pieces:
            reader.feed(piece)
        assert reader.error == MALFORMED[text]


def test_a_path_has_at_least_one_key() -> None:
    """`""` is the path of the key `""`, so no keys cannot be written as it."""
    assert split_path(join_path([""])) == ("",)
    with pytest.raises(sk.UsageError, match="at least one key"):
        join_path(())


def test_text_before_a_fault_is_told() -> None:
    """In the same piece, too; the field is not done."""
    assert JsonFields("a").feed('{"a":"x\\ny\x00z"}') == [FieldText("a", "x\ny", False)]


WORDS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")
FILLS = (
    "",
    '"',
    "0",
    '""',
    '0"',
    '00"',
    '000"',
    '0000"',
    'n"',
    'u0000"',
    *{word[n:] for word in WORDS for n in range(8)},
)


def can_go_on(text: str) -> bool:
    """Whether some text makes this a document: tried are ends of what is cut, a value for a key, closing brackets."""
    for fill, more in itertools.product(FILLS, ("", ":0", '"":0', "0")):
        begun = text + fill + more
        if is_json(begun + closing(begun)):
            return True
    return False


def closing(text: str) -> str:
    """The brackets that are open."""
    out: list[str] = []
    for token in re.findall(r'"(?:[^"\\]|\\.)*(?:"|\Z)|[{}\[\]]', text, re.DOTALL):
        if token in "{[":
            out.append("}" if token == "{" else "]")
        elif token in "}]" and out:
            out.pop()
    return "".join(reversed(out))


def check_prefix(text: str, reader: JsonFields) -> None:
    assert reader.complete == is_json(text), text
    assert (reader.error is None) == can_go_on(text), (text, reader.error)


@pytest.mark.slow
def test_every_short_text_is_faulty_exactly_where_no_document_can_begin_so() -> None:
    """All texts of up to three characters of an alphabet, and some of four, as far as their beginnings are sound: more
    than 1,500."""
    alphabet = '{}[],:"\\u1d-.0eaIN \n'
    sound = [""]
    checked = 0
    for length in range(4):
        longer = []
        for text in sound:
            for character in alphabet:
                reader = JsonFields("a", "0", "*.*")
                for piece in text + character:
                    reader.feed(piece)
                check_prefix(text + character, reader)
                checked += 1
                if reader.error is None and length < 3 and (length < 2 or sum(map(ord, text)) % 9 == 0):
                    longer.append(text + character)
        sound = longer
    assert checked > 1_500


@pytest.mark.slow
def test_a_damaged_document_is_complete_exactly_where_json_loads_takes_it() -> None:
    """One character is removed, changed or added. At each beginning, `complete` is what `json.loads` says; there is a
    fault exactly where no document can begin so; and pieces do not matter. More than 3,000 cases: a case is a
    beginning of a damaged document."""
    seen: set[str] = set()

    @examples(120)
    @given(
        q.drawn(documents),
        q.drawn(q.integers(0, 10_000)),
        q.drawn(q.sampled_from(("", '"', "\\", "{", "}", "]", ",", ":", "0", "-", ".", "\n", "x"))),
    )
    def check(document: str, place: int, other: str) -> None:
        place %= len(document)
        document = document[:place] + other + document[place + (place % 2) :]
        chosen = ("a", "*.a", "*.*")
        reading = Reading(*chosen)
        for end, character in enumerate(document, 1):
            told = reading.feed(character)
            begun = document[:end]
            seen.add(begun)
            assert reading.reader.complete == is_json(begun)
            if reading.reader.error is not None:
                assert not any(one.done for one in told)
                assert not can_go_on(begun)
                assert can_go_on(begun[:-1])
                break
        if reading.reader.complete:
            assert reading.values == expected(document, chosen)
        whole = read([document], *chosen)
        assert (whole.texts, whole.done, whole.reader.error is None) == (
            reading.texts,
            reading.done,
            reading.reader.error is None,
        )

    check()
    assert len(seen) > 1_500


@examples(100)
@given(q.drawn(q.lists(q.text(), max_size=6)), q.drawn(paths))
def test_no_text_raises(pieces: list[str], paths: list[str]) -> None:
    """Whatever it is; and it is no document unless `json.loads` says so."""
    reader = JsonFields(*paths)
    for piece in pieces:
        reader.feed(piece)
    assert reader.complete == is_json("".join(pieces))


# -- cost


def message(size: int) -> str:
    return json.dumps(
        {
            "thoughts": 'It\'s "fine"\n' * (size // 50),
            "n": [1, 2.5, None] * (size // 40),
            "message": "né " * (size // 8),
        }
    )


def in_pieces(document: str, size: int = 4) -> Sequence[str]:
    return [document[i : i + size] for i in range(0, len(document), size)]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_document() -> None:
    """100 KB of strings, chosen and not, and of numbers, in pieces: a few kilobytes are kept at any time. What other threads
    allocate meanwhile does not count."""
    pieces = in_pieces(message(100_000))
    reader = JsonFields("message")
    of_reader = [tracemalloc.Filter(True, module.__file__) for module in (json_fields, json_reader)]
    held: list[int] = []
    tracemalloc.start()
    for number, piece in enumerate(pieces):
        reader.feed(piece)
        if number % 1_300 == 0:
            traces = tracemalloc.take_snapshot().filter_traces(of_reader).statistics("filename")
            held.append(sum(trace.size for trace in traces))
    tracemalloc.stop()
    assert reader.complete
    assert len(held) > 15 and 0 < max(held) < 20_000


@pytest.mark.slow
def test_a_piece_costs_the_same_in_a_long_document() -> None:
    """CPU time a piece, at 20 KB and at 1 MB: flat, with a margin for the machine."""

    def cost(size: int) -> float:
        pieces, reader = in_pieces(message(size)), JsonFields("message")

        def feed_all() -> None:
            for piece in pieces:
                reader.feed(piece)

        return seconds_of(feed_all) / len(pieces)

    assert_costs(lambda: cost(1_000_000), 3, lambda: cost(20_000))


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [False, True], ids=["one string", "a string at each depth, twice"])
def test_a_character_costs_the_same_however_deep_the_chosen_path_is(repeats: bool) -> None:
    """CPU time for a character read or told, where the whole nesting is of chosen paths: flat, with a margin."""

    def cost(depth: int) -> float:
        levels = range(0, depth, depth // 100) if repeats else [depth - 1]
        paths = [".".join(["a"] * level + ["b"]) for level in levels]
        opening = "".join('{"b":"x","b":"y","a":' if level in levels else '{"a":' for level in range(depth))
        reader, told = JsonFields(*paths), list[int]()
        taken = seconds_of(lambda: told.extend(len(piece.path) for piece in reader.feed(opening + "1" + "}" * depth)))
        assert reader.complete
        assert sum(told) > depth
        return taken / (len(opening) + depth + sum(told))

    assert_costs(lambda: cost(8_000), 3, lambda: cost(400))


@pytest.mark.parametrize("size", [3, 7, 100_000])
def test_many_escapes_in_a_string_that_is_skipped(size: int) -> None:
    document = json.dumps({"skipped": "ab\n\u00e9" * 2_000, "message": "text"})
    fields = JsonFields("message")
    texts = [
        text.text for start in range(0, len(document), size) for text in fields.feed(document[start : start + size])
    ]
    assert "".join(texts) == "text"
    assert fields.complete
