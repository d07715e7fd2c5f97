"""The brackets of a run: created before anything in it, done after all of it, with at least one step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from .. import events as e

__all__ = ["RunTracker", "merge"]


class RunTracker:
    """The run of one stream, and its steps.

    Attributes:
        outcome: how the source says that its run ended, until the run is over.
        asked_for_action: whether the step has told `RunRequiresAction`.
        usage: the run's tokens: the sum of its steps'.
    """

    def __init__(self) -> None:
        self.run: e.Run | None = None
        self.step: e.RunStep | None = None
        self.steps: list[e.RunStep] = []
        self._begun = 0  # steps, those that are not known any more too
        self.usage: e.Usage | None = None
        self.outcome: e.Run | None = None
        self.asked_for_action = False
        self._counted: e.Usage | None = None
        self._by_id: dict[str, e.RunStep] = {}

    def count(self, usage: e.Usage) -> None:
        """The step's tokens, and the run's: the sum of its steps'."""
        assert self.run is not None
        assert self.step is not None
        self.step.usage = usage
        before = self._counted  # of the steps before this one
        self.usage = self.run.usage = (
            usage
            if before is None
            else e.Usage(
                before.input_tokens + usage.input_tokens,
                before.output_tokens + usage.output_tokens,
                before.total_tokens + usage.total_tokens,
                usage.details,
            )
        )

    def forget_steps(self, steps: Iterable[e.RunStep]) -> None:
        """Forget the ids of steps that are over."""
        for step in steps:
            self._by_id.pop(step.id, None)

    def open(self, given: e.Run, cause: e.Event) -> Iterator[e.Event]:
        if self.run is None:
            self.run = msgspec.structs.replace(given, status="in_progress", usage=None, error=None, finish_reason=None)
            self.run.id = given.id or "run-1"
            yield e.RunCreated(self.run, position=cause.position, raw_item=cause.raw_item)
        elif isinstance(cause, e.RunCreated):
            merge(self.run, given, keep=("status", "usage", "error"))
            self.outcome = None

    def open_step(self, cause: e.Event) -> Iterator[e.Event]:
        """A run with a step, for what is about to happen in it."""
        if self.step is None:
            yield from self.begin_step(e.RunStep(), cause)

    def begin_step(self, given: e.RunStep, cause: e.Event) -> Iterator[e.Event]:
        yield from self.open(e.Run(), cause)
        if given.id and given.id in self._by_id:
            return
        if self.step is not None:
            yield from self.end_step(e.RunStep(status="completed"), cause)
        assert self.run is not None
        self._begun += 1
        self.step = msgspec.structs.replace(given, status="in_progress")
        self.step.id = given.id or f"step-{self._begun}"
        self.step.run_id = given.run_id or self.run.id
        self.steps.append(self.step)
        self._by_id[self.step.id] = self.step
        self.asked_for_action = False
        yield e.RunStepCreated(self.step, position=cause.position, raw_item=cause.raw_item)

    def end_step(self, given: e.RunStep, cause: e.Event) -> Iterator[e.Event]:
        step = self.step
        if given.id and given.id != (step.id if step is not None else None):
            if given.id in self._by_id:
                merge(self._by_id[given.id], given)  # what is said late of a step that is over
            return
        if step is None:
            return
        merge(step, given)
        if step.status == "in_progress":
            step.status = "completed"
        self.step = None
        self._counted = self.usage
        yield e.RunStepDone(step, position=cause.position, raw_item=cause.raw_item)


def merge(live: e.Run | e.RunStep, given: e.Run | e.RunStep, keep: tuple[str, ...] = ()) -> None:
    """Take over what the given one knows."""
    for key in live.__struct_fields__:
        value = getattr(given, key)
        if key not in keep and value is not None and value != "" and value != {}:
            setattr(live, key, value)
