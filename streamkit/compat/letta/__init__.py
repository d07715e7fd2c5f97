"""MemGPT's and Letta's interfaces: what an agent calls, shown on a terminal, queued, or streamed to clients.

    from streamkit.compat.letta import StreamingServerInterface

Names and arguments are those of 2024. Messages and chunks may be dicts, objects of any library, or streamkit's own;
nothing of `letta` or `memgpt` is imported. The items that clients get are the ones that `streamkit.protocols.letta`
decodes.
"""

from .arguments import FunctionArgumentsStreamHandler
from .interfaces import AgentChunkStreamingInterface, AgentInterface, AgentRefreshStreamingInterface
from .queuing import QueuingInterface
from .server import MessageStreamStatus, StreamingServerInterface
from .streaming import StreamingCLIInterface, StreamingRefreshCLIInterface
from .terminal import CLIInterface

__all__ = [
    "AgentChunkStreamingInterface",
    "AgentInterface",
    "AgentRefreshStreamingInterface",
    "CLIInterface",
    "FunctionArgumentsStreamHandler",
    "MessageStreamStatus",
    "QueuingInterface",
    "StreamingCLIInterface",
    "StreamingRefreshCLIInterface",
    "StreamingServerInterface",
]
