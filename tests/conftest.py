"""What all tests share: the same generated inputs in every run.

`pytest --hypothesis-profile=search` looks for new ones; what it finds becomes a test of its own.
"""

import pytest
from hypothesis import Phase, settings

# To explain a failure is to trace it, and CPython 3.11 can spin for ever in a frame that is traced (its DO_TRACING).
PHASES = tuple(phase for phase in Phase if phase is not Phase.explain)

settings.register_profile("repeatable", derandomize=True, database=None, phases=PHASES)
settings.register_profile("search", database=None, phases=PHASES)
settings.load_profile("repeatable")


# Tests whose time goes into other processes: kernels, shells, terminals and the command line.
PROCESSES = ("computer/", "agent/test_computer.py", "test_chat.py", "test_cli.py", "test_renderers_tmux.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What the quick profile (`-m "not slow"`) leaves out besides the tests that are marked: trio, which is the third face
    of the same tests, and what runs other processes."""
    for item in items:
        place = item.nodeid.removeprefix("tests/")
        trio = "trio" in item.name.rpartition("[")[2].rstrip("]").split("-")
        if trio or place.startswith(PROCESSES):
            item.add_marker("slow")
