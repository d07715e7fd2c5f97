"""A source that is read inside another: the outputs of a run's calls, submitted while its first stream is read.

What its run ended with is the end of the whole run; the status and the usage are the stream's own."""

from __future__ import annotations

from typing import Any

import pytest

import streamkit as sk
from streamkit.events import Run, RunCreated, RunDone, RunRequiresAction, TextDelta, ToolCallDone, Usage
from streamkit.messages import TextMessage, ToolCallMessage

from .faces import Face, Source, body, chat, every_face


def first_source(usage: Usage | None) -> list[sk.Event]:
    """A run that requires the output of a call."""
    call = ToolCallMessage("c0", name="weather", call_id="c0", content="{}")
    events: list[sk.Event] = [RunCreated(Run(id="run_1", model="m")), ToolCallDone(call)]
    events += [usage] if usage is not None else []
    action = Run(id="run_1", status="requires_action", metadata={"region": "south"})
    return [*events, RunRequiresAction(action), RunDone(action), sk.StreamEnd(status="requires_action")]


def second_source(counted: Usage | None, /, **outcome: Any) -> list[sk.Event]:
    """How it goes on, and ends. Its step is open until the stream ends."""
    events: list[sk.Event] = [RunCreated(Run(id="run_1")), TextDelta("t1", "It is 22.")]
    events += [counted] if counted is not None else []
    return [*events, RunDone(Run(**{"id": "run_1", "status": "completed", **outcome})), sk.StreamEnd()]


async def read_nested(face: Face, stream: Any, source: list[sk.Event]) -> None:
    """Read another source where the loop over the stream stands."""
    events = (stream if face.is_async else stream.manager).read_nested(source)
    if face.is_async:
        async for _ in events:
            pass
    else:
        for _ in events:
            pass


async def run_both(face: Face, first: list[sk.Event], second: list[sk.Event], *handlers: Any) -> Any:
    stream = face.stream(first, *handlers)
    async with stream:
        async for event in stream:
            if isinstance(event, RunRequiresAction):
                await read_nested(face, stream, second)
    return stream


@every_face
@body
async def test_the_nested_sources_outcome_is_the_runs(face: Face) -> None:
    """Its status, and all that it says of the run: not `requires_action`, with which the first one ended."""
    second = second_source(None, finish_reason="stop", metadata={"region": "north"}, completed_at=7.0)
    handler = face.told()
    stream = await run_both(face, first_source(None), second, handler)
    run = await stream.get_final_run()
    assert (run.status, run.finish_reason, run.completed_at) == ("completed", "stop", 7.0)
    assert (run.model, run.metadata) == ("m", {"region": "north"})
    assert stream.status == "completed"
    handler.check_brackets()
    assert [m.content for m in stream.messages if isinstance(m, TextMessage)] == ["It is 22."]


@every_face
@pytest.mark.parametrize("status", ["incomplete", "cancelled"])
@body
async def test_a_nested_source_that_was_cut_short_cuts_the_run_short(face: Face, status: Any) -> None:
    stream = await run_both(face, first_source(None), second_source(None, status=status))
    assert (await stream.get_final_run()).status == stream.status == status


@every_face
@body
async def test_the_run_is_in_progress_until_the_stream_ends(face: Face) -> None:
    """Though its source has said how it ended: the last step's hook comes before the run's."""
    seen: list[tuple[str, str]] = []

    def look(handler: Any, step: sk.RunStep) -> None:
        seen.append((step.id, handler.stream.current_run.status))

    handler = face.told(on_run_step_done=look)
    await run_both(face, first_source(None), second_source(None), handler)
    assert seen == [("step-1", "requires_action"), ("step-2", "in_progress")]
    assert [run.status for run in handler.of("on_run_done")] == ["completed"]


@every_face
@body
async def test_the_runs_usage_is_the_sum_of_its_steps(face: Face) -> None:
    """And not what the nested source says of the run, which is that of its own steps alone."""
    one, two = Usage(1, 2, 3), Usage(10, 20, 30)
    stream = await run_both(face, first_source(one), second_source(two, usage=Usage(10, 20, 30)))
    run = await stream.get_final_run()
    assert run.usage is not None
    assert (run.usage.input_tokens, run.usage.output_tokens, run.usage.total_tokens) == (11, 22, 33)
    assert stream.usage.total_tokens == 33


@every_face
@body
async def test_a_nested_source_changes_nothing_of_a_run_that_had_ended(face: Face) -> None:
    """One that is read although the run requires nothing."""
    first = [RunCreated(Run(id="run_1")), TextDelta("t0", "Hello"), RunDone(Run(id="run_1", finish_reason="stop"))]
    stream = face.stream([*first, sk.StreamEnd()])
    async with stream:
        async for event in stream:
            if isinstance(event, TextDelta) and event.message_id == "t0":
                await read_nested(face, stream, second_source(None, status="incomplete", finish_reason="length"))
    run = await stream.get_final_run()
    assert (run.status, run.finish_reason) == ("completed", "stop")


# -- a stream over a stream


@every_face
@pytest.mark.parametrize("pieces", [[], ["Hel"]], ids=["before its first step", "in its first step"])
@body
async def test_what_begins_in_a_stream_over_a_failed_one_has_no_error_yet(face: Face, pieces: list[str]) -> None:
    """The inner stream hands its last events out when all of them have happened: its run and step are over by then."""
    began: list[tuple[str, Any, Any]] = []

    def look(handler: Any, begun: Any) -> None:
        began.append((begun.status, begun.error, begun.usage))

    inner = face.stream(face.generator(Source(chat(*pieces, finish=None), error=OSError("broke"))))
    handler = face.told(on_run_created=look, on_run_step_created=look)
    outer = face.stream(inner if face.is_async else inner.manager, handler)
    with pytest.raises(sk.SourceError):
        await outer.until_done()
    assert began == [("in_progress", None, None)] * len(began)
    assert len(began) == 2
    handler.check_brackets()


@every_face
@body
async def test_what_begins_with_a_failure_has_no_error_yet(face: Face) -> None:
    """A run that fails before its first step still has one."""
    began: list[tuple[str, Any]] = []
    failed = {"id": "resp_1", "status": "failed", "error": {"code": "server_error", "message": "broke"}, "output": []}
    inner = face.stream([{"type": "response.failed", "sequence_number": 0, "response": failed}])
    handler = face.told(on_run_step_created=lambda handler, step: began.append((step.status, step.error)))
    outer = face.stream(inner if face.is_async else inner.manager, handler)
    with pytest.raises(sk.RunFailedError):
        await outer.until_done()
    assert began == [("in_progress", None)]
    assert [(step.status, bool(step.error)) for step in handler.of("on_run_step_done")] == [("failed", True)]
