"""The value of a JSON document that streams, beside `json.loads`; and the arguments of a call, which are read by it."""

from __future__ import annotations

import gc
import itertools
import json
import pickle
import random
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from streamkit import events
from streamkit import messages as m
from streamkit.core.engine import Engine
from streamkit.messages.json_tree import JsonTree

from .costs import assert_costs, seconds_of
from .opcodes import growth

CALL_STREAM = json.dumps(
    {"city": "Zürich", "days": [1, 20, -3.5e2], "units": {"wind": "m/s", "ok": True}, "note": None}
)

DOCUMENTS = [
    "{}",
    "[]",
    "[[]]",
    '{"a":{}}',
    ' \n{ "a" : [ 1 , 2 ] , "b" : { } } ',
    "[1]",
    "[12,345]",
    "[-0,0,-12,1e3,1E+3,2.5e-3,0.5]",
    "[true,false,null]",
    "[ true , false , null ]",
    '{"t":true,"f":false,"n":null}',
    '""',
    '[""]',
    '["a"]',
    '["a","b",""]',
    '{"":""}',
    '{"a":"x","b":"y"}',
    '{"a":"x","a":"y"}',
    '{"a":[1,2],"a":{"b":"c"},"a":"d"}',
    '{"a":"x","\\u0061":"y"}',
    r'["\n\t\r\b\f\/\\\""]',
    r'["\u0041\u00e9\u2028"]',
    r'["\ud83d\ude00"]',
    r'["a\ud83d\ude00b"]',
    r'["\ud83d"]',
    r'["\ude00"]',
    r'["\ud83d\ud83d\ude00"]',
    r'["\ud83dx"]',
    r'["\ud83d\n"]',
    r'{"\ud83d\ude00":1}',
    '["é","😀","\u2028"]',
    '{"é":{"😀":["ü"]}}',
    '["{","}","[","]",",",":"]',
    r'["\"","\\"]',
    "[[1,[2,[3,[4]]]],[5]]",
    '{"a":{"b":{"c":{"d":[{"e":"f"}]}}}}',
    '[{"a":1},{"a":2},{"b":[]}]',
    "[{},{},[],[]]",
    '["a",1,"b",2.5,null,{"c":[true]}]',
    '{"a":1,"b":"x","c":[],"d":{},"e":null}',
    "[[[],[]],[[]]]",
    '{"a":[{"b":"c"},"d",{"e":["f"]}]}',
    '{"a" :\t1 ,\r\n"b": [ ] }',
    "[100000000000000000000000,-1]",
    "[1.7976931348623157e308,5e-324]",
    "[1e400]",
    '["' + "x" * 300 + '"]',
    "[" + ",".join(map(str, range(60))) + "]",
    json.dumps({str(n): str(n) for n in range(30)}),
    CALL_STREAM,
]


def clean(value: Any) -> Any:
    """A value as UTF-8 can have it: a lone surrogate is U+FFFD, as in a JSON text."""
    match value:
        case str():
            return re.sub("[\ud800-\udfff]", "\ufffd", value)
        case list():
            return [clean(one) for one in value]
        case dict():
            return {clean(key): clean(one) for key, one in value.items()}
        case _:
            return value


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z|\\\Z)|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_OPEN_ESCAPE = re.compile(r"(\\u[dD][89abAB]..(\\(u([dD]([c-fC-F].?)?)?)?)?|\\(u.{0,3})?)\Z")


def begun(text: str) -> Any:
    """What there is of a document that is cut, by `json.loads`: everything that may still become another value is left out, and
    what is open is closed."""
    tokens: list[str] = [found[0] for found in _TOKEN.finditer(text)]
    at_end = bool(tokens) and text.endswith(tokens[-1])
    if at_end and tokens[-1][0] not in '"{}[],:' and tokens[-1] not in ("true", "false", "null"):
        tokens.pop()
    if at_end and tokens and tokens[-1][0] == '"' and not _is_string(tokens[-1]):
        tokens[-1] = _without_open_escape(tokens[-1]) + '"'
    closing: list[str] = []
    for token in tokens:
        if token in "{[":
            closing.append("}" if token == "{" else "]")
        elif token in "}]":
            closing.pop()
    if closing and closing[-1] == "}" and tokens[-1] == ":":
        del tokens[-2:]
    elif closing and closing[-1] == "}" and tokens[-1][0] == '"' and tokens[-2] in "{,":
        del tokens[-1:]
    if tokens and tokens[-1] == ",":
        del tokens[-1:]
    whole = "".join(tokens) + "".join(reversed(closing))
    return clean(json.loads(whole)) if whole else None


