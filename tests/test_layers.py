"""The layers: imports only point down, the core does no input or output, and `import streamkit` brings no SDK."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import streamkit
from streamkit import protocols

from .recorded import in_a_loop

PACKAGE = Path(streamkit.__file__).parent

# From the bottom up. A layer is one package or one module at the root, and imports what is below it. Some stand side by
# side in one line: what users name, which knows each other (a message knows the events about it), and edges that have
# nothing to do with each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("_version", "html_text", "in_tasks", "lazy_names", "markdown_rules", "response_headers", "shared_names"),
    ("markdown_html",),
    ("mimebundle",),
    ("errors",),
    ("limits",),
    ("messages", "answers", "events"),
    ("arguments",),
    ("handlers", "retry"),
    ("throttled",),
    ("core",),
    ("protocols",),
    ("sources",),
    ("streams",),
    ("recorder",),
    ("redis_link",),
    ("relay", "stores", "computer", "renderers", "telemetry", "testing", "json_fields"),
    ("agent",),
    ("compat", "server"),
    ("",),  # the package itself
    ("cli",),
    ("asking", "__main__"),
)
CORE = ("errors", "limits", "messages", "answers", "events", "core", "protocols")

# Imports for the type checkers alone that point back up: both ends know each other, and only one can import the other.
BACKWARDS = {
    ("errors", "messages"): "an error carries the messages that had arrived",
    ("mimebundle", "messages"): "what a notebook shows of a message is made of it",
    ("messages.message", "events"): "a class of messages names the events about it",
    ("messages.kinds", "answers"): "a tool call holds the answer that it waits for",
    ("handlers.hooks", "streams.state"): "a handler has the stream that it is on",
    ("handlers.root", "streams.state"): "a handler has the stream that it is on",
    ("relay.lanes", "relay.emitter"): "a lane emits through its emitter",
}

# What the core may import besides itself. `threading` is there for the locks of `Answer`, whose calls are thread-safe, and
# of messages that any thread reads.
ALLOWED = {
    "__future__",
    "base64",
    "bisect",
    "codecs",
    "collections",
    "copy",
    "functools",
    "heapq",
    "importlib",
    "inspect",
    "itertools",
    "json",
    "math",
    "msgspec",
    "operator",
    "re",
    "threading",
    "types",
    "typing",
    "typing_extensions",
    "zlib",
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    """The dotted name below the package: `protocols.openai_chat`, `manager`, "" for the package."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer(name: str) -> int:
    top = name.split(".")[0]
    for number, tops in enumerate(LAYERS):
        if top in tops:
            return number
    raise AssertionError(f"{name} is in no layer: say in LAYERS where it belongs")


@functools.cache
def imports(path: Path) -> tuple[tuple[str, bool], ...]:
    """What a module imports, as absolute dotted names, and whether it is only for the type checkers."""
    return tuple(_imports(path, ast.parse(path.read_text(encoding="utf-8"))))


def _imports(path: Path, tree: ast.Module) -> Iterator[tuple[str, bool]]:
    name = name_of(path)
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    package = [part for part in package if part]
    for node, checking in _walk(tree, False):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, checking
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join((["streamkit", *base] if node.level else []) + ([node.module] if node.module else []))
            if node.level and node.module is None:
                for alias in node.names:
                    yield f"{start}.{alias.name}", checking
            else:
                yield start, checking


def _walk(node: ast.AST, checking: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        yield child, checking
        inside = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        yield from _walk(child, checking or inside)


@functools.cache
def own(imported: str) -> str | None:
    """The name below the package of a module of ours, None for others'. A class's name is cut off."""
    top, _, rest = imported.partition(".")
    if top != "streamkit":
        return None
    parts = rest.split(".") if rest else []
    while parts and not (PACKAGE.joinpath(*parts).is_dir() or PACKAGE.joinpath(*parts).with_suffix(".py").is_file()):
        parts.pop()
    return ".".join(parts)


@in_a_loop("path", modules())
def test_imports_only_point_down(path: Path) -> None:
    """A module imports what is below its layer, or inside its own package; what only type checkers see is left out."""
    here, package = layer(name_of(path)), name_of(path).split(".")[0]
    beside = next(tops for tops in LAYERS if "messages" in tops)  # which know each other
    wrong = [
        imported
        for imported, checking in imports(path)
        if not checking
        and (name := own(imported)) is not None
        and name.split(".")[0] != package
        and layer(name) >= here
        and not (package in beside and name.split(".")[0] in beside)
    ]
    assert wrong == []


def _reached(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    """The modules that a module imports, directly or through others."""
    reached: set[str] = set()
    pending = [*graph[start]]
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending += graph[name]
    return reached


def test_no_imports_form_a_circle() -> None:
    """Not even through several modules, nor with those for the type checkers; but for a few that are stated."""
    names = {name_of(path) for path in modules()}
    graph: dict[str, set[str]] = {name: set() for name in names}
    for path in modules():
        here = name_of(path)
        for imported, checking in imports(path):
            name = own(imported)
            if name in names and name != here and not (checking and (here, name) in BACKWARDS):
                graph[here].add(name)
    circles = {
        frozenset({one, *(other for other in _reached(one, graph) if one in _reached(other, graph))})
        for one in names
        if one in _reached(one, graph)
    }
    assert [sorted(circle) for circle in circles] == []


@in_a_loop("path", [path for path in modules() if name_of(path).split(".")[0] in CORE])
def test_the_core_does_no_input_or_output(path: Path) -> None:
    """It imports nothing that could: no event loop, socket, clock, HTTP client or provider's SDK. It never says async."""
    foreign = {imported.split(".")[0] for imported, checking in imports(path) if own(imported) is None and not checking}
    assert foreign <= ALLOWED
    tree = ast.parse(path.read_text(encoding="utf-8"))
    says_async = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
    assert [node for node in ast.walk(tree) if isinstance(node, says_async)] == []
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert calls & {"open", "print", "input", "eval", "exec"} == set()


def test_only_answers_and_messages_know_threads() -> None:
    """Of the core, the objects that other threads answer have a lock, and the text that other threads read while it grows."""
    core = [path for path in modules() if name_of(path).split(".")[0] in CORE]
    threaded = [name_of(path) for path in core if ("threading", False) in imports(path)]
    assert sorted(threaded) == ["messages.answer", "messages.message"]


def test_every_protocol_is_a_module_with_its_three_parts() -> None:
    """Each built-in protocol has a decoder and an encoder of its name, and `to_input`."""
    for name in protocols.BUILT_IN:
        module = protocols.find(name)
        assert module.Decoder.name == module.Encoder.name == name
        assert module.to_input([]) == []


def test_importing_streamkit_imports_no_sdk_and_no_extra() -> None:
    """`import streamkit` brings neither a provider's SDK nor what only some streams need."""
    unwanted = [
        "openai",
        "anthropic",
        "httpx",
        "httpx2",
        "httpcore",
        "requests",
        "aiohttp",
        "rich",
        "starlette",
        "fastapi",
        "uvicorn",
        "redis",
        "trio",
        "jiter",
        "IPython",
        "pydantic",
        "hypothesis",
        "pytest",
    ]
    code = f"import streamkit, sys; print(*sorted(set({unwanted!r}) & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300, cwd=PACKAGE.parent
    )
    assert done.stdout.split() == []


def test_importing_streamkit_gives_what_it_names() -> None:
    """All that `__all__` lists is there, once, and in order."""
    assert len(set(streamkit.__all__)) == len(streamkit.__all__)
    assert [name for name in streamkit.__all__ if not hasattr(streamkit, name)] == []
