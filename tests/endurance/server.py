"""Clients that do everything to the same few conversations at once, in random order, and leave at any moment.

    python -m tests.endurance.server --operations 2000 --clients 8 --seed 1 --on memory,redis

A seed decides what each client does; when, the machine does. Each response has a status that the contract has for it, and
none is 500. At the end every run has ended visibly, nothing of them is left in the process, and every conversation goes on.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx

from ..server.backends import Backend
from ..server.parts import Agents, Client, frames_of, serve, wait_for

__all__ = ["Storm", "main", "storm"]

CONVERSATIONS = ("one", "two")
TEXTS = ("hello", "hello", "count 30", "run say x", "ask y", "both", "careful", "hang", "fail", "break", "run hang")
REFUSED = {404, 409, 422, 429}


class Storm:
    """What the clients do, and what they saw.

    Attributes:
        runs: the ids of all runs that were begun.
        statuses: how often each operation had each status.
        faults: what must not be.
    """

    def __init__(self, url: str, seed: int, clients: int, operations: int) -> None:
        self.runs: set[str] = set()
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.faults: list[str] = []
        self._url = url
        self._seed, self._clients, self._operations = seed, clients, operations
        self._lock = threading.Lock()

    def blow(self) -> None:
        """Let all clients do all they have to do."""
        with ThreadPoolExecutor(self._clients) as pool:
            for _ in pool.map(self._client, range(self._clients)):
                pass

    def _client(self, number: int) -> None:
        chance = random.Random(f"{self._seed}-{number}")
        operations: Sequence[Callable[..., None]] = (
            *(self._begin,) * 4,
            *(self._chat,) * 2,
            self._agui,
            *(self._answer,) * 4,
            *(self._cancel,) * 2,
            self._delete,
            self._roll_back,
            self._look,
            self._follow,
        )
        with Client(self._url) as client:
            for _ in range(self._operations // self._clients):
                operation = chance.choice(operations)
                try:
                    operation(client, chance)
                except Exception as error:
                    self.faults.append(f"{operation.__name__}: {error!r}")

    def _check(self, name: str, response: httpx.Response, *allowed: int) -> bool:
        """Count a response. Returns whether it is none of an error."""
        with self._lock:
            self.statuses[name, response.status_code] += 1
        if response.status_code not in allowed:
            self.faults.append(f"{name}: {response.status_code} {response.read()[:300]!r}")
        elif response.status_code >= 400 and response.headers["content-type"] != "application/problem+json":
            self.faults.append(f"{name}: {response.status_code} is no problem")
        return response.status_code < 400

    def _stream(self, name: str, chance: random.Random, client: Client, *arguments: Any, **options: Any) -> None:
        """Read a stream up to its end, or leave it after some frames."""
        # What a run that waits has to say, others decide: who has waited for long enough leaves, too.
        with suppress(httpx.ReadTimeout), client.stream(*arguments, timeout=1.0, **options) as response:
            if not self._check(name, response, 200, 204, *REFUSED):
                response.read()
                return
            if run := response.headers.get("x-streamkit-run"):
                self.runs.add(run)
            frames, most = frames_of(response.iter_text()), chance.choice((0, 1, 3, 10, 40))
            for _ in range(most):
                if next(frames, None) is None:
                    return

    def _run(self, client: Client, chance: random.Random) -> Any:
        """One of the newest runs that have begun: one without events may still be refused, and is gone then."""
        response = client.get("/runs", params={"conversation": chance.choice(CONVERSATIONS), "limit": 3})
        self._check("list", response, 200)
        runs = [run for run in response.json()["runs"] if run["cursor"] is not None]
        return chance.choice(runs) if runs else None

    # -- operations

    def _begin(self, client: Client, chance: random.Random) -> None:
        kind = {"kind": chance.choice(("sync", "async"))}
        body = {"input": chance.choice(TEXTS), "conversation": chance.choice(CONVERSATIONS), "metadata": kind}
        headers = {"Idempotency-Key": f"k{chance.randrange(50)}"} if chance.random() < 0.2 else {}
        if chance.random() < 0.5:
            body |= {"stream": True, "on_disconnect": chance.choice(("continue", "cancel"))}
            self._stream("begin", chance, client, "POST", "/runs", json=body, headers=headers)
            return
        response = client.post("/runs", json=body, headers=headers)
        if self._check("begin", response, 200, 201, *REFUSED):
            self.runs.add(response.json()["id"])

    def _chat(self, client: Client, chance: random.Random) -> None:
        id = chance.choice(CONVERSATIONS)
        message = {"id": f"u{chance.randrange(1000)}", "role": "user"}
        message["parts"] = [{"type": "text", "text": chance.choice(TEXTS)}]  # type: ignore[assignment]
        body: dict[str, Any] = {"id": id, "messages": [message], "trigger": "submit-message"}
        if chance.random() < 0.2:
            body = {"id": id, "messages": [], "trigger": "regenerate-message"}
        match chance.randrange(6):
            case 0:
                self._stream("chat stream", chance, client, "GET", f"/chat/{id}/stream")
            case 1:
                self._check("chat stop", client.post(f"/chat/{id}/stop"), 200, 202, 204)
            case _:
                self._stream("chat", chance, client, "POST", "/chat", json=body)

    def _agui(self, client: Client, chance: random.Random) -> None:
        body: dict[str, Any] = {"threadId": chance.choice(CONVERSATIONS), "runId": f"r{chance.randrange(20)}"}
        body |= {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
        body["messages"] = [{"id": f"a{chance.randrange(1000)}", "role": "user", "content": chance.choice(TEXTS)}]
        self._stream("agui", chance, client, "POST", "/agui", json=body)

    def _answer(self, client: Client, chance: random.Random) -> None:
        run = self._run(client, chance)
        for question in [] if run is None else run["pending"]:
            answers = [{"output": 1}, {"error": "no"}]
            if question["kind"] == "confirmation":
                answers = [{"approved": True}, {"approved": False}, {"approved": False, "reason": "no"}]
            path = f"/runs/{run['id']}/answers/{question['id']}"
            self._check("answer", client.post(path, json=chance.choice(answers)), 200, 404, 409)

    def _cancel(self, client: Client, chance: random.Random) -> None:
        if run := self._run(client, chance):
            self._check("cancel", client.post(f"/runs/{run['id']}/cancel"), 200, 202, 404)

    def _delete(self, client: Client, chance: random.Random) -> None:
        self._check("delete", client.delete(f"/conversations/{chance.choice(CONVERSATIONS)}"), 204, 404)

    def _roll_back(self, client: Client, chance: random.Random) -> None:
        path = f"/conversations/{chance.choice(CONVERSATIONS)}/rollback"
        self._check("rollback", client.post(path, json={}), 200, 404, 409, 422)

    def _look(self, client: Client, chance: random.Random) -> None:
        id = chance.choice(CONVERSATIONS)
        for path in (f"/conversations/{id}", f"/conversations/{id}/messages", f"/chat/{id}"):
            self._check("look", client.get(path), 200, 404)
        self._check("conversations", client.get("/conversations"), 200)

    def _follow(self, client: Client, chance: random.Random) -> None:
        run = self._run(client, chance)
        if run is None:
            return
        query = {"protocol": chance.choice(("streamkit", "vercel_ui", "ag_ui"))}
        if run["cursor"] is not None and chance.random() < 0.5:
            query["after"] = run["cursor"]
        self._stream("follow", chance, client, "GET", f"/runs/{run['id']}/events", params=query)


def storm(backend: Backend, seed: int, clients: int, operations: int) -> Storm:
    """Run a storm on an app of its own, and look what it left."""
    agents = Agents()
    relay, store = backend.relay(), backend.store()
    app = backend.app(agents, relay=relay, store=store, pause_after=0.05)
    try:
        with serve(app) as url, Client(url) as client:
            made = Storm(url, seed, clients, operations)
            made.blow()
            faults = made.faults
            for run_id in made.runs:
                if client.post(f"/runs/{run_id}/cancel").status_code not in (200, 202, 404):
                    faults.append(f"{run_id} cannot be cancelled")
            faults += [*_runs_that_are_open(client, made.runs), *_what_is_left(app, store)]
            faults += _malformed_conversations(client)
    finally:
        agents.close()
    return made


def _runs_that_are_open(client: Client, runs: set[str]) -> Iterator[str]:
    for run_id in runs:
        run = client.get(f"/runs/{run_id}")
        if run.status_code == 404:
            yield f"run {run_id} is gone"
            continue
        types = [frame.type for frame in client.events(run_id)]
        status = client.run(run_id)["status"]
        if (
            types[-1] != "stream_end"
            or types.count("run_done") != 1
            or status not in ("completed", "failed", "cancelled")
        ):
            yield f"run {run_id} is {status}, and ends with {types[-3:]}"


def _what_is_left(app: Any, store: Any) -> Iterator[str]:
    try:
        wait_for(lambda: not app.runs.active and not app._server.readers and not app.runs._beginning)
    except AssertionError:
        yield f"left: {len(app.runs.active)} runs, {app._server.readers} readers, {app.runs._beginning} beginnings"
    for conversation in store.list():  # the lock of a run that has ended counts for nothing
        record = None if conversation.run is None else app.runs.relay.get(conversation.run)
        if record is not None and record.ended_at is None:
            yield f"conversation {conversation.id} is locked by {conversation.run}"
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("streamkit-run-")]
    if names:
        yield f"threads: {names}"


def _malformed_conversations(client: Client) -> Iterator[str]:
    for id in CONVERSATIONS:
        run = client.begin("hello", conversation=id)
        if client.events(run["id"])[-1].data.get("status", "completed") != "completed":
            yield f"conversation {id} does not go on"
        messages = client.get(f"/conversations/{id}/messages").json()["messages"]
        ids = [message["id"] for message in messages]
        runs = [message["run_id"] for message in messages]
        if len({*ids}) != len(ids):
            yield f"conversation {id}: a message comes twice: {ids}"
        if len({*runs}) != sum(before != after for before, after in zip([None, *runs], runs, strict=False)):
            yield f"conversation {id}: runs are mixed: {runs}"
        if messages[0]["role"] != "user" or any(one.get("status") == "in_progress" for one in messages):
            yield f"conversation {id}: {messages}"


def main() -> int:
    """The command. Returns 1 if there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--on", default="memory,redis")
    options = parser.parse_args()
    faults: list[str] = []
    for name in options.on.split(","):
        backend, began = Backend(name), time.monotonic()
        made = storm(backend, options.seed, options.clients, options.operations)
        backend.close()
        faults += made.faults
        print(f"{name}: {options.operations} operations, {len(made.runs)} runs, {time.monotonic() - began:.1f} s")
        for (operation, status), count in sorted(made.statuses.items()):
            print(f"  {operation:14} {status} {count:5}")
        for fault in made.faults[:20]:
            print("  FAULT", fault)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
