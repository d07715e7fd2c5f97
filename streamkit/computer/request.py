"""A run as it is asked for, within which limits, and how it ended."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from .output_queue import Feed

__all__ = ["Limits", "NotStartedError", "Outcome", "Reason", "RunRequest", "Settings"]

Reason = Literal["interrupted", "timed_out", "output_limit", "memory_limit", "process_limit", "closed"]


@dataclass
class Settings:
    """What all runners of a computer share."""

    cwd: str | None
    env: Mapping[str, str] | None


@dataclass
class Limits:
    """What ends a run; None: nothing does."""

    timeout: float | None = None
    memory: int | None = None
    output: int | None = None
    processes: int | None = None


@dataclass
class Outcome:
    """How a run ended. `ended` is whether the process told so itself."""

    ended: bool = False
    failed: bool = False
    exit_code: int | None = None
    error: dict[str, str] | None = None
    reason: Reason | None = None
    state_lost: bool = False
    lost_before: bool = False  # the state of earlier runs, without their doing
    cause: str = ""  # why it did not even begin
    left: bool = False  # some of its processes could not be ended
    exited: bool = False  # its process ended, as code may end it
    killed: bool = False  # its process had to be ended
    at_line_start: bool = True


@dataclass
class RunRequest:
    """One run, as its runner sees it."""

    code: str
    feed: Feed
    limits: Limits
    input: Callable[[str], str | None] | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    outcome: Outcome = field(default_factory=Outcome)
    fault: BaseException | None = None  # of `input`
    reason: Reason | None = None  # why it is to stop


class NotStartedError(Exception):
    """A run could not begin; the text says why."""
