"""Recordings: what a stream's own items were, to be told again."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

import streamkit as sk
from streamkit.protocols import codec
from streamkit.testing import ModelServer, Reply, ServiceError, ToolCall

from .faces import (
    ASKED,
    Face,
    Source,
    SyncTold,
    ask,
    ask_responses,
    body,
    both_shells,
    calls,
    chat,
    every_pair,
    interpreter,
)

ROOT = Path(__file__).resolve().parents[1]


async def raised_by(awaitable: Any) -> BaseException:
    with pytest.raises(BaseException) as caught:
        await awaitable
    return caught.value


async def story(stream: Any) -> list[dict[str, Any]]:
    """Every event, with its snapshot's content; it ends where the stream fails."""
    lines: list[dict[str, Any]] = []
    try:
        async for event in stream:
            line = codec.event_to_dict(event)
            if (snapshot := getattr(event, "snapshot", None)) is not None:
                line["so far"] = snapshot.content
            lines.append(line)
    except sk.StreamkitError as error:
        lines.append({"error": type(error).__name__, "message": str(error)})
    return lines


def handler_story(told: Any) -> list[str]:
    return [name for name, _ in told.told]


@both_shells
@body
async def test_a_recording_is_read_with_the_fields_that_its_stream_had(face: Face, tmp_path: Path) -> None:
    """Unless others are asked for."""
    path = tmp_path / "run.jsonl"
    fields = {"say.text": "text"}
    reply = Reply(ToolCall("say", {"text": "Hello there", "to": "you"}))
    with ModelServer(reply) as server:
        async with face.client(server) as client:
            recorded = await story(face.stream(ask(client), sk.Recorder(path), fields=fields))
    again = face.stream(path)
    assert await story(again) == recorded
    assert again.fields == fields
    other = face.stream(path, fields={"say.to": "text"})
    assert await other.get_final_text() == "you"
    assert other.fields == {"say.to": "text"}


REPLIES = {
    "text": Reply("Hello there"),
    "calls": Reply("Well.", ToolCall("a", {"x": 1}), ToolCall("b", {"y": "é\u2028"})),
    "cut": Reply("Hello there", cut_after=2),
    "error": Reply("Hello there", error_after=2, error=ServiceError("Too much.", code="overloaded")),
}


@every_pair
@both_shells
@pytest.mark.parametrize("request_of", [ask, ask_responses])
@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
@body
async def test_a_recording_of_a_real_stream_tells_the_same_story(
    face: Face, reply: Reply, request_of: Any, tmp_path: Path
) -> None:
    """Failures included."""
    path = tmp_path / "recording"
    with ModelServer(reply) as server:
        async with face.client(server) as client:
            told = face.told()
            first = await story(face.stream(request_of(client), told, sk.Recorder(path)))
    again = face.told()
    assert await story(face.stream(path, again)) == first
    assert handler_story(again) == handler_story(told)
    again.check_brackets()


@both_shells
@pytest.mark.parametrize(
    "items", [chat("Hel", "lo"), calls("one", "two"), interpreter(), chat("Hel", finish=None)], ids=range(4)
)
@body
async def test_a_recording_of_objects_tells_the_same_story(face: Face, items: Any, tmp_path: Path) -> None:
    """Items that were parsed already."""
    path = tmp_path / "recording"
    first = await story(face.stream(items, sk.Recorder(path)))
    assert await story(face.stream(path)) == first


@both_shells
@body
async def test_a_recording_of_a_recording_is_the_same_but_for_its_times(face: Face, tmp_path: Path) -> None:
    """Recording changes nothing."""
    one, two = tmp_path / "one", tmp_path / "two"
    await face.stream(chat("Hel", "lo"), sk.Recorder(one)).until_done()
    await face.stream(one, sk.Recorder(two)).until_done()

    def lines(path: Path) -> list[dict[str, Any]]:
        out = [json.loads(line) for line in path.read_text().splitlines()]
        return [{key: line[key] for key in line if key not in ("time", "created_at")} for line in out]

    assert lines(one) == lines(two)


def opened(path: Path, kind: str) -> Any:
    """A file in one of many ways."""
    match kind:
        case "bytes":
            return path.open("rb")
        case "unbuffered":
            return path.open("rb", buffering=0)
        case "text":
            return path.open(encoding="utf-8")
        case "text that is taken for another":
            return path.open(encoding="latin-1")
        case "BytesIO":
            return io.BytesIO(path.read_bytes())
        case "StringIO":
            return io.StringIO(path.read_text(encoding="utf-8"))
        case "gzip":
            return gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(path.read_bytes())))
        case "temporary":
            file = tempfile.NamedTemporaryFile()  # noqa: SIM115  # the stream closes it
            file.write(path.read_bytes())
            file.seek(0)
            return file
        case _:
            raise AssertionError(kind)


