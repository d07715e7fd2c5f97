"""`streamkit serve`: a chat page in the browser, and the HTTP API behind it, on this machine alone.

The model is a scripted one, or a real one if there is a key. Conversations are saved in a file, so that a restart loses none.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
import socket
import threading
import webbrowser
from collections import OrderedDict
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from ..agent import Agent
from ..errors import UsageError
from ..renderers.characters import printable
from ..testing import ModelServer
from .chat import instructions_for
from .clients import client_for, computer_here
from .report import data_folder
from .script import reply_to

if TYPE_CHECKING:
    from ..computer import Computer
    from ..server import App, Context, Endpoints

__all__ = ["Computers", "run", "scripted"]

PORT = 8765
PAUSE = 0.02  # seconds between two pieces of the scripted answer
MOST_COMPUTERS = 8


def run(
    *,
    port: int | None,
    open_page: bool,
    model: str | None,
    base_url: str | None,
    protocol: str | None,
    auto_run: bool,
    images: bool,
    instructions: str | None,
    offline: bool,
    fast: bool,
    data: str | None,
) -> int:
    """Serve until Ctrl-C. Returns the exit code.

    Args:
        port: of 127.0.0.1; None is 8765, or any other that is free.
        open_page: whether to open the page in the browser.
        model: the name of a real model.
        base_url: the address of a real model's server.
        protocol: `openai_responses` or `openai_chat`; None decides by the client's address.
        auto_run: whether code runs without asking.
        images: whether the model takes images.
        instructions: the system prompt, None for the built-in one.
        offline: whether to use the scripted model even if there is a key.
        fast: whether the scripted model writes without pauses.
        data: the file of the conversations, None for the one in the user's folder.

    Raises:
        UsageError: the port is taken, the extra `server` is not installed, or the model's client is missing.
        SourceError: the file of the conversations cannot be opened.
    """
    uvicorn, create_app = _server()
    from ..stores import SQLiteStore

    is_real = not offline and bool(base_url or os.environ.get("OPENAI_API_KEY") or (model or "").startswith("claude"))
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(_listen(port))
        client, name = stack.enter_context(_real(model, base_url) if is_real else scripted(0 if fast else PAUSE))
        computers = stack.enter_context(contextlib.closing(Computers(computer_here)))
        path, token, page = _store_path(data), secrets.token_urlsafe(24), name if is_real else "scripted model"
        options: dict[str, Any] = {"auto_run": auto_run, "images": images}
        options["protocol"] = protocol if is_real else "openai_responses"
        make = functools.partial(Agent, client, model=name, **options)
        app = _app(create_app, make, computers, instructions, token=token, store=SQLiteStore(path), page=page)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/#token={token}"
        _introduce(url, f"{name} at {client.base_url}" if is_real else None, path, auto_run=auto_run)
        _serve(uvicorn, app, listener, url if open_page else None)
    return 0


def _serve(uvicorn: Any, app: App, listener: socket.socket, page: str | None) -> None:
    if page is not None:
        threading.Thread(target=webbrowser.open, args=(page,), daemon=True).start()
    # Open streams do not hold the end up: their readers come back, or the process ends.
    config = uvicorn.Config(app, log_level="critical", lifespan="on", timeout_graceful_shutdown=1)
    with contextlib.suppress(KeyboardInterrupt), _errors_in_one_line():
        uvicorn.Server(config).run(sockets=[listener])


def _app(
    create_app: Callable[..., App],
    make: Callable[..., Agent],
    computers: Computers,
    instructions: str | None,
    **options: Any,
) -> App:
    """Return the app. Its agents have the computer of their conversation."""

    def make_agent(context: Context) -> Agent:
        computer = computers.of(context.conversation_id, app, context.continues)
        system = instructions_for(computer is not None) if instructions is None else instructions
        return make(computer=computer, instructions=system)

    # Whoever reads an error here has started the server, and needs the provider's words.
    app = create_app(make_agent, expose_errors=True, endpoints=_endpoints(), **options)
    return app


def _endpoints() -> Endpoints:
    """Return how clients of model APIs are answered: whoever uses them is at the keyboard, and can confirm code."""
    from ..server import Endpoints

    return Endpoints(models=("agent", "*"), activity="reasoning", questions="ask")


def _server() -> tuple[Any, Callable[..., App]]:
    try:
        import uvicorn

        from ..server import create_app
    except ImportError as error:
        raise UsageError("`streamkit serve` needs its extra: pip install 'streamkit-sdk[server]'") from error
    return uvicorn, create_app


def _listen(port: int | None) -> socket.socket:
    """A socket that listens on loopback. Raises `UsageError` if the port is taken."""
    try:
        return socket.create_server(("127.0.0.1", PORT if port is None else port))
    except OSError as error:
        if port is None:
            return socket.create_server(("127.0.0.1", 0))
        advice = "choose another with `--port N`, or leave the option out"
        raise UsageError(f"port {port} cannot be used: {error.strerror}; {advice}") from error


def _store_path(data: str | None) -> str:
    if data is not None:
        return data
    folder = data_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return str(folder / "conversations.sqlite")


class _OneLine(logging.Formatter):
    """Writes a record in one line: of an error its kind and its text, without the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        error = record.exc_info[1] if record.exc_info else None
        parts = [record.getMessage()] if error is None else [record.getMessage(), type(error).__name__, str(error)]
        return printable(" ".join(": ".join(parts).split()))


