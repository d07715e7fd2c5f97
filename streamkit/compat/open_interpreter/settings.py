"""The settings of the original that `OpenInterpreter` has, those that it only knows, and where others have moved."""

from __future__ import annotations

from typing import Any

from ...errors import UsageError
from .llm import LLM_SETTINGS

__all__ = ["FIXED", "check_setting", "unsupported"]

FIXED: dict[str, Any] = {
    "safe_mode": "off",
    "loop": False,
    "os": False,
    "speak_messages": False,
    "import_skills": False,
    "import_computer_api": False,
    "conversation_history": False,
    "sync_computer": False,
    "contribute_conversation": False,
    "max_budget": None,
}
"""Settings of the original that are not supported here: only this value may be set."""

# What to use in place of such a setting.
_INSTEAD = {
    "safe_mode": "the code can be checked at its confirmation",
    "loop": "chat can be called again until the goal is reached",
    "os": "tools for the screen and the keyboard can be given to streamkit.Agent",
    "conversation_history": "interpreter.messages can be saved as JSON, and assigned again",
    "max_budget": "streamkit.Agent has max_steps and max_total_tokens",
}
# Settings of the original that have no effect here.
_IGNORED = frozenset(
    (
        *("verbose", "debug", "disable_telemetry", "anonymous_telemetry", "in_terminal_interface", "multi_line"),
        *("plain_text_display", "highlight_active_line", "shrink_images"),
    )
)

# Names of earlier versions of the original, and what they became.
_MOVED = {
    **{name: f"llm.{name}" for name in LLM_SETTINGS},
    "use_azure": "llm.client, an AzureOpenAI client",
    "local": "offline",
    "vision": "llm.supports_vision",
    "llm_supports_vision": "llm.supports_vision",
    "supports_function_calling": "llm.supports_functions",
    "function_calling_llm": "llm.supports_functions",
    "debug_mode": "debug",
}
_SUPPORTED = frozenset(
    (
        *("llm", "messages", "offline", "auto_run", "max_output", "system_message", "custom_instructions"),
        *("computer", "reset", "chat", "achat", "wait", "close"),
    )
)


def check_setting(name: str, value: object) -> None:
    """Check that a setting may have this value.

    Raises:
        UsageError: it is not supported here, or there is none of this name.
    """
    if name in FIXED and value != FIXED[name]:
        instead = f": {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise UsageError(f"interpreter.{name} = {value!r} is not supported; it is always {FIXED[name]!r}{instead}")
    if not (name in _SUPPORTED or name in FIXED or name in _IGNORED):
        raise UsageError(unsupported(name))


def unsupported(name: str) -> str:
    """Return what an error says of a setting that there is not."""
    if (moved_to := _MOVED.get(name)) is not None:
        return f"interpreter.{name} is not supported: it is interpreter.{moved_to}"
    return f"interpreter.{name} is not supported; the attributes are: {', '.join(sorted(_SUPPORTED))}"