def _is_string(token: str) -> bool:
    return re.fullmatch(r'"(?:[^"\\]|\\.)*"', token, re.DOTALL) is not None


def _without_open_escape(token: str) -> str:
    """A string that is not closed, without the half of an escape or a pair at its end."""
    whole = re.match(r'"(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*', token, re.DOTALL)
    assert whole is not None
    text = whole[0]
    escapes = re.search(r"(?:\\u[0-9a-fA-F]{4}|\\[^u])*\Z", text, re.DOTALL)
    assert escapes is not None
    last = re.findall(r"\\u[0-9a-fA-F]{4}|\\[^u]", escapes[0], re.DOTALL)[-1:]
    rest = token[len(text) :]
    if last and re.fullmatch(r"\\u[dD][89abAB].*", last[0]) and re.fullmatch(r"(\\(u([dD]([c-fC-F].?)?)?)?)?", rest):
        return text[:-6]
    return text


def is_prefix(part: Any, whole: Any) -> bool:
    """Whether a value may grow into another one."""
    match part:
        case str():
            return isinstance(whole, str) and whole.startswith(part)
        case list():
            return (
                isinstance(whole, list)
                and len(part) <= len(whole)
                and part[:-1] == whole[: max(len(part) - 1, 0)]
                and (not part or is_prefix(part[-1], whole[len(part) - 1]))
            )
        case dict():
            if not isinstance(whole, dict) or [*part] != [*whole][: len(part)]:
                return False
            last = next(reversed(part), None)
            return all(is_prefix(one, whole[key]) if key == last else one == whole[key] for key, one in part.items())
        case _:
            return type(part) is type(whole) and part == whole


# -- exact, wherever it is cut


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_that_is_cut_anywhere_is_exactly_what_has_come_of_it(document: str) -> None:
    tree = JsonTree()
    for end, character in enumerate(document, 1):
        tree.feed(character)
        assert tree.value == begun(document[:end]), document[:end]
    assert tree.error is None
    assert tree.complete
    assert tree.value == clean(json.loads(document))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_how_it_is_cut_makes_no_difference(document: str) -> None:
    for size in (1, 2, 3, 7, len(document)):
        tree = JsonTree()
        for start in range(0, len(document), size):
            tree.feed(document[start : start + size])
            assert tree.value == begun(document[: start + size])


KEYS = ("a", "b", "ü", "a b", "", "\\", '"', "😀")
SCALARS = (
    0,
    -1,
    12,
    345,
    1.5,
    -2e-7,
    True,
    False,
    None,
    "",
    "x",
    "né",
    "😀",
    'say "no"\n',
    "\u2028",
    "\\u0041",
    "\x00",
)


def random_value(chance: random.Random, depth: int = 3) -> Any:
    if depth == 0 or chance.random() < 0.4:
        return chance.choice(SCALARS)
    if chance.random() < 0.5:
        return [random_value(chance, depth - 1) for _ in range(chance.randrange(4))]
    return {key: random_value(chance, depth - 1) for key in chance.sample(KEYS, chance.randrange(4))}


def random_documents(seed: int, depth: int = 3) -> Iterator[str]:
    chance = random.Random(seed)
    while True:
        value = [random_value(chance, depth)]
        yield json.dumps(value, ensure_ascii=chance.random() < 0.5, indent=chance.choice((None, 1)))


@pytest.mark.slow
def test_100_000_cuts_of_random_documents_are_prefixes_and_keep_their_identity() -> None:
    checked = 0
    for document in random_documents(1, depth=2):
        whole, tree, before = json.loads(document), JsonTree(), None
        for character in document:
            tree.feed(character)
            assert tree.value is None or is_prefix(tree.value, whole)
            assert before is None or tree.value is before
            before = tree.value
        assert tree.value == whole
        checked += len(document)
        if checked > 100_000:
            break


@pytest.mark.slow
def test_random_documents_in_random_pieces_are_exactly_what_has_come_of_them() -> None:
    chance = random.Random(2)
    for document in itertools.islice(random_documents(2), 1_500):
        tree, end = JsonTree(), 0
        while end < len(document):
            start, end = end, end + chance.randint(1, 12)
            tree.feed(document[start:end])
            assert tree.value == begun(document[:end]), document[:end]


