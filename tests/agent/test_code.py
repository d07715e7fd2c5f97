"""Which code of a call may run: a property over all arguments that a model could send."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamkit as sk
from streamkit.agent.code import ProposedCode, code_arguments, read_code

_words = st.sampled_from(["language", "code", "format", "content", "why"])
_values = st.sampled_from(['"python"', '"shell"', '"a"', '"b"', '""', "1", "null", '["a"]', '{"code": "a"}'])
_objects = st.lists(st.tuples(_words, _values), max_size=5).map(
    lambda pairs: "{" + ", ".join(f'"{key}": {value}' for key, value in pairs) + "}"
)
_texts = st.one_of(
    _objects, st.text(max_size=20), _objects.flatmap(lambda text: st.integers(0, 30).map(lambda n: text[:n]))
)


def call_of(text: str) -> sk.ToolCallMessage:
    return sk.ToolCallMessage("c", name="execute", call_id="1", content=text)


def shown(source: str, call_id: str = "1", language: str = "python") -> sk.CodeMessage:
    return sk.CodeMessage("d", format=language, call_id=call_id, content=source, metadata={"field": "execute.code"})


@pytest.mark.slow
@given(_texts, st.sampled_from(["a", "b", ""]), st.sampled_from(["python", "shell", "a"]))
@settings(max_examples=75, deadline=None)
def test_only_what_can_be_read_in_one_way_runs(text: str, told: str, language: str) -> None:
    """The arguments are an object in which each key has one value, and the code and its language are exactly what was shown."""
    read = read_code(call_of(text), [shown(told, language=language)])
    if not isinstance(read, ProposedCode):
        assert read.reason
        return
    pairs: list[tuple[str, Any]] = []
    json.loads(text, object_pairs_hook=lambda found: pairs.extend(found) or dict(found))
    assert {value for key, value in pairs if key in ("code", "content")} == {read.source} == {told}
    assert (
        {str(value).lower() for key, value in pairs if key in ("language", "format")} == {read.language} == {language}
    )


@given(st.text(min_size=1).filter(str.strip))
def test_complete_code_that_was_shown_runs(source: str) -> None:
    """Whatever it contains."""
    try:
        source.encode()
    except UnicodeEncodeError:
        return
    read = read_code(call_of(code_arguments("Python", source)), [shown("x", "2"), shown(source, language="Python")])
    assert isinstance(read, ProposedCode)
    assert (read.language, read.source) == ("python", source)