OPENED = ["bytes", "unbuffered", "text", "text that is taken for another", "BytesIO", "StringIO", "gzip", "temporary"]


async def record(face: Face, path: Path) -> list[dict[str, Any]]:
    """A run over three sources; what its recording tells."""
    then = [calls("again"), chat("It rains in Troms\xf8.")]
    told = face.told(on_tool_call_done=lambda _, call: call.respond("ok"))
    source = calls("weather")
    stream = face.stream(source, told, sk.Recorder(path), then=lambda _: then.pop(0) if then else None)
    await stream.until_done()
    return await story(face.stream(path))


@both_shells
@pytest.mark.parametrize("kind", OPENED)
@body
async def test_an_open_file_of_a_recording_is_as_its_path(face: Face, kind: str, tmp_path: Path) -> None:
    """On disk or in memory, of bytes or of text; it is closed with the stream."""
    expected = await record(face, tmp_path / "recording")
    assert "It rains in Troms\xf8." in str(expected)
    file = opened(tmp_path / "recording", kind)
    assert await story(face.stream(file)) == expected
    assert file.closed


@every_pair
@both_shells
@pytest.mark.parametrize("kind", OPENED)
@pytest.mark.parametrize("way", ["from its first item", "after something else", "from its second source", "looped"])
@body
async def test_an_open_file_is_read_from_where_it_is(face: Face, kind: str, way: str, tmp_path: Path) -> None:
    """What was read before is not told again."""
    path = tmp_path / "recording"
    expected = await record(face, path)
    if way == "after something else":
        path.write_bytes(b"# my notes\n" + path.read_bytes())
    if (kind, way) == ("text that is taken for another", "looped"):
        return  # what a loop reads as another encoding's is another text
    file = opened(path, kind)
    if way == "looped":
        assert next(iter(file))
        assert next(iter(file))
    elif way == "from its second source":
        text = path.read_bytes()
        second = text.index(b'{"source":', text.index(b'{"source":') + 1)
        while file.tell() < second:
            file.readline()
        expected = []
    else:
        for _ in range(2 if way == "from its first item" else 1):
            file.readline()
    told = await story(face.stream(file))
    if expected:
        assert len(told) == len(expected)
        assert "another" in kind or told == expected
    else:
        texts = [line["message"].get("content") for line in told if line["type"] == "text_done"]
        assert len(texts) == 1
        assert "another" in kind or texts == ["It rains in Troms\xf8."]


@both_shells
@pytest.mark.parametrize("kind", OPENED)
@body
async def test_an_open_file_of_a_body_is_read_from_where_it_is(face: Face, kind: str, tmp_path: Path) -> None:
    """Server-Sent Events after a line of the caller's own."""
    path = tmp_path / "body"
    path.write_text(
        "my notes\n" + "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chat("Hel", "lo")), encoding="utf-8"
    )
    for looped in (False, True):
        file = opened(path, kind)
        next(iter(file)) if looped else file.readline()
        assert await face.stream(file).get_final_text() == "Hello"
        assert file.closed


@both_shells
@body
async def test_a_file_that_cannot_be_read_is_a_source_error(face: Face, tmp_path: Path) -> None:
    """Closed, or open for writing alone."""
    closed = io.BytesIO(b"data: {}")
    closed.close()
    for file in (closed, (tmp_path / "out").open("wb")):
        assert type(await raised_by(face.stream(file).until_done())) is sk.SourceError
        file.close()


@both_shells
@body
async def test_a_pipe_is_read_as_it_comes(face: Face) -> None:
    """It cannot be sought in, and its end is not waited for."""
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as file, os.fdopen(theirs, "wb", buffering=0) as out:
        lines = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chat("Hel", "lo")]
        out.write(b"".join(lines[:2]))
        stream = face.stream(file)
        texts = []
        async for text in stream.text_deltas:
            texts.append(text)
            if text == "Hel":
                out.write(b"".join(lines[2:]))
                out.close()
        assert texts == ["Hel", "lo"]


@both_shells
@body
async def test_an_approved_run_replays_as_it_was(face: Face, tmp_path: Path) -> None:
    """The recording is passive: nothing asks again."""
    path = tmp_path / "recording"
    source = Source(interpreter())
    told = face.told(on_confirmation=lambda _, asked: asked.approve())
    first = await story(face.stream(face.generator(source), told, sk.Recorder(path)))
    assert await story(face.stream(path)) == first