@contextlib.contextmanager
def _errors_in_one_line() -> Generator[None]:
    """Write what the server logs to the terminal, a line each."""
    log, handler = logging.getLogger("streamkit.server"), logging.StreamHandler()
    handler.setFormatter(_OneLine())
    log.addHandler(handler)
    propagates, log.propagate = log.propagate, False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagates


def _introduce(url: str, model: str | None, path: str, *, auto_run: bool) -> None:
    print(printable(f"The page, for this machine alone: {url}"))
    root, _, token = url.partition("/#token=")
    print(printable(f"Clients of OpenAI's and Anthropic's APIs: {root}/v1, with the key {token}"))
    print(printable(f"The model: {model or 'a scripted one; set OPENAI_API_KEY or pass --base-url for a real one'}"))
    print(printable(f"Conversations: {path}"))
    if auto_run:
        print("Code runs without asking.")
    print("Ctrl-C ends it.", flush=True)


# -- the model


@contextlib.contextmanager
def _real(model: str | None, base_url: str | None) -> Generator[tuple[Any, str]]:
    client, name = client_for(model, base_url)
    with client:
        yield client, name


@contextlib.contextmanager
def scripted(pause: float) -> Generator[tuple[Any, str]]:
    """A client of a scripted model, which waits `pause` seconds between two pieces of an answer; and its name."""
    import openai

    # Without `trust_env=False` a proxy that the environment names would be used, which cannot reach loopback.
    http_client = openai.DefaultHttpxClient(trust_env=False)
    with (
        ModelServer(lambda request: reply_to(request, pause)) as server,
        openai.OpenAI(base_url=server.url, api_key="none", http_client=http_client, max_retries=0) as client,
    ):
        yield client, "scripted"


# -- the computers


class Computers:
    """A computer for each conversation, so that its variables last from one answer to the next.

    Args:
        make: makes one; it gives None where code cannot run.
    """

    def __init__(self, make: Callable[[], Computer | None]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._computers: OrderedDict[str, Computer | None] = OrderedDict()

    def of(self, conversation_id: str, app: App, continues: str | None = None) -> Computer | None:
        """The computer of a conversation, or of the one that it goes on with. Where there are too many, those that were unused for
        longest are closed."""
        busy = {execution.context.conversation_id for execution in [*app.runs.active.values()]}
        with self._lock:
            if conversation_id not in self._computers:
                before = self._computers.pop(continues, None) if continues is not None else None
                self._computers[conversation_id] = before or self._make()
            self._computers.move_to_end(conversation_id)
            idle = [id for id in self._computers if id not in busy and id != conversation_id]
            for id in idle[: max(0, len(self._computers) - MOST_COMPUTERS)]:
                _close(self._computers.pop(id))
            return self._computers[conversation_id]

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            while self._computers:
                _close(self._computers.popitem()[1])


def _close(computer: Computer | None) -> None:
    if computer is not None:
        computer.close()
