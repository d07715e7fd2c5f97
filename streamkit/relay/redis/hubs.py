"""The hubs of a relay: one for a server; in a Redis Cluster one for each node."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from ...redis_link import Link
from .hub import Hub
from .keys import Keys

__all__ = ["Hubs"]


class Hubs:
    """The hubs by what they serve. A run stays with its hub, even if it moves to another node."""

    def __init__(self, link: Link, prefix: str, lease: float, end_abandoned: Callable[[str], None]) -> None:
        self._link = link
        self._prefix = prefix
        self._make: Callable[[], Hub] = partial(Hub, link, prefix, lease, end_abandoned)
        self._hubs: dict[int, Hub] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def of(self, run_id: str) -> Hub:
        """The hub of a run.

        Raises:
            SourceError: Redis cannot be reached, so that it is not known.
        """
        home = self._link.home(self.keys(run_id).run)
        hub = self._hubs.get(home)
        if hub is None:
            with self._lock:
                hub = self._hubs.get(home)
                if hub is None:
                    hub = self._hubs[home] = self._make()
                    if self._is_closed:
                        hub.close()
        return hub

    def keys(self, run_id: str) -> Keys:
        """The keys of a run."""
        return Keys(self._prefix, run_id)

    def close(self) -> None:
        """End the threads, and close the connections."""
        with self._lock:
            self._is_closed = True
            hubs = [*self._hubs.values()]
        for hub in hubs:
            hub.close()
        self._link.close()
