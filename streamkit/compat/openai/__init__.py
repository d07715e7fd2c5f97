"""openai's `AssistantEventHandler` and its async twin, for any stream: change the import, and the call that starts it.

    from streamkit.compat.openai import AssistantEventHandler

Its 17 hooks, its accessors and their types are openai's own. Terminal rule: as the stream's protocol has it.
"""

from .async_handler import AsyncAssistantEventHandler
from .handler import AssistantEventHandler

__all__ = ["AssistantEventHandler", "AsyncAssistantEventHandler"]
