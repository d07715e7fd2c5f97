"""The parts of a scripted reply: texts, refusals, reasoning, tool calls, code and approval requests.

A part is a value without any wire format. Its text is cut into pieces, each of which is one delta on the wire, so that
`Reply(cut_after=…)` and the other options of a reply can count pieces whatever API the client calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import UsageError

__all__ = ["CodeInterpreter", "McpApproval", "Part", "Reasoning", "Refusal", "Text", "ToolCall"]

_split = re.compile(r"\s?\S{1,4}|\s{1,5}").findall


class Part:
    """One part of a reply: text that is sent in pieces. Use one of its subclasses.

    Args:
        text: The complete text. It is cut into pieces of up to five characters, always at the same places.
        pieces: The pieces themselves, for tests in which the cuts matter. If `text` is passed too, they must join to
            it.

    Attributes:
        pieces: The pieces, in order. Each one is sent as one delta event.
        text: The pieces joined.

    Raises:
        UsageError: A piece is empty (the services never send an empty delta), or the pieces do not join to `text`.
    """

    def __init__(self, text: str | None = None, *, pieces: Iterable[str] | None = None) -> None:
        self.pieces: tuple[str, ...] = tuple(_split(text or "") if pieces is None else pieces)
        self.text = "".join(self.pieces)
        if not all(self.pieces):
            raise UsageError(f"a piece of a {type(self).__name__} is empty: {list(self.pieces)}")
        if text is not None and self.text != text:
            raise UsageError(f"the pieces of a {type(self).__name__} join to {self.text!r}, its text is {text!r}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"


class Text(Part):
    """Text for the reader. A plain `str` among the parts of a `Reply` is the same.

    On the wire: `content` deltas on Chat Completions, a `message` item with `output_text` on Responses, a `text` block
    on Anthropic Messages, a thread message on Assistants.
    """


class Refusal(Part):
    """The text with which the model refuses to answer.

    On the wire: `refusal` deltas on Chat Completions, a `message` item with a `refusal` part on Responses, a thread
    message with a `refusal` part on Assistants. Anthropic Messages has no refusal part: the text is sent as a `text`
    block, and the message ends with `stop_reason: "refusal"`.
    """


class Reasoning(Part):
    """The model's reasoning.

    On the wire: `reasoning_content` deltas on Chat Completions (as compatible servers send it; OpenAI's own service has
    no such field), a `reasoning` item on Responses, a `thinking` block with a signature on Anthropic Messages.
    Assistants
    has no form for reasoning: it is left out there.

    Args:
        text: As in `Part`.
        pieces: As in `Part`.
        summary: Responses only. True, the default, sends a reasoning summary, as OpenAI does; False sends the full
            reasoning text, as servers of open models do.
    """

    def __init__(self, text: str | None = None, *, pieces: Iterable[str] | None = None, summary: bool = True) -> None:
        super().__init__(text, pieces=pieces)
        self.summary = summary


class ToolCall(Part):
    """A call of one of the client's functions. Its text, and so its pieces, are the JSON of the arguments.

    On the wire: an entry of `tool_calls` on Chat Completions, a `function_call` item on Responses, a `tool_use` block
    on Anthropic Messages, a function call in a run step on Assistants. A reply with a tool call ends with the finish
    reason `tool_calls` unless it sets another one.

    Args:
        name: The function's name.
        arguments: A mapping, sent as JSON, or the JSON text, sent unchanged even if it is invalid. Default: `{}`.
        call_id: Default: `call_1_0`, `call_1_1` …, which is the number of the server's answer, then the place of the
            call among the calls of its reply.
        pieces: The pieces of the arguments' JSON text; see `Part`.
    """

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        call_id: str | None = None,
        pieces: Iterable[str] | None = None,
    ) -> None:
        if arguments is None and pieces is None:
            arguments = {}
        super().__init__(None if arguments is None else _json_text(arguments), pieces=pieces)
        self.name = name
        self.call_id = call_id


class CodeInterpreter(Part):
    """Code that the provider itself runs, and what the code printed.

    On the wire: a `code_interpreter_call` item on Responses, a call of the `code_execution` tool and its result on
    Anthropic Messages, a run step with a `code_interpreter` call on Assistants, `executableCode` and `codeExecutionResult` on Gemini.
    A request to any other API that gets such a reply is answered with status 400.

    Args:
        code: The source code; it is the part's text.
        logs: What the code printed. Default: nothing. It is sent at once, not in pieces.
        pieces: The pieces of the code; see `Part`.
    """

    def __init__(self, code: str | None = None, logs: str = "", *, pieces: Iterable[str] | None = None) -> None:
        super().__init__(code, pieces=pieces)
        self.logs = logs


class McpApproval(Part):
    """The provider asks whether it may call a tool of a remote MCP server.

    On the wire: an `mcp_approval_request` item on Responses, sent at once and without deltas, so it counts no pieces. A
    request to any other API that gets such a reply is answered with status 400.

    Args:
        name: The tool's name.
        arguments: A mapping, sent as JSON, or the JSON text, sent unchanged. Default: `"{}"`.
        server_label: The label of the MCP server. Default: `tools`.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any] | str = "{}", *, server_label: str = "tools") -> None:
        super().__init__("")
        self.name = name
        self.arguments = _json_text(arguments)
        self.server_label = server_label

    def __repr__(self) -> str:
        return f"McpApproval({self.name!r}, {self.arguments!r})"


def _json_text(arguments: Mapping[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
