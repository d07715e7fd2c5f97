"""What the tests of the chat page share: a server with a scripted model, a connection that can be cut, and Chromium."""

from __future__ import annotations

import base64
import contextlib
import shutil
import socket
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai

import streamkit as sk
from streamkit.agent import tool
from streamkit.computer import Computer
from streamkit.testing import ModelServer, Reasoning, Reply, Text, ToolCall

# The first that there is. The one without windows is of the same build, and loads a page at a third of the cost.
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, PROGRAMS)), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
TOKEN = "a-token-of-tests"
SIZE: Any = {"width": 1200, "height": 900}
TAKES_IMAGES = True  # whether the model does

DRAW = """\
from IPython.display import Image, display
for number in range(3):
    print("number", number)
display(Image(bytes.fromhex("PNG")))
""".replace(
    "PNG",
    base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
    ).hex(),
)

# Writes a line to a file as long as it runs.
ENDLESS = """\
import time
print("begun", flush=True)
with open(PATH, "w") as beats:
    while True:
        print(time.time(), file=beats, flush=True)
        time.sleep(0.02)
"""

SCRIPT = "<script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'>"
HOSTILE = f"""\
{SCRIPT} [a](javascript:window.harmed=1) [b](JaVaScRiPt:alert(1)) [c](data:text/html,{SCRIPT}) <javascript:alert(1)>
![d](javascript:window.harmed=1) ![e](http://127.0.0.1:9/x.png "{SCRIPT}") [f](vbscript:x) `{SCRIPT}`

# {SCRIPT}

| {SCRIPT} | [g](java&#115;cript:alert(1)) |
|---|---|
| {SCRIPT} | [h](\\javascript:alert(1)) |

- {SCRIPT}

> {SCRIPT}

```"><script>window.harmed=1</script>
{SCRIPT}
```
"""
WORDS = [f"word{number}" for number in range(150)]


