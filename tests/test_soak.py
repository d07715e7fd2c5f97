"""The short form of `tests.endurance.soak`: what a long-lived application does leaves nothing behind."""

from __future__ import annotations

import pytest

from .endurance.activities import ACTIVITIES
from .endurance.model import model
from .endurance.soak import Soak

MEMORY = 60.0  # MB that it may take in so short a time; the long form has a narrow bound


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:Async generator.*was garbage collected:ResourceWarning"
)  # trio's, of what is dropped
def test_an_application_that_does_everything_again_and_again_leaves_nothing_open() -> None:
    """No descriptor, thread, task or child process, in the quiet moments between and after closing; no activity fails."""
    with model() as url:
        soak = Soak(url, 1, [*ACTIVITIES])
        soak.run(seconds=4)
    assert soak.faults == []
    assert soak.samples[-1].memory - soak.samples[0].memory < MEMORY
