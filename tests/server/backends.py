"""Where the tests' apps have their runs and conversations: in memory, and on a Redis server.

Which modules run on both is said by whether they use the fixture `backend` (or `client`, which is made of it). Those that do
not, say why in their first words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from streamkit.relay import MemoryRelay, Relay
from streamkit.relay.redis import RedisRelay
from streamkit.server import create_app
from streamkit.server.app import App
from streamkit.stores import MemoryStore, RedisStore, Store

from ..redis_server import needs_redis, shared_server
from .parts import TOKEN

__all__ = ["BACKENDS", "Backend", "RelayFault", "StoreFault", "one_backend_each"]

if TYPE_CHECKING:
    RelayFault, StoreFault = MemoryRelay, MemoryStore
else:  # what a relay or a store of a test does in place of its own kind's methods, of whatever kind it is
    RelayFault = StoreFault = object

_NUMBERS = count(1)


class Backend:
    """Makes relays and stores of one kind, and apps on them.

    Attributes:
        name: `memory` or `redis`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._made: list[Relay | Store] = []

    def relay(self, *faults: type, prefix: str | None = None, **options: Any) -> Any:
        """A new, empty relay. `faults` are classes whose methods take the place of its own."""
        kind = MemoryRelay if self.name == "memory" else RedisRelay
        made = kind if not faults else type(faults[0].__name__, (*faults, kind), {})
        if self.name == "memory":
            return self._add(made(**options))
        return self._add(made(shared_server().url, prefix=prefix or _prefix(), **options))

    def store(self, *faults: type, prefix: str | None = None) -> Any:
        """A new, empty store, likewise."""
        kind = MemoryStore if self.name == "memory" else RedisStore
        made = kind if not faults else type(faults[0].__name__, (*faults, kind), {})
        return self._add(made() if self.name == "memory" else made(shared_server().url, prefix=prefix or _prefix()))

    def shared(self, processes: int = 2) -> Sequence[tuple[Any, Any]]:
        """A relay and a store for each of several processes that share their runs."""
        if self.name == "memory":
            return [(self.relay(), self.store())] * processes
        prefix = _prefix()
        return [(self.relay(prefix=prefix), self.store(prefix=prefix)) for _ in range(processes)]

    def app(self, factory: Callable[..., Any], *, token: str | None = TOKEN, **options: Any) -> App:
        """An app, on a new relay and a new store unless some are passed."""
        options.setdefault("relay", None)
        options.setdefault("store", None)
        options["relay"] = options["relay"] or self.relay()
        options["store"] = options["store"] or self.store()
        return create_app(factory, token=token, **options)

    def _add(self, made: Any) -> Any:
        self._made.append(made)
        return made

    def close(self) -> None:
        """Close what was made."""
        while self._made:
            self._made.pop().close()


def _prefix() -> str:
    return f"server-{next(_NUMBERS)}"


BACKENDS = ["memory", pytest.param("redis", marks=[pytest.mark.slow, needs_redis])]


def one_backend_each(names: str, *cases: Any) -> pytest.MarkDecorator:
    """A `parametrize` mark of these cases, each on one of the backends in turn: for what none of the cases can tell apart."""
    redis = [pytest.mark.slow, needs_redis]
    rows = [case if isinstance(case, tuple) else (case,) for case in cases]
    return pytest.mark.parametrize(
        ["backend", *names.split(", ")],
        [
            pytest.param("redis", *row, marks=redis) if number % 2 else pytest.param("memory", *row)
            for number, row in enumerate(rows)
        ],
        indirect=["backend"],
    )