class Model:
    """Answers by the last thing that the user said; see `first`.

    Attributes:
        folder: where code writes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._begun: set[str] = set()  # what the user said that was answered once

    def __call__(self, request: Any) -> Reply:
        items: Any = request.body["input"]
        items = [{"role": "user", "content": items}] if isinstance(items, str) else items
        # What code displayed comes as messages of the user, after its output.
        places = [
            at for at, item in enumerate(items) if item.get("role") == "user" and isinstance(item["content"], str)
        ]
        asked = max(at for at in places if items[at]["content"] != "This image was displayed:")
        said, since = items[asked]["content"], items[asked:]
        if said.startswith("This answer cannot be used"):
            return Reply('{"name": "Soup"}')
        last = next((item for item in reversed(since) if item.get("role") != "user"), {})
        if last.get("type") == "function_call_output":
            return Reply(f"The output was: {str(last['output'])[:300]}")
        return self.first(said)

    def first(self, said: str) -> Reply:
        """The first reply to what the user said."""
        is_again = said in self._begun
        self._begun.add(said)
        match said.split()[0]:
            case "restart" if not is_again:  # it fails after its first words, with a call that it has begun
                half = (Reasoning("Wrong thoughts."), Text("Wrong words."), ToolCall("weather", {"city": "Wrong"}))
                return Reply(*half, "And more.", cut_after=13, delay=0.03)
            case "restart":
                return Reply(Reasoning("Right thoughts."), Text("Right words."), ToolCall("weather", {"city": "Oslo"}))
            case "ask-restart":
                return Reply(Text("I ask."), ToolCall("research", {"input": f"restart {said}"}))
            case "recipe":
                return Reply("No recipe, but words.")
            case "draw":
                return Reply(Reasoning("A drawing."), Text("I will **draw**."), execute(DRAW))
            case "raise":
                return Reply(Text("It **may** fail:\n\n1. `one`\n2. two\n"), execute("print('before')\n1 / 0"))
            case "endless":
                return Reply(execute(ENDLESS.replace("PATH", repr(str(self.folder / "beats")))))
            case "slow":
                return words(2.5)
            case "slower":  # it goes on while the page does something else
                return words(7)
            case "late":
                return Reply("Here it is.", first_delay=2.5)
            case "long":
                lines = "".join(f"value_{number} = {number}\n" for number in range(60))
                return Reply(execute(lines + ENDLESS.replace("PATH", repr(str(self.folder / "more-beats")))))
            case "silent":
                return Reply(execute("import time\nwhile True:\n    time.sleep(0.02)"))
            case "two":
                return Reply(ToolCall("pay", {"to": "Ann", "amount": 20}), ToolCall("weather", {"city": "Oslo"}))
            case "warn":
                return Reply(execute("import sys\nprint('one')\nprint('two', file=sys.stderr)\nprint('three')"))
            case "smile":
                return Reply(
                    execute("import sys\nprint('\U0001f600\U0001f600')\nprint('two', file=sys.stderr)\nprint('three')")
                )
            case "quiet":
                return Reply(execute("x = 1"))
            case "cobol":
                return Reply(ToolCall("execute", {"language": "cobol", "code": "DISPLAY 'HELLO'."}))
            case "wide":
                return Reply("# A\n\n### B\n\n|" + "a heading|" * 12 + "\n" + "|-" * 12 + "|\n" + "|cell" * 12 + "|")
            case "nest":
                return Reply(Text("I ask a *colleague*."), ToolCall("research", {"input": "inner question"}))
            case "inner":
                thought, code = Reasoning("I look it up."), execute("print(6 * 7)")
                return Reply(
                    thought, Text("Let me **compute**."), ToolCall("weather", {"city": "Oslo"}), code, delay=0.02
                )
            case "pay":
                return Reply(ToolCall("pay", {"to": "Ann", "amount": 20}))
            case "tool":
                return Reply(ToolCall("weather", {"city": "Oslo"}))
            case "hostile":
                code = f'print("""{SCRIPT}""")\nprint("\\x1b[31;1mred\\x1b[0m\\x1b]0;title\\x07 done")'
                return Reply(Reasoning(HOSTILE), Text(HOSTILE), ToolCall("weather", {"city": SCRIPT}), execute(code))
            case "fail":
                return Reply(status=400)
            case _:
                return Reply(f"You said: {said}")


@dataclass
class Recipe:
    name: str


def execute(code: str) -> ToolCall:
    return ToolCall("execute", {"language": "python", "code": code})


def words(seconds: float) -> Reply:
    """All words, five by five, for so many seconds."""
    pieces = [" ".join([*WORDS[at : at + 5], ""]) for at in range(0, len(WORDS), 5)]
    return Reply(Text("".join(pieces), pieces=pieces), delay=seconds / len(pieces))


def weather(city: str) -> str:
    """The weather of a city."""
    return f"It rains in {city}."


@tool(confirm=True)
def pay(to: str, amount: int) -> str:
    """Pay."""
    return f"{to} has {amount}"


class Proxy:
    """Forwards connections to a server, and cuts them all when told to.

    Attributes:
        url: its address.
        address: that of the page, with the token.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.address = f"{self.url}/#token={TOKEN}"
        self._is_down = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._is_down:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += [client, server]
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self, *, stays_down: bool = False) -> None:
        """Cut all connections, in the middle of what they carry."""
        self._is_down = stays_down
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._sockets.clear()

    @contextlib.contextmanager
    def down(self) -> Generator[None]:
        """Cut all connections, and take none meanwhile."""
        self.cut(stays_down=True)
        try:
            yield
        finally:
            self._is_down = False

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # closing it would not end the thread that accepts
        self._listener.close()
        self.cut(stays_down=True)


