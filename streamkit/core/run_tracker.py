"""The brackets of a run: created before anything in it, done after all of it, with at least one step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import compress, repeat
from operator import is_not
from typing import Any

import msgspec
from msgspec.structs import astuple, replace

from .. import events as e

__all__ = ["RunTracker", "merge"]


class RunTracker(msgspec.Struct, eq=False):
    """The run of one stream, and its steps.

    Attributes:
        run: the run, live; None before it begins.
        step: the step that is open, None between two.
        steps: all steps, in order.
        outcome: how the source's run ended, until the stream ends the run.
        ended: whether the run is done, or can begin no more.
        requires_action: whether `RunRequiresAction` was emitted in the present step.
        usage: the run's tokens: the sum of its steps'.
        step_reason: why the model stopped in the newest step, in the provider's word: also where other sources followed in that
            step. None if it is not known.
    """

    steps: list[e.RunStep] = []
    run: e.Run | None = None
    step: e.RunStep | None = None
    outcome: e.Run | None = None
    ended: bool = False
    requires_action: bool = False
    usage: e.Usage | None = None
    step_reason: str | None = None
    _usage_before: e.Usage | None = None  # of the steps before this one
    _step_count: int = 0  # forgotten steps count as well
    _made_by_id: dict[str, e.RunStep] | None = None  # most sources give their steps no ids

    @property
    def _by_id(self) -> dict[str, e.RunStep]:
        """The steps by their ids."""
        if self._made_by_id is None:
            self._made_by_id = {step.id: step for step in self.steps}
        return self._made_by_id

    # -- the run

    def open(self, template: e.Run, cause: e.Event) -> Iterable[e.Event]:
        """Begin the run, if it has not begun. Another response of the same run updates it."""
        if self.run is None:
            self.run = replace(
                template, status="in_progress", usage=None, error=None, finish_reason=None, completed_at=None
            )
            self.run.id = template.id or "run-1"
            return (e.RunCreated(self.run, position=cause.position, raw_item=cause.raw_item),)
        if isinstance(cause, e.RunCreated):
            merge(self.run, template, keep=("status", "usage", "error"))
            self.outcome = None
        return ()

    def end_with(self, outcome: e.Run) -> None:
        """Record how the source's run ended."""
        assert self.run is not None
        merge(self.run, outcome, keep=("status", "usage"))
        self.outcome = outcome

    def require_action(self, template: e.Run, cause: e.Event) -> Iterator[e.Event]:
        """Record that the run cannot go on before its tool calls are answered."""
        assert self.run is not None
        merge(self.run, template, keep=("usage",))
        self.run.status = "requires_action"
        self.requires_action = True
        yield e.RunRequiresAction(self.run, position=cause.position, raw_item=cause.raw_item)

    def resume(self) -> None:
        """Go on with another source."""
        self.outcome = None
        if self.run is not None:
            self.run.status = "in_progress"

    def fail_step(self, error: Mapping[str, Any]) -> Iterator[e.Event]:
        """End the step that is open, if there is one, because its attempt has failed. The run goes on."""
        if self.run is not None:
            self.run.error = self.run.finish_reason = None
        if self.step is not None:
            yield from self.end_step(e.RunStep(status="failed", error=error), e.StreamEnd())

    def end_last_step(self, status: e.RunStatus, error: Mapping[str, Any] | None) -> Iterator[e.Event]:
        """End the step that is open, because the run ends. A run without any step gets one."""
        nothing = e.StreamEnd()
        if self.run is not None and not self.steps:
            yield from self.open_step(nothing)
        if (step := self.step) is not None:
            step.status = "completed" if status in ("requires_action", "in_progress") else status
            step.error = error or step.error
            yield self._close_step(step, nothing)

    def end(self, status: e.RunStatus, error: Mapping[str, Any] | None) -> e.RunDone | None:
        """End the run, after its last step. Returns None if it never began."""
        self.ended = True  # only now: where a hook fails while a step ends, the rest is emitted by another call
        if (run := self.run) is None:
            return None
        run.status = status
        if error is not None and run.error is None:
            run.error = error
        return e.RunDone(run)

    # -- its steps

    def open_step(self, cause: e.Event) -> Iterator[e.Event]:
        """Begin the run and a step, if none is open, for what is about to happen in it."""
        if self.step is None:
            yield from self.begin_step(e.RunStep(), cause)

    def begin_step(self, template: e.RunStep, cause: e.Event) -> Iterator[e.Event]:
        """Begin a step; the one before ends. An id that was used already begins no step."""
        if self.run is None:
            yield from self.open(e.Run(), cause)
        if template.id and template.id in self._by_id:
            return
        if self.step is not None:
            yield from self.end_step(e.RunStep(status="completed"), cause)
        assert self.run is not None
        self._step_count += 1
        # Another stream's step is live, and may be over by now.
        self.step = step = replace(
            template,
            id=template.id or (f"step-{self._step_count}" if self._step_count > 1 else "step-1"),
            run_id=template.run_id or self.run.id,
            status="in_progress",
            usage=None,
            error=None,
            completed_at=None,
        )
        self.steps.append(step)
        if self._made_by_id is not None:
            self._made_by_id[step.id] = step
        self.requires_action = False
        self.step_reason = None
        yield e.RunStepCreated(step, position=cause.position, raw_item=cause.raw_item)

    def end_step(self, template: e.RunStep, cause: e.Event) -> Iterator[e.Event]:
        """End the open step. An update of a step that is over is merged into it."""
        step = self.step
        if template.id and template.id != (step.id if step is not None else None):
            if template.id in self._by_id:
                merge(self._by_id[template.id], template)
            return
        if step is None:
            return
        merge(step, template)
        if step.status == "in_progress":
            step.status = "completed"
        yield self._close_step(step, cause)

    def _close_step(self, step: e.RunStep, cause: e.Event) -> e.Event:
        self.step = None
        self._usage_before = self.usage
        return e.RunStepDone(step, position=cause.position, raw_item=cause.raw_item)

    def forget_steps(self, steps: Iterable[e.RunStep]) -> None:
        """Forget the ids of steps that are over."""
        if (made := self._made_by_id) is not None:
            for step in steps:
                made.pop(step.id, None)

    def count(self, usage: e.Usage) -> None:
        """Set the tokens of the open step, and the run's: the sum of its steps'."""
        run, step = self.run, self.step
        assert run is not None
        assert step is not None
        step.usage = usage
        if (before := self._usage_before) is not None:
            usage = e.Usage(
                before.input_tokens + usage.input_tokens,
                before.output_tokens + usage.output_tokens,
                before.total_tokens + usage.total_tokens,
                usage.details,
            )
        self.usage = run.usage = usage


_NUMBERS = (int, float, bool)


def merge(live: e.Run | e.RunStep, update: e.Run | e.RunStep, keep: tuple[str, ...] = ()) -> None:
    """Take over every field that has a value in the update, except those to keep. None, an empty text, list or mapping
    is not a value; 0 is one."""
    values = astuple(update)
    for key, value in compress(zip(update.__struct_fields__, values, strict=True), map(is_not, values, repeat(None))):
        if (value or value.__class__ in _NUMBERS) and key not in keep:
            setattr(live, key, value)
