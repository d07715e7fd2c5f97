"""Streams in notebooks: cells that a real kernel runs, and what their outputs have."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Any

import openai
import pytest

import streamkit as sk
from streamkit.messages import CodeMessage, ConsoleMessage, ImageMessage, Message, TextMessage, ToolCallMessage
from streamkit.mimebundle import mimebundle
from streamkit.testing import ModelServer, Reply

from .guide import GUIDE, NAMES, blocks_of, scripted_clients

jupyter_client = pytest.importorskip("jupyter_client", reason="the extra `test` brings it with nbclient")
nbformat = pytest.importorskip("nbformat", reason="the extra `test` brings it with nbclient")
nbclient = pytest.importorskip("nbclient", reason="the extra `test` brings it")

SETUP = r'''
import openai, streamkit as sk
from streamkit.computer import Computer
from streamkit.renderers import LiveDisplay, NotebookDisplay
from streamkit.testing import ModelServer, Reasoning, Reply, Text, ToolCall

DRAW = """
import matplotlib.pyplot as plt
plt.plot([1, 3, 2])
plt.show()
"""
BAD = "print('before')\n1 / 0\n"
TEXT = "It is **bold**, <script>alert(1)</script>\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"

def run(code):
    return ToolCall("execute", {"language": "python", "code": code})

class Yes(sk.EventHandler):
    def on_confirmation(self, confirmation):
        confirmation.approve()

server = ModelServer([Reply(Reasoning("Let me think."), run(DRAW)), Reply(run(BAD)), Reply(TEXT)] * 2)
server.__enter__()
computer = Computer()
options = {"base_url": server.url, "api_key": "none"}
computer.__enter__();
'''
THREADS = """
agent = sk.Agent(openai.OpenAI(**options), model="m", computer=computer)
stream = agent.stream("Draw.", LiveDisplay(), Yes())
stream.until_done()
"""
TASKS = """
agent = sk.AsyncAgent(openai.AsyncOpenAI(**options), model="m", computer=computer)
async with agent.stream("Draw.", NotebookDisplay(), Yes()) as astream:
    await astream.until_done()
"""
ASKING = """
from streamkit.asking import Asker
with ModelServer([Reply(run("print(1)")), Reply("Enough.")]) as other:
    client = openai.OpenAI(base_url=other.url, api_key="none")
    sk.Agent(client, model="m", computer=computer).stream("Go.", NotebookDisplay(), Asker()).until_done()
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    """A kernel that has run `SETUP`."""
    manager = jupyter_client.KernelManager(kernel_name="python3")
    manager.start_kernel()
    try:
        yield manager
    finally:
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


