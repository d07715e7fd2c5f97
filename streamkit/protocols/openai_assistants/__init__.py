"""The retired OpenAI Assistants API (v2), whose streams compatible servers still send. Documented at
https://platform.openai.com/docs/api-reference/assistants-streaming.

Its quirks: a run goes on in another stream after `requires_action` (`decoder`); servers leave out or repeat ids and indexes
(`steps`, `thread_messages`); what its streams cannot express (the table of `Encoder`).
"""

from typing import TYPE_CHECKING

from ...lazy_names import lazy_names

if TYPE_CHECKING:
    from .decoder import Decoder
    from .encoder import Encoder
    from .input import to_input

__all__ = ["Decoder", "Encoder", "to_input"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, {"Decoder": ".decoder", "Encoder": ".encoder", "to_input": ".input"})
