"""The loops over an async stream: async generators that no event loop knows of."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from typing import Any

__all__ = ["begin"]


def begin(loop: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    """Run an async generator up to its first `yield`, which nobody waits for, and return it.

    An event loop closes the async generators that it knows of, in tasks of its own where they were dropped, and trio warns of
    each. A loop over a stream may be left at any time, and has nothing to close: so it begins where no event loop sees it.
    """
    first, last = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firstiter=None, finalizer=None)
    try:
        loop.__anext__().__await__().__next__()
    except StopIteration:
        pass
    finally:
        sys.set_asyncgen_hooks(firstiter=first, finalizer=last)
    return loop
