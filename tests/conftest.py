"""What all tests share: the same generated inputs in every run.

`pytest --hypothesis-profile=search` looks for new ones; what it finds becomes a test of its own.
"""

import gc
import importlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import settings

if TYPE_CHECKING:
    from .forked import Forks

# Collecting makes a hundred thousand objects and no garbage; `pytest_collection_finish` switches it on.
gc.disable()

# Each worker, and each program that a test starts, would compile what another has compiled.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("repeatable", derandomize=True, database=None, deadline=None, max_examples=50)
settings.register_profile("search", database=None, deadline=None)
settings.load_profile("repeatable")

# Each of the thousands of clients that the tests make would read the machine's certificates, for 20 ms: those in the file
# that `SSL_CERT_FILE` names, which counts first, else those in the folder. No test speaks TLS.
NO_CERTIFICATES = Path(tempfile.gettempdir(), "streamkit-tests-no-certificates")
NO_CERTIFICATES.mkdir(exist_ok=True)
os.environ["SSL_CERT_DIR"] = str(NO_CERTIFICATES)
os.environ.pop("SSL_CERT_FILE", None)

# Where a script runs the tests in the background, its shell has Ctrl-C ignored, by each program that a test starts, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist there is no such hook
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """The workers of `-n auto`: two more than cores, for many tests wait for processes and terminals. Each begins with a quarter of
    the tests, so that most modules make their servers and browsers once; one that is done takes tests of another."""
    if config.option.dist == "no":
        config.option.dist = "worksteal"
    return (os.cpu_count() or 1) + 2


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Of a test that passed, a worker sends one report in place of three: to send and to read them took longer than many tests.
    `--durations` needs all."""
    if not hasattr(item.config, "workerinput") or item.config.option.durations is not None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_collection(session: pytest.Session) -> None:
    """Where all tests are collected, each worker first imports a share of the modules, and finds the others compiled by its
    neighbours: what pytest does to the assertions of all takes half of the time of the collection."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args != ["tests"]:
        return
    here = Path(__file__).parent
    modules = sorted(here.rglob("test_*.py"))
    for module in modules[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        with suppress(ImportError, pytest.skip.Exception):  # the collection says so
            importlib.import_module(".".join(module.relative_to(here.parent).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """What the imports and the collection left is never garbage again: a test that collects garbage need not walk
    through a million objects for it."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def relays_on_redis_are_closed() -> Iterator[None]:
    """The relays of a test end with it."""
    yield
    if "tests.redis_server" in sys.modules:
        sys.modules["tests.redis_server"].ON_REDIS.close()


@pytest.fixture(scope="session")
def programs() -> Iterator["Forks"]:
    """Runs programs in processes that have imported the clients already."""
    from .forked import forks

    with forks() as server:
        yield server


@pytest.fixture(autouse=True, scope="module")
def threads_end() -> Iterator[None]:
    """The threads that streamkit began in a module end with it: what they do meanwhile would befall the next one's tests.

    So does its garbage. What a module imported stays, and no later collection walks through it.
    """
    before = set(threading.enumerate())
    yield
    end = time.monotonic() + 10
    while left := [one for one in threading.enumerate() if one.name.startswith("streamkit") and one not in before]:
        assert time.monotonic() < end, f"this module leaves threads behind: {', '.join(one.name for one in left)}"
        time.sleep(0.01)
    gc.collect()
    gc.freeze()
