"""What the text of a field costs while its JSON document streams, in pieces of four characters.

    python -m tests.benchmarks --only json_fields
    python -m tests.benchmarks.json_fields                     # 10 KB to 1 MB
    python -m tests.benchmarks.json_fields --sizes 10,100 --seconds 5

Contestants in one run, on the same documents, each giving the text of one string field as it grows: `JsonFields`;
jiter's partial mode, which reads all that there is again at each piece; partial-json-parser, likewise; and ijson, fed
as a coroutine, which gives a string only when it is over. Those that are not installed are named and skipped
(`pip install jiter ijson partial-json-parser`). Told are CPU microseconds a piece, the ratio to `JsonFields`, and how
much dearer a piece becomes from one size to the next: 1 is linear overall, the ratio of the sizes is quadratic.

A contestant that would take longer than `--seconds` for a document takes some of the pieces only. Of those that read
all again, whose pieces are each alone, these are evenly spread, and the cost is marked `~`. The others stop early; what
they cost so far is less than it would become, and is marked `>`.

Three give all of the value as it grows: `call.arguments` and `partial_output`, which read with `JsonTree`; pydantic's partial mode, as
pydantic-ai calls it at each piece; and instructor's `Partial`, which validates a model at each (`pip install pydantic-ai-slim
instructor`). Of jiter's and partial-json-parser's values the field is taken.

Two documents: a tool call's arguments, one long text with some escapes; and many small fields, of which one is chosen.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from streamkit.core.json_fields import JsonFields
from streamkit.messages import COMPACT_AT, ToolCallMessage

from .measuring import Contestant, Profile, Row, missing, numbered

TITLE = "A field of a tool call while it streams"
ABOUT = """\
CPU time for each piece of four characters of a JSON document, of which one string field, or all, is shown as it grows. The baseline
is `JsonFields`, which `fields=` uses. Its piece costs the same in a document of any size. A parser that reads all again
at each piece becomes dearer with the document; one that gives only whole strings shows nothing until the field is over."""

PIECE = 4
WORDS = ("The ", "quick ", "brown ", "fox\n", 'said "no" ', "na\u00efve ", "caf\u00e9 ", "and so on. ")


def message(size: int) -> str:
    """A call of a tool: a thought, and a text in `message`."""
    text = "".join(WORDS[i % len(WORDS)] for i in range(size // 8))
    return json.dumps({"thoughts": text[: size // 8], "heartbeat": False, "message": text[: size * 3 // 4]})


def many(size: int) -> str:
    """Many small fields, and one text of a tenth of the document, at the end."""
    items = [{"id": i, "name": f"item {i}", "tags": ["a", "b"], "size": i * 1.5} for i in range(size // 70)]
    return json.dumps({"items": items, "message": "x" * (size // 10)})


DOCUMENTS: dict[str, Callable[[int], str]] = {"one long text": message, "many small fields": many}


MARKS = {"~": "the mean of pieces that are evenly spread", ">": "stopped early: it becomes dearer"}


class Cost(NamedTuple):
    """CPU seconds a piece; a mark, if some pieces were not taken; and the text that was given last."""

    seconds: float
    mark: str
    text: str | None


def fed(pieces: Sequence[str], feed: Callable[[str], None], text: Callable[[], str], seconds: float) -> Cost:
    """A reader that is fed piece by piece."""
    start = time.process_time()
    for number, piece in enumerate(pieces, 1):
        feed(piece)
        if not number % 1024 and time.process_time() - start > seconds:
            return Cost((time.process_time() - start) / number, ">", None)
    return Cost((time.process_time() - start) / len(pieces), "", text())


def read_again(pieces: Sequence[str], parse: Callable[[str], Any], seconds: float) -> Cost:
    """A parser that reads all that there is at each piece. What a piece costs depends on its place alone, so that
    where there is no time for all of them, some that are evenly spread tell the mean."""
    document = "".join(pieces)
    ends = range(PIECE, len(document) + PIECE, PIECE)
    start = time.process_time()
    parse(document)
    whole = time.process_time() - start
    step = max(1, int(whole / 2 * len(ends) / seconds))
    taken = ends[step - 1 :: step] or ends[-1:]
    spent = 0.0
    value: Any = None
    for end in taken:
        start = time.process_time()
        value = parse(document[:end])
        spent += time.process_time() - start
    return Cost(spent / len(taken), "~" if step > 1 else "", value["message"] if step == 1 else None)


def with_streamkit(pieces: Sequence[str], seconds: float) -> Cost:
    reader = JsonFields("message")
    given: list[str] = []

    def feed(piece: str) -> None:
        for told in reader.feed(piece):
            given.append(told.text)

    return fed(pieces, feed, lambda: "".join(given), seconds)


def with_jiter(pieces: Sequence[str], seconds: float) -> Cost:
    jiter = importlib.import_module("jiter")
    return read_again(pieces, lambda text: jiter.from_json(text.encode(), partial_mode="trailing-strings"), seconds)


def with_ijson(pieces: Sequence[str], seconds: float) -> Cost:
    ijson = importlib.import_module("ijson")
    given: list[str] = []
    events = ijson.sendable_list()
    parser = ijson.parse_coro(events)

    def feed(piece: str) -> None:
        parser.send(piece.encode())
        for prefix, _, value in events:
            if prefix == "message":
                given.append(value)
        del events[:]

    return fed(pieces, feed, lambda: "".join(given), seconds)


def with_partial_json_parser(pieces: Sequence[str], seconds: float) -> Cost:
    loads = importlib.import_module("partial_json_parser").loads

    def parse(text: str) -> Any:
        return loads(text)

    return read_again(pieces, parse, seconds)


def with_tree(pieces: Sequence[str], seconds: float) -> Cost:
    """As a stream does it: the value is read at each delta."""
    call = ToolCallMessage("call", status="in_progress")

    def feed(piece: str) -> None:
        call.pieces.append(piece)
        if len(call.pieces) >= COMPACT_AT:
            call.compact()
        assert call.arguments is not None

    return fed(pieces, feed, lambda: str(call.arguments["message"]), seconds)


def with_pydantic_ai(pieces: Sequence[str], seconds: float) -> Cost:
    """What pydantic-ai calls at each piece."""
    adapter = importlib.import_module("pydantic").TypeAdapter(dict[str, Any])

    def parse(text: str) -> Any:
        return adapter.validate_json(text, experimental_allow_partial="trailing-strings")

    return read_again(pieces, parse, seconds)


def with_instructor(pieces: Sequence[str], seconds: float) -> Cost:
    document = importlib.import_module("pydantic").create_model("Document", message=(str | None, None))
    values = importlib.import_module("instructor").Partial[document].model_from_chunks(iter(pieces))
    made: list[Any] = []
    start = time.process_time()
    for value in values:
        made.append(value)
        if time.process_time() - start > seconds:
            return Cost((time.process_time() - start) / len(made), ">", None)
    return Cost((time.process_time() - start) / len(made), "", made[-1].message)


CONTESTANTS: dict[str, tuple[str | None, Callable[[Sequence[str], float], Cost]]] = {
    "JsonFields": (None, with_streamkit),
    "JsonTree, all of the value": (None, with_tree),
    "ijson, push (strings whole)": ("ijson", with_ijson),
    "jiter, partial mode, again": ("jiter", with_jiter),
    "partial-json-parser, again": ("partial_json_parser", with_partial_json_parser),
    "pydantic-ai, again": ("pydantic_ai", with_pydantic_ai),
    "instructor, again": ("instructor", with_instructor),
}


def best(name: str, pieces: Sequence[str], seconds: float, rounds: int) -> Cost:
    """The least of the rounds.

    Raises:
        AssertionError: the contestant gave another text than is in the document.
    """
    cost = min(CONTESTANTS[name][1](pieces, seconds / rounds) for _ in range(rounds))
    assert cost.text is None or cost.text == json.loads("".join(pieces))["message"], f"{name} gave another text"
    return cost


def cut(document: str) -> list[str]:
    return [document[i : i + PIECE] for i in range(0, len(document), PIECE)]


def rows(profile: Profile) -> Iterator[Row]:
    notes = {
        name: missing(Contestant(float, (module, module.replace("_", "-")) if module else None))
        for name, (module, _) in CONTESTANTS.items()
    }
    for kind, make in DOCUMENTS.items():
        for size in profile.pick((1,), (10,), (10, 100)):
            pieces = cut(make(size * 1000))
            costs = {
                name: None if note else best(name, pieces, profile.pick(0.1, 0.5, 5), profile.pick(1, 2, 3))
                for name, note in notes.items()
            }
            values = {name: None if cost is None else cost.seconds * 1e6 for name, cost in costs.items()}
            marks = {name: MARKS.get(cost.mark, "") if cost else notes[name] for name, cost in costs.items()}
            yield from numbered(values, f"{kind}, {size} KB", "µs a piece", "JsonFields", marks)


def installed() -> list[str]:
    """The contestants that are there; the others are named."""
    out = []
    for name, (module, _) in CONTESTANTS.items():
        try:
            if module is not None:
                importlib.import_module(module)
        except ImportError:
            print(f"skipped: {name}: {module} is not installed")
            continue
        out.append(name)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", default="10,100,1000", help="kilobytes, with commas")
    parser.add_argument("--seconds", type=float, default=10.0, help="what one contestant may take for one document")
    parser.add_argument("--rounds", type=int, default=3, help="the best of these counts")
    given = parser.parse_args()
    sizes = [int(size) for size in given.sizes.split(",")]
    names = installed()
    for kind, make in DOCUMENTS.items():
        documents = [make(size * 1000) for size in sizes]
        print(f"\n{kind}, in pieces of {PIECE} characters: CPU us a piece, x JsonFields, x the size before")
        print("| |" + "".join(f" {size} KB | | |" for size in sizes))
        print("|---|" + "---|---|---|" * len(sizes))
        base: list[float] = []
        for name in names:
            row, before = [], None
            for place, document in enumerate(documents):
                cost = best(name, cut(document), given.seconds, given.rounds)
                if name == "JsonFields":
                    base.append(cost.seconds)
                growth = "" if before is None else f"{cost.seconds / before:.2f}"
                row.append(f" {cost.mark}{cost.seconds * 1e6:.2f} | {cost.seconds / base[place]:.1f} x | {growth} |")
                before = cost.seconds
            print(f"| {name} |" + "".join(row), flush=True)


if __name__ == "__main__":
    main()
