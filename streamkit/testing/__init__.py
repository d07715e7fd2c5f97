"""A scripted model server for tests of anything that talks to a model: real HTTP and real SSE, on loopback.

`ModelServer` speaks OpenAI's Chat Completions, Responses and (retired) Assistants, and Anthropic's Messages. It answers
each request with the next `Reply` of its script, in the API that the client called, streaming or not. A reply can be
slow, cut off in the middle of an event, end with an error, be refused with an HTTP status, or never end.

    >>> import json, urllib.request
    >>> from streamkit.testing import ModelServer, Reply, Text, ToolCall
    >>> def ask(server, text):
    ...     body = json.dumps({"model": "m", "input": text}).encode()
    ...     with urllib.request.urlopen(server.url + "/responses", body) as response:
    ...         return json.load(response)["output"]
    >>> with ModelServer([Reply(ToolCall("weather", {"city": "Oslo"})), Reply("It ", Text("rains."))]) as server:
    ...     [call] = ask(server, "What is the weather?")
    ...     texts = ask(server, "Tell me in a sentence.")
    >>> call["name"], call["arguments"]
    ('weather', '{"city": "Oslo"}')
    >>> [item["content"][0]["text"] for item in texts]
    ['It ', 'rains.']
    >>> [request.body["input"] for request in server.requests]
    ['What is the weather?', 'Tell me in a sentence.']

With the SDKs: `openai.OpenAI(base_url=server.url, api_key="any")`, `anthropic.Anthropic(base_url=server.root_url,
api_key="any")`. The same script sends the same bytes each time: ids count (`resp_1`, `chatcmpl-2`; items `msg_1_0`,
calls `call_1_0`) and the clock stands still. API keys are not checked.

Differences from the real services:

- OpenAI: no `obfuscation` padding (as with `include_obfuscation: false`), a single choice (`n` is ignored), and the
  logs of a code interpreter are sent without an `include`.
- Chat Completions sends reasoning as `reasoning_content`, which compatible servers have and OpenAI's own has not.
- Anthropic Messages sends a refusal as text of a message with the stop_reason `refusal`. Signatures of reasoning are
  counters, and a signature that comes back is not checked.
- Assistants has only the three requests that begin or continue a run. Reasoning is left out, and a run that is
  requested without `stream` has already ended in the response.
"""

from __future__ import annotations

from .check import ProtocolCheckError, ProtocolReport, check_protocol
from .parts import CodeInterpreter, McpApproval, Part, Reasoning, Refusal, Text, ToolCall
from .replies import Reply, ServiceError, Tokens
from .requests import Request
from .server import ModelServer

__all__ = [
    "CodeInterpreter",
    "McpApproval",
    "ModelServer",
    "Part",
    "ProtocolCheckError",
    "ProtocolReport",
    "Reasoning",
    "Refusal",
    "Reply",
    "Request",
    "ServiceError",
    "Text",
    "Tokens",
    "ToolCall",
    "check_protocol",
]
