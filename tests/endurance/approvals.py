"""Server processes that are killed, or stopped for a while, around the answers to their runs' questions.

    python -m tests.endurance.approvals --rounds 100 --seed 1

In each round one process has a run of each kind in `KINDS`, and each of them asks whether a tool may run. The answers go to
another process, each at a random moment around that at which the first process is killed, or stopped until the others are
through with its runs. In some rounds the process that took the answers is killed as well.

An answer that was accepted is acted on exactly once. Where the process had begun to act when it was killed, which Redis
knows, nobody can say how far it came: then the tool has run at most once, and the run says that it is lost.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from ..redis_server import RedisServer
from ..server.parts import Agents, Client, wait_for
from ..server.processes import Process, process

__all__ = ["ROUTES", "Asking", "Rounds", "main"]

LEASE = 2.0  # seconds: a process that answers must be able to renew it, however busy the machine is
LONGEST = 0.15  # seconds between an answer and the end of the process
FINAL = ("completed", "failed", "cancelled", "lost")


def answer_run(client: Client, run: Mapping[str, Any], question: Mapping[str, Any]) -> httpx.Response:
    """Approve over `/runs`."""
    return client.post(f"/runs/{run['id']}/answers/{question['id']}", json={"approved": True})


def _first_bytes(client: Client, path: str, body: dict[str, Any]) -> httpx.Response:
    """The response, of whose body only the beginning is read."""
    with client.stream("POST", path, json=body) as response:
        next(response.iter_bytes(), b"")
        return response


def answer_chat(client: Client, run: Mapping[str, Any], question: Mapping[str, Any]) -> httpx.Response:
    """Approve as `useChat` does."""
    call = question["subject"]
    part = {"type": "dynamic-tool", "toolName": call["name"], "toolCallId": call["call_id"], "input": {}}
    part |= {"state": "approval-responded", "approval": {"id": question["id"], "approved": True}}
    message = {"id": run["id"], "role": "assistant", "parts": [{"type": "step-start"}, part]}
    return _first_bytes(
        client, "/chat", {"id": run["conversation"], "messages": [message], "trigger": "submit-message"}
    )


def answer_agui(client: Client, run: Mapping[str, Any], question: Mapping[str, Any]) -> httpx.Response:
    """Approve as a client of AG-UI does."""
    resume = [{"interruptId": question["id"], "status": "resolved", "payload": {"approved": True}}]
    body = {"threadId": run["conversation"], "runId": f"answer-{question['id']}", "messages": [], "resume": resume}
    return _first_bytes(client, "/agui", body | {"state": {}, "tools": [], "context": [], "forwardedProps": {}})


ROUTES: Mapping[str, Callable[[Client, Mapping[str, Any], Mapping[str, Any]], httpx.Response]] = {
    "runs": answer_run,
    "chat": answer_chat,
    "agui": answer_agui,
}
KINDS = (
    # route, what the user asks for, how many calls, kind of agent
    ("runs", "careful", 1, "sync"),
    ("runs", "careful", 1, "async"),
    ("chat", "careful", 1, "sync"),
    ("agui", "careful", 1, "async"),
    ("runs", "careful", 2, "async"),
    ("chat", "each", 2, "sync"),
)


class Asking:
    """A run whose tool waits for an approval.

    Attributes:
        numbers: what the tool is called with, each once.
        accepted: the questions to which an answer was accepted.
        had_begun: whether the process had begun to act on an answer when it was killed or stopped.
        status: how the run ended.
    """

    def __init__(self, client: Client, route: str, word: str, numbers: list[int], kind: str) -> None:
        self.route = route
        self.numbers = numbers
        self.accepted: list[str] = []
        self.had_begun = False
        self.status = "in_progress"
        text = " ".join(map(str, [word, *numbers]))
        self.run = client.begin(text, conversation=f"c-{numbers[0]}", metadata={"kind": kind})
        self.id: str = self.run["id"]

    def open_question(self, client: Client) -> Any:
        """The question that the run waits for; None if there is none yet."""
        return next(iter(client.run(self.id)["pending"]), None)

    def answer(self, client: Client, question: Any) -> httpx.Response:
        """Approve, and note whether that was accepted."""
        response = ROUTES[self.route](client, self.run, question)
        if response.status_code == 200:
            self.accepted.append(question["id"])
        return response

    def see_through(self, client: Client, seconds: float = 40.0) -> None:
        """Answer what is open until the run has ended."""
        end = time.monotonic() + seconds
        while self.status not in FINAL and time.monotonic() < end:
            run = client.run(self.id)
            self.status = run["status"]
            for question in run["pending"]:
                self.answer(client, question)
            time.sleep(0.1)

    def fault(self, times: list[int]) -> str:
        """What is wrong with it; "" if nothing is. `times`: how often the tool ran with each number."""
        acted = self.status == "completed" and {*times} == {1}
        died = self.had_begun and self.status == "lost" and max(times) <= 1
        what = (
            f"{self.route} {self.id} {self.status}: ran {times}, accepted {self.accepted}, had begun: {self.had_begun}"
        )
        return "" if acted or died else what


class Rounds:
    """What the rounds share.

    Attributes:
        faults: what must not be.
        counts: of the ends of the runs.
    """

    def __init__(self, seed: int) -> None:
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._redis = RedisServer()
        self._agents = Agents()
        self._path = Path(tempfile.mkdtemp(prefix="streamkit-approvals-"), "ran")
        self._path.touch()
        self._numbers = iter(range(1, 1_000_000))

    def close(self) -> None:
        """End what they share."""
        self._agents.close()
        self._redis.close()

    def _process(self) -> Any:
        return process(self._redis, self._path, self._agents, lease=LEASE)

    def rounds(self, count: int) -> None:
        """Do so many rounds."""
        while count:
            with self._process() as (other, there):
                is_alive = True
                while is_alive and count:
                    is_alive = self._round(other, there)
                    count -= 1

    def _round(self, other: Process, there: Client) -> bool:
        """Returns whether the process that took the answers is alive."""
        chance = self._chance
        kills_other = chance.random() < 0.2
        with self._process() as (victim, here):
            askings = [
                Asking(here, route, word, [next(self._numbers) for _ in range(calls)], kind)
                for route, word, calls, kind in KINDS
            ]
            questions = [wait_for(partial(asking.open_question, here)) for asking in askings]
            how = chance.choice(("kill", "stop"))
            self._answer(askings, questions, there, victim.kill if how == "kill" else victim.stop)
            if kills_other:
                other.kill()
                self._look(askings)
                with self._process() as (_, anywhere):
                    self._see_through(askings, anywhere)
            else:
                self._see_through(askings, there)
            victim.wake()
            if how == "stop":
                here.events(here.begin("hello")["id"])
                victim.terminate()
            self._check(askings)
        return not kills_other

    def _answer(self, askings: list[Asking], questions: list[Any], there: Client, end_it: Callable[[], None]) -> None:
        """Send the answers, each at a moment of its own around that at which the process ends."""
        ends = time.monotonic() + LONGEST
        moments = [ends + self._chance.uniform(-LONGEST, LONGEST) for _ in askings]

        def end() -> None:
            time.sleep(max(0.0, ends - time.monotonic()))
            end_it()
            self._look(askings)

        def answer(asking: Asking, question: Any, moment: float) -> None:
            time.sleep(max(0.0, moment - time.monotonic()))
            with contextlib.suppress(httpx.ReadTimeout):
                asking.answer(there, question)

        ending = threading.Thread(target=end)
        ending.start()
        with ThreadPoolExecutor(len(askings)) as pool:
            for _ in pool.map(answer, askings, questions, moments):
                pass
        ending.join()

    def _look(self, askings: list[Asking]) -> None:
        """Note which runs a process had begun to act for that was ended just now."""
        for asking in askings:
            asking.had_begun |= self._redis.command("HGET", f"sk:{{{asking.id}}}:run", "busy") == "1"

    def _see_through(self, askings: list[Asking], client: Client) -> None:
        with ThreadPoolExecutor(len(askings)) as pool:
            for _ in pool.map(lambda one: one.see_through(client), askings):
                pass

    def _check(self, askings: list[Asking]) -> None:
        ran = Counter(map(int, self._path.read_text().split()))
        for asking in askings:
            times = [ran[number] for number in asking.numbers]
            self.counts[asking.status if any(times) else f"{asking.status} before the tool ran"] += 1
            if fault := asking.fault(times):
                self.faults.append(fault)


def main() -> int:
    """The command. Returns 1 if there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    made, began = Rounds(options.seed), time.monotonic()
    try:
        made.rounds(options.rounds)
    finally:
        made.close()
    print(f"{options.rounds} rounds, {time.monotonic() - began:.0f} s")
    for name, count in made.counts.items():
        print(f"  {name:40} {count:5}")
    for fault in made.faults[:20]:
        print("  FAULT", fault)
    return 1 if made.faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
