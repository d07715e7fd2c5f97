"""`streamkit serve`: its page's address, the scripted model, and conversations that a restart keeps."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from streamkit.testing import ModelServer, Reply

from ..agent.parts import code
from .test_streamkit_js import NODE, node

SERVE = [sys.executable, "-m", "streamkit", "serve"]
COMMAND = [*SERVE, "--offline", "--fast"]

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def served(data: Path, *command: str, logged: str = "") -> Generator[tuple[str, str]]:
    """The command's address and token, while it runs. What it has written to stderr at the end matches `logged`."""
    command = (*(command or COMMAND), "--port", "0", "--data", str(data))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline() for _ in range(4)]
        found = re.search(r"(http://127\.0\.0\.1:\d+)/#token=(\S+)", lines[0])
        assert found, (lines, process.stderr)
        yield found[1], found[2]
    finally:
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=300)
    assert process.returncode == 0, out
    assert re.fullmatch(logged, error), error


GUIDE = Path(__file__).parents[2] / ".docs" / "browser.md"
AROUND = """
const [url, token] = process.argv.slice(2);
const shown = [];
const show = (...given) => shown.push(...given);
%s
console.log(JSON.stringify(shown));
"""


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Generator[dict[str, Any]]:
    """The command, after a restart with the data of one on which the guide's examples ran, in Node, on the scripted model."""
    if NODE is None:
        pytest.skip("there is no Node: no program `node`")
    folder = tmp_path_factory.mktemp("serve")
    data = folder / "conversations.sqlite"
    module = GUIDE.parents[1] / "streamkit" / "server" / "page" / "streamkit.js"
    blocks = re.findall(r"^```javascript\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    source = AROUND % "\n".join(blocks).replace("./streamkit.js", module.as_uri())
    (folder / "run.mjs").write_text(source, "utf-8")
    with served(data) as (url, token):
        shown = json.loads(node(str(folder / "run.mjs"), url, token))
    before = {"shown": shown, "data": data, "old_token": token}
    with served(data) as (url, token):
        yield {"url": url, "token": token, **before}


def test_the_examples_of_the_guide_run(restarted: dict[str, Any]) -> None:
    shown = restarted["shown"]
    assert "Then I will not run it." in "".join(shown[:-4])
    assert shown[-4].startswith("Then I will not run it.") and shown[-3] == "completed" and shown[-2] > 20 and shown[-1]


def test_a_restart_keeps_conversations_and_takes_a_new_token(restarted: dict[str, Any]) -> None:
    url, token, old = restarted["url"], restarted["token"], restarted["old_token"]
    assert restarted["data"].stat().st_mode & 0o077 == 0
    assert token != old
    assert httpx.get(f"{url}/conversations", headers={"authorization": f"Bearer {old}"}).status_code == 401
    listed = httpx.get(f"{url}/conversations", headers={"authorization": f"Bearer {token}"}).json()["conversations"]
    assert [one["title"] for one in listed] == ["How is a sine?"]
    page = httpx.get(url)
    assert page.status_code == 200 and "page.js" in page.text


def test_clients_of_openai_and_anthropic_reach_the_agent(restarted: dict[str, Any]) -> None:
    """Under any model's name, with the base URL and the key that the command prints. They read what the provider said."""
    url, token = restarted["url"], restarted["token"]
    with openai.OpenAI(base_url=f"{url}/v1", api_key=token) as client:
        answer = client.responses.create(model="any", input="How is a sine?")
        assert "[approval " in answer.output_text  # for the code that plots it
        then = client.responses.create(model="any", input="no", previous_response_id=answer.id)
        assert "Then I will not run it." in then.output_text
    with anthropic.Anthropic(base_url=url, api_key=token) as claude:
        said = claude.messages.create(
            model="any", max_tokens=9, messages=[{"role": "user", "content": "How is a sine?"}]
        )
        assert said.stop_reason == "end_turn"


def test_a_providers_error_is_read_by_who_started_the_server_and_variables_last_between_requests(
    tmp_path: Path,
) -> None:
    """The error over HTTP, during the run and later; and in the terminal, in one line. Each request of a client is a run of its own,
    and those that answer a question go on with its computer."""
    error = "Incorrect API key provided."
    line = rf"urn:uuid:\S+: run \S+ failed: SourceError: .*{re.escape(error)}.*\n"
    replies = [Reply(status=401), Reply(code("x = 6")), Reply(code("x * 7")), Reply("Done.")]
    with ModelServer(replies) as model:
        command = (*SERVE, "--base-url", model.url, "--model", "some-model", "--protocol", "chat")
        with served(tmp_path / "conversations.sqlite", *command, logged=line) as (url, token):
            with httpx.Client(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=60) as http:
                run = http.post("/runs", json={"input": "Hello"}).json()["id"]
                assert error in http.get(f"/runs/{run}/events").text
                assert error in http.get(f"/runs/{run}").json()["error"]["detail"]
            with openai.OpenAI(base_url=f"{url}/v1", api_key=token) as client:
                turns = [{"role": "user", "content": "Go."}]
                for _ in range(3):
                    answer = client.chat.completions.create(model="any", messages=turns)  # type: ignore[arg-type]
                    said = answer.choices[0].message.content
                    turns += [{"role": "assistant", "content": said or ""}, {"role": "user", "content": "yes"}]
        assert said == "Done."
        assert "42" in model.requests[-1].body["messages"][-1]["content"]


def test_a_port_that_is_taken_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [*COMMAND, "--port", str(taken.getsockname()[1]), "--data", ":memory:"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert re.fullmatch(r"streamkit: port \d+ cannot be used: .*in use.*\n", done.stderr)
