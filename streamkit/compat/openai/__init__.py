"""openai's `AssistantEventHandler` and `AsyncAssistantEventHandler`, for any stream.

    from streamkit.compat.openai import AssistantEventHandler  # was: from openai import AssistantEventHandler

Their 17 hooks, their accessors and all types are openai's own, so a subclass stays as it is; only the import and the
call that starts the stream change. A stream ends where its protocol's decoder says that it ends.
"""

from .async_handler import AsyncAssistantEventHandler
from .handler import AssistantEventHandler

__all__ = ["AssistantEventHandler", "AsyncAssistantEventHandler"]