@both_shells
@pytest.mark.parametrize("declines", [True, False], ids=["declined", "unanswered"])
@body
async def test_a_run_that_was_not_approved_replays_as_it_ended(face: Face, declines: bool, tmp_path: Path) -> None:
    """Nothing came after the question."""
    path = tmp_path / "recording"
    source = Source(interpreter())
    told = face.told(on_confirmation=lambda _, asked: asked.decline("no") if declines else None)
    first = face.stream(face.generator(source), told, sk.Recorder(path))
    await first.until_done()
    assert source.went == ASKED
    again = face.told()
    stream = face.stream(path, again)
    assert [m.type for m in await stream.get_final_messages()] == ["code"]
    assert again.hooks == told.hooks
    assert stream.status == first.status == ("completed" if declines else "requires_action")
    outcomes = [(asked.status, asked.reason) for asked in stream.confirmations]
    assert outcomes == [("declined", "no") if declines else ("unanswered", None)]


@both_shells
@body
async def test_a_run_that_had_as_many_steps_as_it_may_replays_as_it_ended(face: Face, tmp_path: Path) -> None:
    """The stream ended it, and not its sources, which wanted another call answered."""
    path = tmp_path / "recording"
    told = face.told(on_tool_call_done=lambda _, call: call.respond("sunny"))
    first = face.stream(calls("weather"), told, sk.Recorder(path), then=lambda _: calls("weather"), max_steps=2)
    for stream in (first, face.stream(path)):
        run = await stream.get_final_run()
        assert (run.status, run.finish_reason, stream.status) == ("incomplete", "max_steps", "incomplete")


@both_shells
@body
async def test_a_transport_failure_comes_again(face: Face, tmp_path: Path) -> None:
    """With its kind and status."""
    path = tmp_path / "recording"
    with ModelServer(Reply(status=429)) as server:
        async with face.client(server) as client:
            await raised_by(face.stream(ask(client), sk.Recorder(path)).until_done())
    error = await raised_by(face.stream(path).until_done())
    assert type(error) is sk.SourceError
    assert error.status_code == 429
    late = tmp_path / "late"
    source = Source(chat("Hel", finish=None), error=TimeoutError("slow"))
    await raised_by(face.stream(face.generator(source), sk.Recorder(late)).until_done())
    told = face.told()
    assert isinstance(await raised_by(face.stream(late, told).until_done()), sk.SourceTimeoutError)
    assert "on_timeout" in told.hooks


FRAMES = b"".join(b"data: " + json.dumps(item).encode() + b"\n\n" for item in chat("Hel", finish=None))
CUTS = {
    "an event": ([FRAMES + b'data: {"cut":', b' "of'], None, '{"cut": "of'),
    "the first event": ([b"\n da", b'ta: {"choi'], None, '\n data: {"choi'),
    "a byte order mark, of a protocol that was given": ([b"\xef", b"\xbb"], "openai_chat", "\udcef\udcbb"),
    "an event after one of no protocol": ([b"data: 1\n\n", b'data: {"cut'], None, '{"cut'),
    "text": ([b"Hello ", b"there"], None, "Hello there"),
    "nothing but space": ([b"  \n"], None, "  \n"),
}


@pytest.mark.parametrize("case", CUTS)
def test_a_recording_has_the_beginning_of_what_was_cut_off(case: str, tmp_path: Path) -> None:
    """The item in the middle of which its source ended; the whole source where no item is complete."""
    source, protocol, cut = CUTS[case]
    path = tmp_path / "recording"
    with pytest.raises(sk.StreamkitError) as live:
        sk.stream(source, sk.Recorder(path), protocol=protocol).until_done()
    lines = map(json.loads, path.read_text().splitlines())
    assert [line["cut"] for line in lines if "cut" in line] == [cut]
    with pytest.raises(sk.StreamkitError) as again:
        sk.stream(path, protocol=protocol).until_done()
    assert str(again.value) == str(live.value)


@both_shells
@body
async def test_a_hooks_error_is_not_the_recordings(face: Face, tmp_path: Path) -> None:
    """What the source said up to there is."""

    def fail(*_: Any) -> None:
        raise LookupError

    path = tmp_path / "recording"
    stream = face.stream(chat("Hel", "lo"), sk.Recorder(path), face.told(on_text_done=fail))
    assert isinstance(await raised_by(stream.until_done()), LookupError)
    assert await face.stream(path).get_final_text() == "Hello"


