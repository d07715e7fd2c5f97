"""The targets of the fuzzing, over their seeds and some mutations of each; `python -m tests.fuzzing` goes on from here."""

from __future__ import annotations

import random

import pytest

from .fuzzing.targets import TARGETS, mutated


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_breaks_a_law(name: str) -> None:
    """Neither what a real server sends, nor what becomes of it when items and values are changed."""
    target, dice = TARGETS[name], random.Random(1)
    seeds = target.seeds()
    assert seeds
    for data in seeds:
        target.run(data)
        for _ in range(2):
            data = mutated(data, dice)
            target.run(bytes([dice.randrange(4), dice.randrange(256)]) + data[2:])
