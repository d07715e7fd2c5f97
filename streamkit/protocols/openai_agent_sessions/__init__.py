"""OpenAI's agent sessions (`client.beta.agents.sessions`), whose events come over one connection for many turns.

They are only read: what an application sends goes through `sessions.events.create`, so there is no encoder and no `to_input`. The events
are those of the SDK's `types.beta.agent_session_event` (openai 3.57).
"""

from .decoder import Decoder

__all__ = ["Decoder"]
