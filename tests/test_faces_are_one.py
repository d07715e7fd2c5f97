"""The two managers are one: what stands in both differs by `async` and `await` alone, and neither decides anything."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import streamkit

from .recorded import in_a_loop

STREAMS = Path(streamkit.__file__).parent / "streams"

# Names that a language without `async` spells differently.
SYNC_NAMES = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "AsyncEventStream": "SyncEventStream",
    "StopAsyncIteration": "StopIteration",
    "event_stream_aio": "event_stream_sync",
    "AsyncChunks": "SyncChunks",
    "AsyncGenerator": "Generator",
    "AsyncIterator": "Iterator",
    "aclose": "close",
}

# Everything that the two have in common. What is not here is what threads and tasks do differently: waiting for an
# answer, breaking off a wait, and how an iteration is left without closing the stream.
SHARED = (
    "until_done",
    "get_final_messages",
    "get_final_text",
    "get_final_output",
    "get_final_run",
    "get_final_run_steps",
    "chunks",
    "sse",
    "_close_source",
)


def methods(name: str, kind: str = "Manager") -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """The methods of the manager in a module, or of another class."""
    tree = ast.parse((STREAMS / name).read_text(encoding="utf-8"))
    manager = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.endswith(kind))
    return {node.name: node for node in manager.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def without_async(node: ast.AST) -> str:
    """A function's code as a sync one would have it, without its docstring."""
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    text = "\n".join(ast.unparse(statement) for statement in body)
    text = re.sub(r"\b(async|await) ", "", text)
    return re.sub(r"\b\w+\b", lambda found: SYNC_NAMES.get(found[0], found[0]), text)


@pytest.mark.parametrize("name", SHARED)
def test_what_both_have_is_the_same_but_for_await(name: str) -> None:
    """Each of these methods stands in both, and one is the other without `async`."""
    assert without_async(methods("aio.py")[name]) == without_async(methods("sync.py")[name])


@pytest.mark.parametrize(("sync", "aio"), [("__iter__", "__aiter__"), ("__next__", "__anext__"), ("close", "aclose")])
def test_an_event_stream_is_the_same_but_for_await(sync: str, aio: str) -> None:
    """What it gives when, and what its client's leaving does. The faces differ in how they wait, and begin to read."""
    async_one, sync_one = (methods(f"event_stream_{face}.py", "EventStream") for face in ("aio", "sync"))
    assert without_async(async_one[aio]) == without_async(sync_one[sync])


def test_a_stream_waits_for_a_slow_client_in_the_same_way() -> None:
    """With the event of its face."""
    aio, sync = methods("event_stream_aio.py", "Frames"), methods("event_stream_sync.py", "Frames")
    assert without_async(aio["wait_for_room"]).replace("anyio", "threading") == without_async(sync["wait_for_room"])


def test_the_loop_that_performs_the_steps_is_the_same_but_for_what_it_waits_in() -> None:
    """It differs in two stated places: a pull, because a thread's delta loop pulls the source itself, and the awaitables of
    hooks. What a task waits for, the loop awaits as a generator does, for it hands out events as well."""

    def loop(module: str) -> str:
        text = re.sub(r"\s+", " ", without_async(methods(module)["_drive"]))
        return text[text.rindex("while True: if ") : text.rindex("except StopIteration")]

    sync, aio = loop("sync.py"), loop("aio.py")
    aio = re.sub(r"\(yield from (\S+)\.__await__\(\)\)", r"\1", aio)
    aio = aio.replace("if step is PULL: step = steps.send(self._source.next()) elif", "if")
    awaits = "step = steps.send((yield from (step if not self._ending else shielded(step)).__await__()))"
    assert aio.replace(awaits, "AWAIT") == sync.replace(
        "raise AssertionError(f'a sync stream cannot {step!r}')", "AWAIT"
    )


@pytest.mark.parametrize("module", ["sync.py", "aio.py"])
def test_a_manager_decides_nothing(module: str) -> None:
    """It names no hook, no protocol and no event but the root of them all, and completes none."""
    text = (STREAMS / module).read_text(encoding="utf-8")
    code = ast.unparse(ast.parse(text))
    assert not re.search(r"_plan\b|complete_event|hooks|Decoder|settle\(|\.outcome|expire\(", code)
    imported = {
        alias.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module == "events"
        for alias in node.names
    }
    assert imported == {"Event", "Run", "RunStep"}


@in_a_loop("path", sorted(STREAMS.parent.rglob("*.py")))
def test_no_function_is_long(path: Path) -> None:
    """Fifty lines at the most, in the whole package. A reference that a docstring gives does not count."""
    too_long: dict[str, int] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node, clean=False) or ""
            lines = (
                (node.end_lineno or 0) - node.lineno + 1 - (len(docstring.split("\n")) if len(docstring) > 2000 else 0)
            )
            if lines > 50:
                too_long[node.name] = lines
    assert too_long == {}


def test_the_delta_loop_stands_once() -> None:
    """The source is pulled and the hooks of deltas are called in one place."""
    package = STREAMS.parent
    texts = {str(path.relative_to(package)): path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    for line in ("batch = pull() if pull is not None else (yield PULL)", "result = hook(event, message)"):
        assert [name for name, text in texts.items() if line in text] == ["core/delivery.py"]
