"""Both UI protocols: what comes back of what they write, and the table about it in the guide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import streamkit as sk
from streamkit import events as e
from streamkit import messages as m
from streamkit import protocols
from streamkit.protocols import ag_ui, vercel_ui
from streamkit.testing import check_protocol

from .recorded import OWN, SHARED, streams_in
from .ui_streams import CASES, PROFILES, RUNS, call, case, comes_back, completed, encoded, everything, lines, whole

PAGE = Path(__file__).resolve().parents[1] / ".docs" / "ui-protocols.md"
MARK = "<!-- ui-round-trip"


def table() -> str:
    """The table of the guide."""
    rows = [f"| | {' | '.join(PROFILES)} |", "|---" * (len(PROFILES) + 1) + "|"]
    for name in (*CASES, *RUNS):
        found = [comes_back(name, protocol, options) for protocol, options in PROFILES.values()]
        rows.append(f"| {name} | {' | '.join(found)} |")
    return "\n".join(rows)


def test_the_guide_says_what_comes_back() -> None:
    """The table is what decoding gives of what was encoded."""
    text = PAGE.read_text("utf-8").partition(MARK)[2].partition("-->\n")[2].partition("<!-- /")[0]
    assert text.strip() == table()


@pytest.mark.parametrize("profile", PROFILES)
def test_one_stream_with_everything_comes_back_without_a_warning(profile: str) -> None:
    """All cases in one run: nothing that is open in it disturbs anything else. The source's own warning is no item."""
    protocol, options = PROFILES[profile]
    stream = sk.stream(encoded(everything(), protocol, **options), protocol=protocol)
    stream.until_done()
    assert {warning.code for warning in stream.warnings} == {"bad-arguments"}
    said = "\0".join(message.content for message in stream.messages)
    for event in everything():
        if isinstance(event, e.Done) and event.message.choice == 0 and event.message.type != "tool_output":
            content = event.message.content
            assert content in said or json.dumps(content)[1:-1] in said, event.message


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vercel_ui", "ag_ui"])
def test_the_protocol_keeps_the_laws(name: str) -> None:
    """Over the own recordings that have most, and over one of a real server where it is there; `test_recorded_streams` reads all."""
    folder = name.replace("_", "-")
    shared = [path for path in streams_in(SHARED / folder) if path.stem != "dart-malformed-examples"]
    middling = sorted(shared, key=lambda path: abs(path.stat().st_size - 5_000))[:1]
    own = [path for path in streams_in(OWN / folder) if path.stem in ("tool-call", "reasoning", "cut-off")]
    assert len(own) == 3
    report = check_protocol(protocols.find(name), [*own, *middling], attempts=10)
    assert set(report.checks) > {"cuts", "faces", "junk", "encoding", "recognition"}
    assert all("does not keep" not in note for note in report.notes)


# -- what both do alike


@pytest.mark.parametrize("profile", PROFILES)
def test_what_failed_is_masked(profile: str) -> None:
    """Its text may be none of a user's business; with `expose_errors` it is there."""
    protocol, options = PROFILES[profile]
    name = "a run that failed, and with what"
    assert "no credits" in json.dumps(encoded(case(name), protocol, **options))
    masked = encoded(case(name), protocol, **{**options, "expose_errors": False})
    assert "no credits" not in json.dumps(masked)
    assert "The run failed." in json.dumps(masked)
    failure = e.StreamException(error="SourceError", message="secret: /home/x")
    encoder = protocols.find(protocol).Encoder(**{**options, "expose_errors": False})
    assert "secret" not in json.dumps([*encoder.items(failure)])


@pytest.mark.parametrize("profile", PROFILES)
def test_no_item_has_null_for_what_is_absent(profile: str) -> None:
    """Clients of all versions throw on it. Values of ours, such as the active line, may be null."""
    protocol, options = PROFILES[profile]
    for item in encoded(everything(), protocol, **options):
        assert None not in [value for key, value in item.items() if key not in ("data", "value", "patch", "event")], (
            item
        )


