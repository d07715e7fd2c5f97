"""AG-UI, the Agent-User Interaction Protocol: version 1.0, and the 0.x before it.

The format is documented at https://docs.ag-ui.com and in https://ag-ui.com/spec/1.0/schema.json. `decoder` states the terminal
rule, `encoder` what each version cannot express, `input` writes our messages as AG-UI's, and `request` reads a
`RunAgentInput`. `wire` has the tables of the format.
"""

from typing import TYPE_CHECKING

from ...lazy_names import lazy_names

if TYPE_CHECKING:
    from .decoder import Decoder
    from .encoder import Encoder
    from .input import to_input
    from .request import AgentRequest, AgentTool, Resume, from_request

__all__ = ["AgentRequest", "AgentTool", "Decoder", "Encoder", "Resume", "from_request", "to_input"]

if not TYPE_CHECKING:
    _submodules = {"Decoder": ".decoder", "Encoder": ".encoder", "to_input": ".input"}
    _submodules |= dict.fromkeys(("AgentRequest", "AgentTool", "Resume", "from_request"), ".request")
    __getattr__, __dir__ = lazy_names(__name__, _submodules)