@pytest.mark.slow
def test_a_recording_is_readable_wherever_a_crash_cut_it(tmp_path: Path) -> None:
    """After any byte: it tells a part of the story, and is incomplete."""
    path, part = tmp_path / "recording", tmp_path / "part"
    sk.stream([*chat("Hel", "lo é")], sk.Recorder(path)).until_done()
    content = path.read_bytes()
    ends = content.index(b'"finish_reason":"stop"')
    said: set[str] = set()
    for cut in range(1, len(content)):
        part.write_bytes(content[:cut])
        stream = sk.stream(part)
        if cut < ends:
            with pytest.raises(sk.IncompleteStreamError):
                stream.until_done()
        else:
            try:
                stream.until_done()
            except sk.IncompleteStreamError:
                assert cut < len(content) - 1
        said.add("".join(m.content for m in stream.messages))
        assert not stream.warnings
    assert said == {"", "Hel", "Hello é"}


def test_each_batch_is_written_before_the_handlers_are_told(tmp_path: Path) -> None:
    """A crash in a hook loses nothing."""
    path, seen = tmp_path / "recording", []

    def look(told: Any, delta: Any, snapshot: Any) -> None:
        seen.append(json.dumps(delta.value) in path.read_text())

    sk.stream(iter(chat("Hel", "lo")), SyncTold(on_text_delta=look), sk.Recorder(path)).until_done()
    assert seen == [True, True]


def test_a_recorder_refuses_a_file_of_another_kind(tmp_path: Path) -> None:
    """At construction of the stream; the file is left as it is, and the other handlers are free."""
    path = tmp_path / "notes.txt"
    path.write_text("my notes")
    told, recorder = SyncTold(), sk.Recorder(path)
    for _ in range(2):
        with pytest.raises(sk.UsageError, match="not a recording"):
            sk.stream(chat("Hi"), told, recorder)
    assert path.read_text() == "my notes"
    sk.stream(chat("Hi"), told).until_done()


def test_a_recorder_that_cannot_write_fails_the_stream(tmp_path: Path) -> None:
    """It is the handler's error."""
    (tmp_path / "folder").mkdir()
    stream = sk.stream(chat("Hi"), sk.Recorder(tmp_path / "folder" / "recording"))
    (tmp_path / "folder").rmdir()
    with pytest.raises(OSError):
        stream.until_done()


def test_a_recorder_appends_to_a_recording_that_a_crash_cut(tmp_path: Path) -> None:
    """The torn line is left behind; what comes after it is read."""
    path = tmp_path / "recording"
    with pytest.raises(sk.IncompleteStreamError):
        sk.stream(chat("Hel", "never", finish=None), sk.Recorder(path)).until_done()
    lines = path.read_bytes().splitlines(keepends=True)
    torn = next(index for index, line in enumerate(lines) if b"never" in line)
    path.write_bytes(b"".join(lines[:torn]) + lines[torn][:40])
    sk.stream(chat("lo")[1:], sk.Recorder(path)).until_done()
    messages = sk.stream(path).get_final_messages()
    assert [(message.content, message.status) for message in messages] == [("Hel", "incomplete"), ("lo", "completed")]


def test_a_handler_that_records_may_be_used_again(tmp_path: Path) -> None:
    """It appends."""
    path = tmp_path / "recording"
    recorder = sk.Recorder(path)
    for _ in range(2):
        sk.stream(chat("Hi"), recorder).until_done()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sum("streamkit" in line for line in lines) == 1
    assert sum("end" in line for line in lines) == 2


@both_shells
@body
async def test_replay_keeps_the_times(face: Face, tmp_path: Path) -> None:
    """Twice as fast, it takes half as long."""

    def recorded(pause: float) -> Path:
        path = tmp_path / f"recording-{pause}"
        lines = [{"streamkit": "recording", "version": 1, "created_at": 1.0}]
        lines += [{"time": pause * i, "data": chunk} for i, chunk in enumerate(chat("Hel", "lo"))]  # type: ignore[list-item]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    async def takes(source: Any) -> float:
        began = time.monotonic()
        assert await face.stream(source).get_final_text() == "Hello"
        return time.monotonic() - began

    assert await takes(sk.replay(recorded(0.1))) >= 0.3
    assert 0.3 <= await takes(sk.replay(recorded(10), speed=100)) < 30
    assert await takes(recorded(10)) < 30


def test_a_replay_needs_a_speed(tmp_path: Path) -> None:
    """Above 0, and says so at once."""
    for speed in (0, -1, float("nan")):
        with pytest.raises(sk.UsageError, match="speed"):
            sk.replay(tmp_path / "recording", speed=speed)


