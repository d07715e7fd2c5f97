"""A plain delta of the three large protocols costs what the guard's table says."""

from __future__ import annotations

import sys

import pytest

from .benchmarks import guard


@pytest.mark.skipif(sys.version_info[:2] != guard.PYTHON, reason="the table is of Python 3.11")
def test_no_plain_delta_is_dearer_than_the_table_says() -> None:
    """By more than a tenth. Where that is meant, the table is changed, and the reason is in the commit."""
    assert guard.too_dear(guard.measure()) == []


def test_a_row_may_become_dearer_by_a_tenth() -> None:
    name, count = next(iter(guard.TABLE.items()))
    assert guard.too_dear({**guard.TABLE, name: 1.09 * count}) == []
    assert guard.too_dear({**guard.TABLE, name: 2 * count}) == [f"{name}: {count:g}, now {2 * count:g}"]
