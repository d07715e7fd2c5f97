"""The answers to `input()` of running code, each found by a thread of its own, so that a run that waits can be stopped."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from .request import RunRequest

__all__ = ["InputAnswers"]


class InputAnswers:
    """Answers the prompts of one run with its `input`.

    Args:
        run: gives the callback; gets what the callback raises as its `failure`.
        on_answer: called in any thread once an answer is there.
    """

    def __init__(self, run: RunRequest, on_answer: Callable[[], None]) -> None:
        self._run = run
        self._on_answer = on_answer
        self._answers: deque[tuple[int, str | None]] = deque()

    def find(self, number: int, prompt: str) -> None:
        """Find the answer to a prompt, under a number. Returns at once."""
        if self._run.input is None:
            self._answers.append((number, None))
        else:
            target, arguments = self._call, (self._run.input, number, prompt)
            threading.Thread(target=target, args=arguments, name="streamkit-input", daemon=True).start()

    def take(self) -> list[tuple[int, str | None]]:
        """Return the answers found since the last call, each with its number; None refuses."""
        return [self._answers.popleft() for _ in range(len(self._answers))]

    def _call(self, input: Callable[[str], str | None], number: int, prompt: str) -> None:
        answer = None
        try:
            answer = input(prompt)
        except BaseException as error:  # even of an exit the code must not wait for its answer for ever
            self._run.failure = error
        self._answers.append((number, None if answer is None else str(answer)))
        self._on_answer()
