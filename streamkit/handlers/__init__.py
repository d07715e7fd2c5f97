"""Handlers: the objects that receive the events of a stream.

Subclass `EventHandler` (or `AsyncEventHandler`, whose hooks are `async def`) and override the hooks you care about.
A hook that is not overridden costs nothing. The root is `Handler`, which receives every event in one method.
"""

from .hook_names import HOOKS, hook_events, warn_of_near_misses, warn_of_returned_value
from .hooks import AsyncEventHandler, EventHandler, Hooks
from .root import Call, Handler, needs_async, no_handler, own_hooks, plan
from .signatures import check_arguments

__all__ = [
    "HOOKS",
    "AsyncEventHandler",
    "Call",
    "EventHandler",
    "Handler",
    "Hooks",
    "check_arguments",
    "hook_events",
    "needs_async",
    "no_handler",
    "own_hooks",
    "plan",
    "warn_of_near_misses",
    "warn_of_returned_value",
]