def containers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, (dict, list)):
        yield path, value
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from containers(inner, (*path, key))


def test_objects_and_lists_keep_their_identity_while_they_grow() -> None:
    document = '{"a":[{"b":"c","d":[1,2]},{"e":{}}],"f":{"g":"h"}}'
    tree, seen = JsonTree(), dict[tuple[Any, ...], Any]()
    for character in document:
        tree.feed(character)
        for path, value in containers(tree.value):
            assert seen.setdefault(path, value) is value
    assert len(seen) == 7


@pytest.mark.parametrize(
    ("text", "value", "error"),
    [
        ('{"a": 1} and more', {"a": 1}, "character 9"),
        ('{"a": NaN}', {}, "character 6"),
        ('{"a": [1, -Infinity]}', {"a": [1]}, "character 10"),
        ('{"a": tru}', {}, "character 6"),
        ("{'a': 1}", {}, "character 1"),
        ('{"a": "x\n"}', {"a": "x"}, "character 8"),
        ("[1, 2,]", [1, 2], "character 6"),
        ("[01]", [], "character 2"),
        ("[-]", [], "character 2"),
        ("Hello", None, "character 0"),
    ],
)
def test_what_is_not_json_ends_the_value_where_the_fault_is(text: str, value: Any, error: str) -> None:
    """However it is cut: what was read before it stays, and nothing is read after it."""
    for size in (1, 2, len(text)):
        tree = JsonTree()
        for start in range(0, len(text), size):
            tree.feed(text[start : start + size])
        tree.feed('{"b": 2}')
        assert (tree.value, (tree.error or "").partition(":")[0]) == (value, error)


def test_the_end_of_a_document_is_known() -> None:
    for text, end in (('{"a": 1}', 8), ("[] ", 2), ('  {"a": [1]}\n', 12), ("[", None), ('"x"', 3)):
        for pieces in ([text], [*text]):
            tree = JsonTree()
            for piece in pieces:
                tree.feed(piece)
            assert tree.end == end


def test_a_tree_can_be_pickled_in_the_middle() -> None:
    """As the messages of an error are."""
    tree = JsonTree()
    tree.feed('{"a": ["x')
    other = pickle.loads(pickle.dumps(tree))
    other.feed('y"]}')
    assert (tree.value, other.value) == ({"a": ["x"]}, {"a": ["xy"]})


# -- sizes


def test_numbers_have_as_many_digits_as_python_reads() -> None:
    """4,300 for an integer; one digit more ends the document there, as `json.loads` refuses it."""
    limit = sys.get_int_max_str_digits()
    for digits, error in ((limit, None), (limit + 1, "more digits than Python reads")):
        tree = JsonTree()
        for piece in ("[", *("9" * digits), "]"):
            tree.feed(piece)
        assert (error or "") in (tree.error or "")
        assert tree.value == ([] if error else [int("9" * limit)])
    tree = JsonTree()
    tree.feed("[0." + "1" * 10_000 + "]")
    assert tree.value == [0.1111111111111111]


def test_a_thousand_levels_are_read() -> None:
    tree = JsonTree()
    for piece in ['{"a":['] * 500:
        tree.feed(piece)
    inner = tree.value
    for _ in range(499):
        inner = inner["a"][0]
    assert inner == {"a": []}
    tree.feed("]}" * 500)
    assert tree.complete


def test_a_hundred_thousand_keys_are_read() -> None:
    document = json.dumps({f"key {number}": number for number in range(100_000)})
    tree = JsonTree()
    for piece in pieces_of(document, 1_000):
        tree.feed(piece)
    assert tree.value == json.loads(document)


def pieces_of(text: str, size: int = 4) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


