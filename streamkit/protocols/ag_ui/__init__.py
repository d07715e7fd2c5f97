"""AG-UI, the Agent-User Interaction Protocol: version 1.0, and the 0.x before it.

The format is documented at https://docs.ag-ui.com and in https://ag-ui.com/spec/1.0/schema.json. `decoder` states the terminal
rule, `encoder` what each version cannot express, `input` writes our messages as AG-UI's, and `request` reads a
`RunAgentInput`. `wire` has the tables of the format.
"""

from .decoder import Decoder
from .encoder import Encoder
from .input import to_input
from .request import AgentRequest, AgentTool, Resume, from_request

__all__ = ["AgentRequest", "AgentTool", "Decoder", "Encoder", "Resume", "from_request", "to_input"]