@pytest.mark.parametrize(("module", "version"), [(vercel_ui, 8), (vercel_ui, "6"), (ag_ui, "2.0"), (ag_ui, 1)])
def test_an_unknown_version_is_the_callers_mistake(module: Any, version: Any) -> None:
    with pytest.raises(sk.UsageError, match="there is no version"):
        module.Encoder(version)


@pytest.mark.parametrize(("protocol", "key"), [("vercel_ui", "inputTextDelta"), ("ag_ui", "delta")])
def test_pieces_of_arguments_are_joined_so_that_clients_parse_in_linear_time(protocol: str, key: str) -> None:
    """A client parses all of the arguments at each piece. Of 100 KB in pieces of 4 characters there are some 400."""
    text = json.dumps({"text": "x" * 100_000})
    call = m.ToolCallMessage("c", name="write", call_id="c", content=text)
    events = whole(call, *(text[at : at + 4] for at in range(0, len(text), 4)))
    items = encoded(completed(events), protocol)
    pieces = [item[key] for item in items if item["type"] in ("tool-input-delta", "TOOL_CALL_ARGS")]
    assert "".join(pieces) == text
    assert pieces[0] == text[:4]
    assert 300 < len(pieces) < 700


@pytest.mark.parametrize(
    ("profile", "message"),
    [(profile, call("c")) for profile in PROFILES]
    + [(profile, m.CodeMessage("c", format="python")) for profile in ("6", "7", "1.0")],  # code is a call before them
)
def test_pieces_that_were_held_back_come_before_what_replaces_them(profile: str, message: m.Message) -> None:
    """Not after it, where they would be a part of the new text."""
    protocol, options = PROFILES[profile]
    old = ['{"city": "', "a long name of a city", ' of a"', "}"]
    new = '{"city":"Oslo"}'
    done = message.copy()
    done.replace_content(new)
    replaced = [message.delta_event("c", new, replace=True), e.MessageDone(done)]
    items = encoded(completed([*whole(message, *old, done=False), *replaced]), protocol, **options)
    assert sk.stream(items, protocol=protocol).get_final_messages()[0].content == new


@pytest.mark.parametrize("profile", PROFILES)
def test_arguments_that_only_look_empty_come_back(profile: str) -> None:
    """JSON has four kinds of white space. Anything else is text, which a client shows."""
    protocol, options = PROFILES[profile]
    events = [event for text in ("\u2028", " \n") for event in whole(call(f"c{len(text)}", content=text))]
    stream = sk.stream(encoded(completed(events), protocol, **options), protocol=protocol)
    assert [message.content for message in stream.get_final_messages()] == ["\u2028", " \n"]
    assert {warning.code for warning in stream.warnings} == {"bad-arguments"}


@pytest.mark.parametrize("protocol", ["vercel_ui", "ag_ui"])
def test_a_question_that_nobody_answered_stays_open(protocol: str) -> None:
    """The run ends because the answer comes with the next request: the client is not told that it was declined."""
    items = encoded(case("a confirmation of a call, and waiting for it"), protocol)
    again = lines(sk.stream(items, protocol=protocol))
    assert "declined" not in json.dumps(items)
    assert [line["type"] for line in again if "requires_action" in line["type"]] == ["run_requires_action"]
    assert again[-1] == {"type": "stream_end", "status": "requires_action"}


def main() -> None:
    """Writes the table into the guide."""
    head, mark, rest = PAGE.read_text("utf-8").partition(MARK)
    end = "\n<!-- /ui-round-trip -->" + rest.partition("<!-- /ui-round-trip -->")[2]
    PAGE.write_text(f"{head}{mark}{rest.partition('-->')[0]}-->\n\n{table()}\n{end}", "utf-8")


if __name__ == "__main__":
    main()