LONG = {
    "one long string": lambda size: json.dumps({"text": "word é " * (size // 9)}),
    "many keys": lambda size: json.dumps({f"key {n}": n for n in range(size // 14)}),
    "nested lists": lambda size: "[" * (size // 2) + "]" * (size // 2),
    "many items": lambda size: json.dumps([{"id": n, "name": "x"} for n in range(size // 24)]),
}


@pytest.mark.parametrize("kind", LONG)
def test_work_grows_with_the_document_alone(kind: str) -> None:
    """Instructions, at one, two and four times the size; each piece is read as it comes."""

    def read(size: int) -> None:
        tree, content = JsonTree(), ""
        for piece in pieces_of(LONG[kind](size)):
            content += piece
            tree.advance(content)

    assert growth(read, 1_000) < 2.2


@pytest.mark.slow
@pytest.mark.parametrize("reads", [True, False], ids=["read", "unread"])
def test_the_second_half_of_a_megabyte_costs_what_the_first_half_did(reads: bool) -> None:
    """In pieces of four characters, the arguments read at each, or in the end: CPU time, with a margin of three tenths."""
    pieces = pieces_of(LONG["one long string"](1_000_000))
    middle = len(pieces) // 2
    halves: list[float] = []

    def first() -> float:
        call = m.ToolCallMessage("a", status="in_progress")
        for half in (pieces[:middle], pieces[middle:]):
            halves.append(seconds_of(lambda half=half: grow(call, half, reads=reads)))  # type: ignore[misc]
        assert call.arguments == json.loads("".join(pieces))
        return halves[-2]

    gc.disable()
    try:
        assert_costs(lambda: halves[-1], 1.3, first)
    finally:
        gc.enable()


def grow(call: m.ToolCallMessage, pieces: Iterable[str], *, reads: bool = True) -> None:
    for number, piece in enumerate(pieces):
        call.pieces.append(piece)
        if number % 30 == 0:
            call.compact()
        assert not reads or call.arguments is not None


# -- the arguments of an open call


def call_of(pieces: Iterable[str], done: bool = False) -> Iterator[m.ToolCallMessage]:
    """A call after each piece of its arguments, and in the end."""
    engine = Engine()
    for piece in pieces:
        list(engine.complete([events.ToolCallDelta("a", piece)]))
        (call,) = engine.messages.all
        assert isinstance(call, m.ToolCallMessage)
        yield call
    if done:
        list(engine.complete([events.MessageDone(m.ToolCallMessage("a", name="f"))]))
        yield call


@pytest.mark.parametrize("document", [one for one in DOCUMENTS if one.lstrip().startswith("{")])
def test_the_arguments_of_an_open_call_are_exactly_what_has_come_of_them(document: str) -> None:
    """{} before they begin."""
    for end, call in enumerate(call_of(document), 1):
        assert call.arguments == (begun(document[:end]) or {})


def test_the_arguments_of_a_call_are_one_object_from_its_beginning_to_its_end() -> None:
    """Who holds a part of them sees it grow, and complete."""
    calls = call_of(pieces_of(CALL_STREAM), done=True)
    next(itertools.islice(calls, 5, None))
    arguments = next(calls).arguments
    for call in calls:
        assert call.arguments is arguments
    assert call.status == "completed"
    assert arguments == json.loads(CALL_STREAM)


def test_arguments_that_were_replaced_are_read_anew() -> None:
    engine = Engine()
    for event in (events.ToolCallDelta("a", '{"a": 1, "b"'), events.ToolCallDelta("a", '{"c": "d', True)):
        list(engine.complete([event]))
        (call,) = engine.messages.all
        assert isinstance(call, m.ToolCallMessage)
        arguments = call.arguments
    assert arguments == {"c": "d"}


def test_arguments_that_were_cut_short_are_what_came_of_them() -> None:
    assert m.ToolCallMessage("a", content='{"a": 1, "b": 2', status="incomplete").arguments == {"a": 1}


def test_a_call_whose_arguments_were_read_can_be_pickled() -> None:
    for status in ("in_progress", "completed"):
        call = m.ToolCallMessage("a", content='{"a": 1}', status=status)
        assert pickle.loads(pickle.dumps(call)).arguments == call.arguments == {"a": 1}


@pytest.mark.slow
def test_threads_that_read_the_arguments_of_one_call_see_prefixes() -> None:
    """While another one reads, each has what was read before; also where the call is completed meanwhile."""
    text = json.dumps({"a": ["x" * 5] * 300})
    faults: list[Any] = []

    def read(call: m.ToolCallMessage) -> None:
        try:
            while call.status == "in_progress":
                arguments = call.arguments
                if arguments and not all("xxxxx".startswith(one) for one in arguments.get("a", ())[:50]):
                    faults.append(arguments)
        except Exception as error:
            faults.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(30):
            call = m.ToolCallMessage("a", status="in_progress")
            threads = [threading.Thread(target=read, args=(call,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            grow(call, pieces_of(text))
            call.status = "completed"
            call.finish()
            for thread in threads:
                thread.join()
            assert call.arguments == json.loads(text)
    finally:
        sys.setswitchinterval(interval)
    assert not faults
