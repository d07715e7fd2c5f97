"""The order that the events of every stream keep: brackets, and snapshots that are the sum of their deltas.

The events are in their wire form; a delta also has the content of its snapshot, at `snapshot`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ...events import EVENTS, Created, Delta, Done, RunCreated, RunDone, RunStepCreated, RunStepDone
from .outcome import short

__all__ = ["bracket_fault", "snapshot_fault"]


def bracket_fault(lines: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the first fault in the order of these events, None if there is none."""
    open_ids: dict[str, None] = {}  # of messages; a run and its step have their kind as the id
    done_ids: set[str] = set()
    for number, line in enumerate(lines):
        fault = None
        match _phase(line):
            case "created":
                fault = _created_fault(line, open_ids, done_ids)
                open_ids[_id(line)] = None
            case "delta" if line["message_id"] not in open_ids:
                fault = "is a delta of a message that is not open"
            case "done":
                fault = _done_fault(_id(line), open_ids)
                open_ids.pop(_id(line), None)
                done_ids.add(_id(line))
            case _:
                pass
        if fault:
            return f"event {number}: {short(dict(line))} {fault}"
    return f"never done: {', '.join(open_ids)}" if open_ids else None


def _phase(line: Mapping[str, Any]) -> str:
    """`created`, `delta` or `done`; "" for an event that is neither of a message nor of a run or step."""
    kind = EVENTS[line["type"]]
    if issubclass(kind, (Created, RunCreated, RunStepCreated)):
        return "created"
    if issubclass(kind, (Done, RunDone, RunStepDone)):
        return "done"
    return "delta" if issubclass(kind, Delta) else ""


def _id(line: Mapping[str, Any]) -> str:
    id: str = "run" if "run" in line else "run_step" if "run_step" in line else line["message"]["id"]
    return id


def _created_fault(line: Mapping[str, Any], open_ids: Collection[str], done_ids: Collection[str]) -> str | None:
    id = _id(line)
    if id in open_ids or (id in done_ids and id != "run_step"):
        return "is created for the second time"
    around = {"run": None, "run_step": "run"}.get(id, "run_step")
    if around is not None and around not in open_ids:
        return f"stands outside of a {around}"
    return "is not empty when it is created" if "content" in line.get("message", ()) else None


def _done_fault(id: str, open_ids: Collection[str]) -> str | None:
    if id not in open_ids:
        return "is done without being open"
    inner = [open_id for open_id in open_ids if open_id != id] if id == "run" else ()
    return f"is done before {', '.join(inner)}" if inner else None


def snapshot_fault(lines: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the first snapshot, or final content, that is not the sum of the deltas before it; None if there is
    none."""
    contents: dict[str, str] = {}
    for number, line in enumerate(lines):
        phase = _phase(line)
        if phase == "delta":
            id, came = line["message_id"], line["snapshot"]
            contents[id] = line["value"] if line.get("replace") else contents.get(id, "") + line["value"]
        elif phase == "done" and "message" in line:
            id, came = line["message"]["id"], line["message"].get("content", "")
        else:
            continue
        if came != contents.get(id, ""):
            return f"event {number}: expected the content {short(contents.get(id, ''))}, came {short(came)}"
    return None