@pytest.mark.parametrize(
    "line", ["5", "[]", '"x"', "null", '{"time": "soon", "data": {}}', '{"time": 1, "id": 5, "data": {}}']
)
def test_lines_that_make_no_sense_do_not_break_a_recording(tmp_path: Path, line: str) -> None:
    """They are skipped, or tell nothing."""
    path = tmp_path / "recording"
    sk.stream(chat("Hel", "lo"), sk.Recorder(path)).until_done()
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], line, *lines[2:]]) + "\n")
    assert sk.stream(path).get_final_text() == "Hello"
    assert sk.stream(sk.replay(path, speed=1000)).get_final_text() == "Hello"


# -- damage


@pytest.mark.parametrize("place", [2, 3, 4])
def test_a_damaged_line_inside_a_recording_is_reported(tmp_path: Path, place: int) -> None:
    """It is no crash that damaged it, so it is never dropped silently; a strict stream raises."""
    path = tmp_path / "run.jsonl"
    sk.stream(chat("a", "b", "c"), sk.Recorder(path)).until_done()
    lines = path.read_bytes().splitlines(keepends=True)
    lines[place] = lines[place][:20] + b"\n"
    path.write_bytes(b"".join(lines))
    stream = sk.stream(path)
    stream.until_done()
    [warning] = stream.warnings
    assert (warning.code, warning.index) == ("not-json", place - 2)
    assert "it is a damaged line of a recording" in warning.fault
    with pytest.raises(sk.ProtocolError, match="damaged line of a recording"):
        sk.stream(path, strict=True).until_done()


def test_the_line_that_a_crash_cut_off_is_not_reported(tmp_path: Path) -> None:
    """Neither at the end of the file nor before the source that was recorded afterwards."""
    path = tmp_path / "run.jsonl"
    sk.stream(chat("a"), sk.Recorder(path)).until_done()
    path.write_bytes(path.read_bytes() + b'{"time": 0.2, "data": {"choi')
    whole = sk.stream(path)
    whole.until_done()
    sk.stream(chat("b"), sk.Recorder(path)).until_done()
    both = sk.stream(path)
    both.until_done()
    assert [message.content for message in both.messages] == ["a", "b"]
    assert not whole.warnings
    assert not both.warnings


def test_a_recording_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    sk.stream(chat("a"), sk.Recorder(path)).until_done()
    path.write_bytes(path.read_bytes().replace(b'"version":1', b'"version":99', 1))
    with pytest.raises(sk.SourceError, match="version 99, and this streamkit reads version 1"):
        sk.stream(path).until_done()


# -- the file


def test_a_recording_is_private(tmp_path: Path) -> None:
    """It holds a conversation. A file that exists keeps the permissions that its owner gave it."""
    before = os.umask(0)
    try:
        sk.stream(chat("a"), sk.Recorder(tmp_path / "run.jsonl")).until_done()
    finally:
        os.umask(before)
    assert (tmp_path / "run.jsonl").stat().st_mode & 0o777 == 0o600
    (tmp_path / "run.jsonl").chmod(0o644)
    sk.stream(chat("a"), sk.Recorder(tmp_path / "run.jsonl")).until_done()
    assert (tmp_path / "run.jsonl").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(("place", "match"), [("missing/run.jsonl", "no folder"), (".", "is a folder")])
def test_a_file_that_cannot_be_written_is_refused_before_the_request(tmp_path: Path, place: str, match: str) -> None:
    """And the handler is free for another stream."""
    sent: list[bool] = []
    recorder = sk.Recorder(tmp_path / place)
    for _ in range(2):
        with pytest.raises(sk.UsageError, match=match):
            sk.stream(lambda: sent.append(True) or chat("a"), recorder)
    assert not sent


WITHOUT_PERMISSION = """
import os, sys
import streamkit as sk
from tests.faces import chat

stream, Recorder = sk.stream, sk.Recorder  # imported while the package's files may be read
os.chmod(sys.argv[1], 0o555)
if os.geteuid() == 0:  # who may write everywhere
    os.setuid(65534)
try:
    stream(chat("a"), Recorder(sys.argv[1] + "/run.jsonl"))
except sk.UsageError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_file_without_permission_is_refused_before_the_request() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        ran = subprocess.run(
            [sys.executable, "-c", WITHOUT_PERMISSION, folder], cwd=ROOT, capture_output=True, text=True, timeout=300
        )
        os.chmod(folder, 0o700)
    assert "permission denied" in ran.stdout.lower(), ran.stderr