@pytest.fixture(scope="module")
def outputs(kernel: Any) -> dict[str, list[Any]]:
    """The outputs of the cells that show something."""
    sources = {
        "threads": THREADS,
        "tasks": TASKS,
        "stream": "stream",
        "message": "stream.messages[-1]",
        "asking": ASKING,
    }
    cells = [nbformat.v4.new_code_cell(textwrap.dedent(one)) for one in (SETUP, *sources.values())]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = nbclient.NotebookClient(notebook, timeout=300, km=kernel)
    client.execute()
    client.kc.stop_channels()  # which it leaves open, as it did not start the kernel
    return dict(zip(sources, (cell.outputs for cell in notebook.cells[1:]), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["threads", "tasks"])
def test_a_stream_is_one_output_of_its_cell_updated_in_place(outputs: dict[str, list[Any]], cell: str) -> None:
    """With text as Markdown, the picture that code drew, and its error; `LiveDisplay` is a `NotebookDisplay` there."""
    (output,) = outputs[cell]
    html = output["data"]["text/html"]
    assert output["output_type"] == "display_data"
    assert "<strong>bold</strong>" in html and "<td>1</td>" in html
    assert re.search(r'<img [^>]*src="data:image/png;base64,\w+', html)
    assert "ZeroDivisionError" in html and "(failed)" in html and "approved" in html and "completed" in html
    assert "<script" not in html and "&lt;script&gt;" in html
    assert "execute</b>" not in html  # the call, whose code is shown


@pytest.mark.slow
def test_a_stream_and_a_message_at_the_end_of_a_cell_are_shown(outputs: dict[str, list[Any]]) -> None:
    ((stream,), (message,)) = outputs["stream"], outputs["message"]
    assert "<strong>bold</strong>" in stream["data"]["text/html"] and "data:image/png" in stream["data"]["text/html"]
    assert "<strong>bold</strong>" in message["data"]["text/html"] and "**bold**" in message["data"]["text/plain"]


@pytest.mark.slow
def test_where_nobody_can_be_asked_nothing_runs(outputs: dict[str, list[Any]]) -> None:
    """This client has no input. The question is shown, and that it was not answered."""
    html = "".join(
        output["data"]["text/html"] for output in outputs["asking"] if output["output_type"] == "display_data"
    )
    assert "print(1)" in html and "unanswered" in html and "requires_action" in html


@pytest.mark.slow
def test_the_recipe_runs_as_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block of the page is a cell. This client has no input, so what waits for an approval does not run."""
    cells = [
        nbformat.v4.new_code_cell(block.text)
        for page in (NAMES, GUIDE / "recipes" / "notebook.md")
        for block in blocks_of(page)
        if block.language == "python"
    ]
    with scripted_clients(monkeypatch):
        notebook = nbformat.v4.new_notebook(cells=cells)
        nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    shown = [
        "".join(output["data"]["text/html"] for output in cell.outputs if "data" in output)
        for cell in notebook.cells[-6:-1]
    ]
    assert all("Hello there." in html for html in shown[:4])
    assert "get_weather" in shown[1] and "get_weather" in shown[2]
    assert "round(34 / 24, 3)" in shown[4] and "unanswered" in shown[4]


HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


@pytest.mark.parametrize(
    "message",
    [
        TextMessage("m", content=f"{HOSTILE} [a](javascript:alert(1)) ![b](http://c.d/{HOSTILE})"),
        TextMessage("m", content=f"```{HOSTILE}\n{HOSTILE}\n```"),
        TextMessage("m", content=f"\\({HOSTILE}\\) $${HOSTILE}$$"),
        CodeMessage("m", format=HOSTILE, content=HOSTILE),
        ToolCallMessage("m", name=HOSTILE, content=HOSTILE),
        ImageMessage("m", format="base64.png", content=HOSTILE),
        Message("m", type=HOSTILE, content=HOSTILE),
        Message("m", role="computer", type="code", format="html", content=HOSTILE),
    ],
    ids=lambda message: message.type[:10],
)
def test_nothing_in_a_message_is_markup(message: Message) -> None:
    html = mimebundle([message])["text/html"]
    tags = {tag.lower() for tag in re.findall(r"<\s*(\w+)", html)}
    assert tags <= {"div", "p", "pre", "code", "a", "b", "iframe"}
    assert not re.search(r'href="javascript:|src="', html)
    assert "iframe" not in tags or 'sandbox=""' in html


@pytest.mark.parametrize("others", [[], [[1, 2]], ["x"], [[9, 1]], "places", {"a": 1}])
def test_what_went_to_stderr_is_red(others: Any) -> None:
    """Places that are none, as another program may have saved them, colour nothing."""
    places = others if not isinstance(others, list) else [[4, 8], *others]
    html = ConsoleMessage("m", content="one\n<b>\ntwo", metadata={"stderr": places})._repr_mimebundle_()["text/html"]
    red = '<span style="color: #c62828">&lt;b&gt;\n</span>'
    assert (f"one\n{red}two" if isinstance(others, list) else "one\n&lt;b&gt;\ntwo") in html


def test_a_picture_alone_is_a_picture() -> None:
    bundle = ImageMessage("m", format="base64.png", content="aGVsbG8=")._repr_mimebundle_()
    assert bundle == {"text/plain": "(a picture, 6 bytes)", "image/png": "aGVsbG8="}


def test_a_stream_that_failed_shows_what_with() -> None:
    with ModelServer([Reply(status=401)]) as server, openai.OpenAI(base_url=server.url, api_key="none") as client:
        stream = sk.stream(lambda: client.responses.create(model="m", input="x", stream=True))
        with pytest.raises(sk.StreamkitError):
            stream.until_done()
    assert "Incorrect API key" in stream._repr_mimebundle_()["text/html"]


@pytest.mark.slow
def test_code_is_approved_by_an_answer_to_the_input_of_the_cell(kernel: Any, outputs: dict[str, list[Any]]) -> None:
    """What follows is in the output that was there before the question."""
    shown: list[dict[str, Any]] = []

    def take(message: dict[str, Any]) -> None:
        if message["msg_type"] in ("display_data", "update_display_data"):
            shown.append(message["content"])

    def answer(message: dict[str, Any]) -> None:
        client.input("y")

    client = kernel.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        for code in (ASKING, "computer.close()"):
            client.execute_interactive(code, allow_stdin=True, stdin_hook=answer, output_hook=take, timeout=120)
    finally:
        client.stop_channels()
    last = shown[-1]["data"]["text/html"]
    assert "approved" in last and "Enough." in last and "completed" in last
    assert len({content["transient"]["display_id"] for content in shown}) == 1
