"""The readers of wire values: each reads any value, and none raises."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.events import OPEN_MESSAGE_STATUS, RunStatus, Usage
from streamkit.messages import Annotation, Status
from streamkit.protocols import values

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)

READERS: list[tuple[Callable[[Any], Any], Any, Any]] = [
    (values.as_text, "a", "a"),
    (values.as_text, 1, ""),
    (values.as_text, None, ""),
    (values.text_or_none, "a", "a"),
    (values.text_or_none, "", None),
    (values.text_or_none, ["a"], None),
    (values.as_object, {"a": 1}, {"a": 1}),
    (values.as_object, MappingProxyType({"a": 1}), {"a": 1}),
    (values.as_object, [("a", 1)], {}),
    (values.as_object, None, {}),
    (values.as_list, [1], [1]),
    (values.as_list, (1,), (1,)),
    (values.as_list, "ab", ()),
    (values.as_list, {"a": 1}, ()),
    (values.as_objects, [{"a": 1}, "b", {"c": 2}], [{"a": 1}, {}, {"c": 2}]),
    (values.as_objects, {"a": 1}, []),
    (values.as_count, 0, 0),
    (values.as_count, 2**53, 2**53),
    (values.as_count, 2**53 + 1, None),
    (values.as_count, -1, None),
    (values.as_count, True, None),
    (values.as_count, 1.0, None),
    (values.as_count, "1", None),
    (values.as_seconds, 1700000000, 1700000000.0),
    (values.as_seconds, 1.5, 1.5),
    (values.as_seconds, 0, None),
    (values.as_seconds, -1, None),
    (values.as_seconds, float("nan"), None),
    (values.as_seconds, float("inf"), None),
    (values.as_seconds, True, None),
    (values.as_seconds, "2026-01-01", None),
    (values.parse_json, '{"a": 1}', {"a": 1}),
    (values.parse_json, bytearray(b"[1]"), [1]),
    (values.parse_json, '{"a": 1', None),
    (values.parse_json, "", None),
    (values.parse_json, b"\xff", None),
    (values.parse_json, "[" * 100_000, None),
    (values.json_text, {"ä": [1, None, "b"]}, '{"ä":[1,null,"b"]}'),
    (values.json_text, "a", '"a"'),
    (values.json_text, 2**70, str(2**70)),
    (values.json_text, {"a": 1j}, '{"a":"1j"}'),
    (values.json_text, {(1, 2): 3}, ""),
    (values.text_or_json, "a", "a"),
    (values.text_or_json, None, ""),
    (values.text_or_json, {"a": 1}, '{"a":1}'),
    (values.text_or_json, False, "false"),
]


@pytest.mark.parametrize(
    ("reader", "value", "expected"), READERS, ids=lambda value: getattr(value, "__name__", str(value)[:30])
)
def test_a_reader_returns_a_value_of_its_type_and_nothing_else(
    reader: Callable[[Any], Any], value: Any, expected: Any
) -> None:
    result = reader(value)
    assert result == expected
    assert type(result) is type(expected) or isinstance(expected, Mapping)


def test_a_circular_value_has_no_json_text() -> None:
    value: list[Any] = []
    value.append(value)
    assert values.json_text(value) == ""


INDICES: dict[str, tuple[Any, int | None, bool]] = {
    "a number": (3, 3, False),
    "null": (None, None, False),
    "digits": ("3", 3, True),
    "a float without a fraction": (3.0, 3, False),
    "a float": (3.5, None, True),
    "not a number": (float("nan"), None, True),
    "a negative number": (-1, None, True),
    "too many digits": ("1234567890", None, True),
    "other digits": ("³", None, True),
    "a boolean": (True, None, True),
    "a huge number": (2**60, None, True),
}


@pytest.mark.parametrize(("value", "expected", "warns"), INDICES.values(), ids=INDICES)
def test_an_index_is_read_from_what_resembles_one_with_a_warning(value: Any, expected: int | None, warns: bool) -> None:
    warnings: list[tuple[str, str]] = []
    assert values.as_index(value, lambda code, fault: warnings.append((code, fault))) == expected
    assert [code for code, _ in warnings] == ["bad-index"] * warns


def test_without_keys_leaves_out_nulls() -> None:
    assert values.without_keys({"a": 1, "b": None, "c": 0, "d": ""}, "a") == {"c": 0, "d": ""}


USAGES: dict[str, tuple[dict[str, Any], Usage]] = {
    "counts": ({"input_tokens": 2, "output_tokens": 3, "total_tokens": 6}, Usage(2, 3, 6)),
    "no total": ({"input_tokens": 2, "output_tokens": 3}, Usage(2, 3, 5)),
    "bad counts": ({"input_tokens": "2", "output_tokens": -3, "total_tokens": True}, Usage()),
    "details": ({"input_tokens": 2, "cached": 1, "none": None, "id": "x"}, Usage(2, 0, 2, {"cached": 1})),
}


@pytest.mark.parametrize(("wire", "expected"), USAGES.values(), ids=USAGES)
def test_usage_is_read_with_a_total_and_the_other_keys_as_details(wire: dict[str, Any], expected: Usage) -> None:
    assert values.usage_of(wire, leave_out=("id",)) == expected


def test_usage_is_read_from_the_keys_of_the_protocol() -> None:
    wire = {"prompt_tokens": 2, "completion_tokens": 3}
    assert values.usage_of(wire, "prompt_tokens", "completion_tokens") == Usage(2, 3, 5)


ERRORS: dict[str, tuple[Any, dict[str, Any]]] = {
    "an object": ({"message": "a", "code": "b"}, {"message": "a", "code": "b"}),
    "text": ("a", {"message": "a"}),
    "a list": (["a"], {"message": '["a"]'}),
    "null": (None, {"message": "it failed"}),
    "an empty object": ({}, {"message": "it failed"}),
    "no message": ({"code": 5, "type": "b"}, {"code": 5, "type": "b", "message": "b"}),
    "a message that is not text": ({"message": {}, "code": "c"}, {"message": "c", "code": "c"}),
}


@pytest.mark.parametrize(("value", "expected"), ERRORS.values(), ids=ERRORS)
def test_an_error_object_always_has_a_message(value: Any, expected: dict[str, Any]) -> None:
    assert values.error_object(value, "it failed") == expected


ERROR_EVENTS: dict[str, tuple[bytes, Any]] = {
    "an error": (b'{"error":"a"}', {"error": "a"}),
    "an item of the protocol": (b'{"own":1}', {"own": 1}),
    "an object": (b'{"message":"a"}', {"error": {"message": "a"}}),
    "text": (b'"a"', {"error": "a"}),
    "not JSON": (b" a \xff", {"error": "a \ufffd"}),
    "null": (b"null", {"error": "an error event without data"}),
    "nothing": (b"", {"error": "an error event without data"}),
}


@pytest.mark.parametrize(("data", "expected"), ERROR_EVENTS.values(), ids=ERROR_EVENTS)
def test_an_error_event_becomes_an_item_with_an_error(data: bytes, expected: Any) -> None:
    assert msgspec.json.decode(values.error_item(data, lambda item: "own" in item)) == expected


ANNOTATIONS: dict[str, tuple[dict[str, Any], Annotation]] = {
    "nested": (
        {"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 1, "end_index": 2}},
        Annotation(type="url_citation", url="u", title="t", start=1, end=2),
    ),
    "flat": (
        {"type": "file_citation", "file_id": "f", "filename": "n", "content": "q"},
        Annotation(type="file_citation", file_id="f", title="n", quote="q"),
    ),
    "indices beside a nested body": (
        {"type": "file_citation", "file_citation": {"file_id": "f", "quote": "q"}, "start_index": 3, "end_index": 4},
        Annotation(type="file_citation", file_id="f", quote="q", start=3, end=4),
    ),
    "values of wrong types": ({"type": 1, "url": [], "start_index": "1"}, Annotation(type="annotation")),
}


@pytest.mark.parametrize(("wire", "expected"), ANNOTATIONS.values(), ids=ANNOTATIONS)
def test_an_annotation_is_read_flat_or_nested(wire: dict[str, Any], expected: Annotation) -> None:
    assert values.annotation_of(wire) == msgspec.structs.replace(expected, raw=wire)


@given(ANYTHING)
def test_no_reader_raises(value: Any) -> None:
    for reader in {reader for reader, _, _ in READERS if reader is not values.parse_json}:
        reader(value)
    values.as_index(value, lambda code, fault: None)
    values.error_object(value)
    wire = values.as_object(value)
    values.usage_of(wire, leave_out=())
    values.annotation_of(wire)


@given(st.binary() | ANYTHING.map(values.json_text).map(lambda text: text.encode(errors="surrogatepass")))
def test_no_reader_of_json_text_raises(data: bytes) -> None:
    values.parse_json(data)
    values.error_item(data, lambda item: False)


def test_every_status_of_a_run_says_how_its_open_messages_end() -> None:
    assert set(OPEN_MESSAGE_STATUS) == set(typing.get_args(RunStatus))
    assert set(OPEN_MESSAGE_STATUS.values()) == set(typing.get_args(Status)) - {"in_progress"}
