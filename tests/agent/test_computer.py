"""An agent with a real computer: kernels and shells that live on, and that are idle when a stream has ended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reply

from ..faces import Face, async_faces, body, every_face
from .parts import agent_on, code, outputs_of

computer_of = pytest.importorskip("streamkit.computer", reason="the extra `computer` is not installed")


@pytest.fixture(scope="module")
def computer() -> Iterator[Any]:
    with computer_of.Computer() as made:
        yield made


@every_face
@body
async def test_state_persists_from_run_to_run(face: Face, computer: Any, tmp_path: Path) -> None:
    """In Python and in the shell. Errors, images and console output are in the outputs of the calls."""
    script = [
        Reply(code("x = 41"), code(f"cd {tmp_path}", "bash")),
        Reply(code("print(x + 1)\n1/0"), code("pwd", "shell")),
        Reply("Done."),
    ]
    with ModelServer(script) as server:
        async with agent_on(face, server, computer=computer, auto_run=True) as talker:
            stream = await talker.say("Go.")
        first, second = outputs_of(server.requests[1]), outputs_of(server.requests[2])
    assert [*first.values()] == ["(no output)", "(no output)"]
    python, shell = [*second.values()][2:]
    assert python.startswith("42\n")
    assert "ZeroDivisionError" in python
    assert shell == f"{tmp_path}\n"
    consoles = [message for message in stream.messages if message.type == "console"]
    assert [message.call_id for message in consoles] == ["call_1_0", "call_1_1", "call_2_0", "call_2_1"]


@every_face
@body
async def test_a_language_that_is_missing_can_be_added(face: Face, computer: Any) -> None:
    """The output says how."""
    with ModelServer([Reply(code("puts 5", "ruby")), Reply("Sorry.")]) as server:
        async with agent_on(face, server, computer=computer, auto_run=True) as talker:
            await talker.say("Go.")
        (output,) = outputs_of(server.requests[1]).values()
    languages = ", ".join(computer.languages)
    assert output == (
        f"ruby is not supported here; this computer runs: {languages}; "
        "the application adds others with `computer.register`\n"
    )


FOREVER = """\
import time
done = time.monotonic()
print(1, flush=True)
while True:
    time.sleep(0.01)
    done = time.monotonic()
"""


@every_face
@pytest.mark.parametrize("how", ["cancel", "leave"])
@body
async def test_code_has_ended_when_its_stream_has(face: Face, computer: Any, how: str) -> None:
    """The kernel is idle and keeps its state, and nothing of the run appears in the next one."""
    check = "import time\nbefore = done\ntime.sleep(0.1)\nprint(done == before)"
    with ModelServer([Reply(code(FOREVER)), Reply(code(check)), Reply("Done.")]) as server:
        async with agent_on(face, server, computer=computer, auto_run=True) as talker:
            async with talker.stream("Go.") as stream:
                async for event in stream:
                    if isinstance(event, sk.ConsoleDelta):
                        if how == "leave":
                            break
                        stream.cancel()
            assert stream.status == "cancelled"
            await talker.say("And?")
        outputs = outputs_of(server.requests[2])
    assert outputs["call_2_0"] == "True\n"
    assert outputs["call_1_0"].startswith(
        "It was interrupted before it finished, and may have had effects. Its output so far:\n1\n"
    )


@async_faces
@body
async def test_a_cancelled_task_leaves_no_code_running(face: Face, computer: Any) -> None:
    """The cancellation waits for the interrupt, no longer."""
    with ModelServer([Reply(code(FOREVER)), Reply(code("print(1)")), Reply("Done.")]) as server:
        async with agent_on(face, server, computer=computer, auto_run=True) as talker:
            printed = anyio.Event()
            handler = face.told(on_console_output=lambda self, delta, snapshot: printed.set())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(talker.stream("Go.", handler).until_done)
                await printed.wait()
                tasks.cancel_scope.cancel()
            await talker.say("And?")
        assert outputs_of(server.requests[2])["call_2_0"] == "1\n"


STUBBORN = """\
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
x = 41
print("one", flush=True)
while True:
    time.sleep(0.01)
"""


@pytest.mark.slow
@every_face
@body
async def test_the_model_reads_that_a_stop_cost_the_state(face: Face, computer: Any) -> None:
    """Of code that ignores the interrupt, so that its process is killed: at the next request already."""
    with ModelServer([Reply(code(STUBBORN)), Reply(code("print(x)")), Reply("I see.")]) as server:
        async with agent_on(face, server, computer=computer, auto_run=True) as talker:
            async with talker.stream("Go.") as stream:
                async for event in stream:
                    if isinstance(event, sk.ConsoleDelta):
                        stream.cancel()
            await talker.say("And?")
        output, after = outputs_of(server.requests[2]).values()
    assert "the variables and state of python are lost" in after, "the next run says it to a person too"
    assert "It was interrupted before it finished, and may have had effects. Its output so far:\none\n" in output
    assert "the variables and state of python are lost" in output
    assert "the variables and state of python are lost" in next(
        m.content for m in talker.messages if m.type == "console"
    )


@every_face
@body
async def test_the_end_of_the_process_is_in_the_console(face: Face, computer: Any) -> None:
    """The model reads it like other output, and can continue."""
    with ModelServer([Reply(code("import os\nos._exit(3)")), Reply(code("print('back')")), Reply("Done.")]) as server:
        async with agent_on(face, server, computer=computer, auto_run=True) as talker:
            stream = await talker.say("Go.")
        outputs = outputs_of(server.requests[2])
    assert stream.status == "completed"
    assert "lost" in outputs["call_1_0"]
    assert outputs["call_2_0"] == "back\n"


@every_face
@body
async def test_a_language_may_have_other_names(face: Face, computer: Any) -> None:
    """Those that the computer accepts."""
    with ModelServer([Reply(code(f"print({os.getpid()})", "Python3")), Reply("Done.")]) as server:
        async with agent_on(face, server, computer=computer, auto_run=True) as talker:
            await talker.say("Go.")
        assert outputs_of(server.requests[1]) == {"call_1_0": f"{os.getpid()}\n"}
