"""A scripted model server, for tests of whatever talks to a model: real HTTP and real SSE, on loopback.

`ModelServer` speaks OpenAI's Chat Completions, Responses and (retired) Assistants, and Anthropic's Messages. It answers
each request with the next `Reply` of its script, in the dialect that was asked for, streaming or not, exactly as often
and as badly as the script says: slowly, cut off in the middle of an event, with an error half-way, refused with a
status, or never ending.

    >>> import json, urllib.request
    >>> from streamkit.testing import ModelServer, Reply, Text, ToolCall
    >>> with ModelServer([Reply(ToolCall("weather", {"city": "Oslo"})), Reply("It ", Text("rains."))]) as server:
    ...     def ask(text):
    ...         body = json.dumps({"model": "m", "input": text}).encode()
    ...         with urllib.request.urlopen(server.url + "/responses", body) as response:
    ...             return json.load(response)["output"]
    ...     call, = ask("What is the weather?")
    ...     spoken = ask("And now in words.")
    >>> call["name"], call["arguments"]
    ('weather', '{"city": "Oslo"}')
    >>> [item["content"][0]["text"] for item in spoken]
    ['It ', 'rains.']
    >>> [request.body["input"] for request in server.requests]
    ['What is the weather?', 'And now in words.']

With the SDKs: `openai.OpenAI(base_url=server.url, api_key="any")`, `anthropic.Anthropic(base_url=server.root_url,
api_key="any")`. The same script tells the same wire, byte for byte:
ids count (`resp_1`, `chatcmpl-2`; items `msg_1_0`, calls `call_1_0`) and the clock stands still. No key is checked.

What differs from the real services: no `obfuscation` padding (as with `include_obfuscation: false`), one choice alone
(`n` is not read), a code interpreter's logs are there without an `include`, and reasoning is sent on Chat too, as
`reasoning_content`, which the compatible servers have and OpenAI's has not. On Messages a refusal is a text after which
the stop_reason is `refusal`, reasoning is signed by a count, and signatures that come back are not checked. Assistants
have the three requests that begin and continue a run; reasoning is left out, and a run asked for without `stream` is
over in its first answer.
"""

from __future__ import annotations

from .check import ProtocolCheckError, ProtocolReport, check_protocol
from .replies import CodeInterpreter, McpApproval, Part, Reasoning, Refusal, Reply, ServiceError, Text, Tokens, ToolCall
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