@contextlib.contextmanager
def served(folder: Path) -> Generator[Proxy]:
    """The app with the page, behind a proxy, with a scripted model and a computer."""
    import uvicorn

    from streamkit.server import create_app

    def make(context: Any) -> sk.Agent:
        common: dict[str, Any] = {"model": "m", "protocol": "openai_responses", "computer": computer}
        common["retry"] = sk.Retry(restart=True)
        if context.input and context.input[-1].content.startswith("recipe"):
            return sk.Agent(client, output_type=Recipe, **common)
        inner = sk.Agent(client, name="research", tools=[weather], **common)
        return sk.Agent(client, tools=[weather, pay, inner.as_tool()], images=TAKES_IMAGES, **common)

    http_client = openai.DefaultHttpxClient(trust_env=False)
    with (
        ModelServer(Model(folder)) as models,
        openai.OpenAI(base_url=models.url, api_key="none", http_client=http_client, max_retries=0) as client,
        Computer() as computer,
    ):
        app = create_app(make, token=TOKEN, page="model <m>")
        config = uvicorn.Config(app, port=0, log_level="critical", lifespan="on", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        listener = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        proxy = Proxy(listener.getsockname()[1])
        try:
            yield proxy
        finally:
            proxy.close()
            server.should_exit = True
            thread.join(30)


def new_context(browser: Any) -> Any:
    # What pulses would be drawn sixty times a second, as long as an answer goes on.
    return browser.new_context(viewport=SIZE, reduced_motion="reduce")


class Tab:
    """A page, with what went wrong in it: errors, dialogs, and what the content security policy refused."""

    def __init__(self, context: Any, url: str) -> None:
        self.page = context.new_page()
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", self._printed)
        self.page.on("dialog", lambda dialog: (self.faults.append(dialog.message), dialog.dismiss()))
        self.page.goto(url)
        self.page.wait_for_selector("#empty:not([hidden]), #log > *")

    def _printed(self, message: Any) -> None:
        # A request that failed is no fault of the page; what the policy refuses is.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(message.text)

    def begin(self) -> None:
        """Begin a new chat, in a page as it was opened."""
        self.faults.clear()
        if self.page.viewport_size != SIZE:
            self.page.set_viewport_size(SIZE)
        self.page.emulate_media(media="null", color_scheme="null", forced_colors="null", reduced_motion="reduce")
        self.page.evaluate("sessionStorage.clear()")
        self.page.keyboard.press("Alt+n")
        self.wait("#empty")
        self.page.fill("#input", "")

    def is_at_rest(self) -> bool:
        """Whether another test can use the page: no answer goes on, and no dialog is open."""
        at_rest: bool = self.page.evaluate(
            "document.querySelector('#stop[hidden]') && !document.querySelector('dialog[open]')"
        )
        return at_rest

    def reopen(self) -> None:
        """Leave a conversation whose answer is complete, and go back to it."""
        self.page.keyboard.press("Alt+n")
        self.wait("#empty")
        self.page.go_back()
        self.done()

    def another(self) -> Tab:
        """Another page of the same person, at the same conversation."""
        return Tab(self.page.context, self.page.url)

    def send(self, text: str) -> None:
        self.page.fill("#input", text)
        self.page.keyboard.press("Enter")

    def wait(self, selector: str, **options: Any) -> Any:
        return self.page.wait_for_selector(selector, timeout=30_000, **options)

    def done(self) -> None:
        self.wait("#log > .turn:last-child > footer")

    def text(self, selector: str = "#log") -> str:
        text: str = self.page.inner_text(selector)
        return text

    def count(self, selector: str) -> int:
        return len(self.page.query_selector_all(selector))


def until(check: Callable[[], bool], page: Any, timeout: float = 30) -> None:
    """Wait until something holds, while the browser goes on."""
    end, pause = time.monotonic() + timeout, 20.0
    while not check():
        assert time.monotonic() < end, "it did not come to hold"
        page.wait_for_timeout(pause)
        pause = min(pause * 1.5, 100.0)
