"""The ids of a source's messages, made of the provider's."""

from __future__ import annotations

from streamkit.core.unique_ids import NumberedIds
from streamkit.protocols.message_ids import MessageIds

from ..opcodes import growth


def test_a_message_has_the_provider_s_id() -> None:
    assert MessageIds(NumberedIds()).unused("a") == "a"


def test_of_several_ids_the_first_that_is_not_empty_counts() -> None:
    assert MessageIds(NumberedIds()).unused("", "b", "c") == "b"


def test_without_an_id_of_the_provider_a_new_one_is_made() -> None:
    ids = MessageIds(NumberedIds())
    assert [ids.unused(), ids.unused("", "")] == ["message-1", "message-2"]


def test_an_id_that_comes_again_gets_a_number() -> None:
    ids = MessageIds(NumberedIds())
    assert [ids.unused("a") for _ in range(3)] == ["a", "a.2", "a.3"]


def test_a_new_id_is_none_that_the_provider_gave() -> None:
    ids = MessageIds(NumberedIds())
    ids.unused("message-1")
    assert ids.new() == "message-1.2"


def test_a_new_id_is_free_until_a_message_gets_it() -> None:
    ids = MessageIds(NumberedIds())
    new = ids.new()
    assert [ids.unused(new), ids.unused(new)] == [new, f"{new}.2"]


def test_an_id_costs_the_same_however_often_it_came() -> None:
    def repeat(count: int) -> None:
        ids = MessageIds(NumberedIds())
        for _ in range(count):
            ids.unused("a")

    assert growth(repeat) < 2.2
