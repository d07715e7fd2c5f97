"""`check_protocol`: holds a protocol to the laws that every protocol keeps, for the author of a new one.

It needs no test framework: a law that does not hold is a `ProtocolCheckError`, which is an `AssertionError`. Whatever is
random comes from a seed, so that the same call checks the same streams.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from typing import Any, cast

from ...errors import UsageError
from .laws import LAWS, Check, Options
from .recording import Source, read_recording
from .report import ProtocolCheckError, ProtocolReport

__all__ = ["ProtocolCheckError", "ProtocolReport", "check_protocol"]


def check_protocol(
    module: Any,
    recordings: Iterable[Source],
    *,
    cannot_express: Collection[str] = (),
    expected_warnings: Collection[str] = (),
    attempts: int = 300,
    seed: int = 0,
    time_limit: float = 120.0,
) -> ProtocolReport:
    """Check that a protocol keeps the laws of streamkit, over recorded streams.

    The laws, by their names in the report and in errors:

    - `parts`: the module has `Decoder`, `Encoder` and `to_input`; both classes have the same `name`.
    - `warnings`: a recording has no warnings but the expected ones, so that no decoder repairs what was right.
    - `cuts`: the events are the same however the bytes are cut: at each byte of a small body, at random ones of a large
      body, byte by byte. A plain case (`plain_item`, `plain`) emits what `feed` emits.
    - `items`: `feed` leaves the item unchanged.
    - `faces`: `stream`, and `astream` on asyncio and on trio (if it is installed), give the same events.
    - `brackets`: each message is created once, empty, before its first delta, and done once, after its last. They are in
      a step of a run, and each run and step that begins is done.
    - `snapshots`: each snapshot, and each final content, is the sum of the deltas so far.
    - `twice`: the events of the stream, read as a stream of their own, are the same events.
    - `truncation`: cut off after any item or in the middle of one, the stream ends as complete or with
      `IncompleteStreamError` (`RunFailedError` where the provider reported a failure). At one place at least it is incomplete,
      else the decoder has no terminal rule.
    - `junk`: with items whose values are dropped or replaced by others of any type, and with items that are cut, missing,
      repeated or swapped, nothing but a `StreamkitError` is raised, in a lenient stream no `ProtocolError`, and the decoder
      raises nothing of its own (which would lose the rest of the item).
    - `recognition`: the first item that any protocol recognises is recognised as this protocol and as no other.
    - `encoding`: what was decoded, encoded and decoded again, has the same contents by type of message.
    - `input`: `to_input` returns a list for messages of every type, an empty one for none, or raises `UsageError`.

    Example, as a test of a package with a protocol:

        def test_my_protocol_keeps_the_laws():
            check_protocol(my_package.protocol, Path("recordings").glob("*.sse"))

    Args:
        module: what has `Decoder`, `Encoder` and `to_input`: the module of the protocol, or any object with them.
        recordings: complete streams: bodies as `bytes` (SSE or newline-delimited JSON), paths to files with such bodies, or
            iterables of items as dicts. Short ones are checked more thoroughly. For a protocol with `wraps_event_name` an
            item is `{"event": name, "data": item}`.
        cannot_express: types of messages, such as `console`, that the encoder leaves out or changes. The report notes them.
        expected_warnings: codes of the warnings that the recordings have.
        attempts: how many damaged streams are checked for each recording, chosen at random among all.
        seed: what the random choices begin with.
        time_limit: the seconds that one law may take for one recording. A decoder that never comes back fails there.

    Returns:
        What was checked.

    Raises:
        ProtocolCheckError: a law does not hold.
        UsageError: there is no recording, or one has no items.
    """
    report = ProtocolReport(protocol=_check_parts(module))
    options = Options(module, frozenset(cannot_express), frozenset(expected_warnings), attempts, seed, report)
    for number, source in enumerate(recordings):
        recording = read_recording(module.Decoder, source, f"recording {number}")
        report.recordings.append(recording.name)
        check = Check(options, recording)
        for law, method in LAWS.items():
            check.law = law
            _within(time_limit, check, method)
    if not report.recordings:
        raise UsageError("check_protocol needs at least one recording")
    report.notes = list(dict.fromkeys(report.notes))
    return report


def _check_parts(module: Any) -> str:
    missing = [part for part in ("Decoder", "Encoder", "to_input") if not hasattr(module, part)]
    if missing:
        raise ProtocolCheckError("parts", "", f"the module has no {' and no '.join(missing)}")
    names = [getattr(part, "name", None) for part in (module.Decoder, module.Encoder)]
    if not names[0] or names[0] != names[1]:
        raise ProtocolCheckError(
            "parts", "", f"the names of the decoder and of the encoder are {names[0]!r}, {names[1]!r}"
        )
    return cast("str", names[0])  # the cast: an object of any kind may be given as the module


def _within(seconds: float, check: Check, method: Callable[[Check], None]) -> None:
    """Run a law's check in a thread, because a decoder that never comes back can only be left alone."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            method(check)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name=f"check_protocol {check.law}", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise check.failure(f"{check.place}: it has not come to its end in {seconds:g} seconds")
    if raised:
        raise raised[0]
