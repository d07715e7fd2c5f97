"""The run that an agent is made for, and the forms of runs, questions and conversations for clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..messages import Message
from ..messages.typed_json import converter
from ..protocols.api_request import ToolChoice
from ..relay import RunRecord, Status
from ..stores import Conversation
from .problem import run_error

__all__ = [
    "AG_UI",
    "CLIENT",
    "ClientRequest",
    "Context",
    "Run",
    "client_of",
    "conversation_of",
    "question_of",
    "run_of",
]

AG_UI = "ag_ui"  # the key of an AG-UI client's request, in a run's info and in `Context.metadata`
CLIENT = "client"  # the key of the request of a client of a model's API, in a run's info

_QUESTION = (
    "id",
    "kind",
    "subject",
    "editable",
    "status",
    "asked_at",
    "expires_at",
    "edited",
    "reason",
    "output",
    "error",
    "answered_at",
)


class ClientRequest(msgspec.Struct, kw_only=True):
    """The request of a client of a model's API, and how its requests are answered.

    Attributes:
        protocol: of the API.
        model: the name under which the agent was asked for.
        system: the end of the agent's instructions, "" for none.
        tools: the schemas of the tools that the client runs, as `Agent(tools=)` takes them.
        tool_choice: the client's choice among them.
        options: settings for the factory to apply, by the canonical names.
        asks: whether confirmations wait for the user; otherwise they are declined.
        stores: whether the conversation outlives the run.
        previous_id: the id of the response that this one goes on from, None for none.
        background: whether it goes on where the client leaves.
        continues: the id of the conversation that the run's own one begins with, None for none.
    """

    protocol: str
    model: str
    system: str = ""
    tools: list[dict[str, Any]] = []
    tool_choice: ToolChoice = ToolChoice()
    options: dict[str, Any] = {}
    asks: bool = False
    stores: bool = False
    previous_id: str | None = None
    background: bool = False
    continues: str | None = None


_client_in = converter(ClientRequest)


def client_of(info: Mapping[str, Any]) -> ClientRequest | None:
    """Return the request of a client of a model's API from a run's info; None for other runs."""
    sent = info.get(CLIENT)
    return None if sent is None else _client_in(sent)


class Context(msgspec.Struct, kw_only=True):
    """The run that an agent is made for.

    Attributes:
        run_id: the run's id.
        conversation_id: the id of the conversation that it belongs to.
        messages: the conversation before this run; if the run was paused, also what it has done so far. The server puts them
            into the agent.
        input: the new messages of the user; empty if the run was paused and now goes on.
        metadata: what the client sent in `metadata`.
        owner: who began it, as `authorize` returned it; None if it returned no name.
        client: the request of a client of a model's API, which the server applies; None for others.
    """

    run_id: str
    conversation_id: str
    messages: list[Message]
    input: list[Message]
    metadata: dict[str, Any]
    owner: str | None
    client: ClientRequest | None = None

    @property
    def api(self) -> str | None:
        """The protocol of the model's API that the client speaks, such as `openai_chat`; None for other clients."""
        return None if self.client is None else self.client.protocol

    @property
    def model(self) -> str | None:
        """The name under which such a client asked for the agent, one of `Endpoints(models=)`; None for other clients."""
        return None if self.client is None else self.client.model

    @property
    def continues(self) -> str | None:
        """The id of the conversation that such a client goes on with, as the run's own conversation does: what the factory has of
        it, such as a computer, it may have here again. None where it goes on with none, and for other clients."""
        return None if self.client is None else self.client.continues

    @property
    def options(self) -> Mapping[str, Any]:
        """The fields of such a client's request that `Endpoints(options=)` names, by their canonical names."""
        return {} if self.client is None else self.client.options


class Run(msgspec.Struct, kw_only=True):
    """A run, as `authorize` receives it, and clients in JSON.

    Attributes:
        id: its id.
        conversation: the id of the conversation that it belongs to; None if it belongs to none.
        owner: who began it, as `authorize` returned it; None if it returned no name.
        status: `in_progress`, `paused`, or how it ended: `completed`, `incomplete`, `requires_action`, `cancelled`, `failed`,
            `expired` or `lost`.
        created_at: in Unix seconds.
        ended_at: in Unix seconds; None while it has not ended.
        cursor: the cursor of its newest event; None before the first.
        finish_reason: why it ended, in the provider's word.
        model: the model that the provider named, once it has ended.
        usage: its tokens, once it has ended: `input_tokens`, `output_tokens`, `total_tokens`.
        error: the problem that ended it, as in problem+json; None if it did not fail.
        pending: its open questions, each with its `id`, `kind`, `subject` and `status`.
        metadata: what the client sent in `metadata`.
    """

    id: str
    conversation: str | None
    owner: str | None
    status: Status
    created_at: float
    ended_at: float | None
    cursor: str | None
    finish_reason: str | None
    model: str | None
    usage: dict[str, Any] | None
    error: dict[str, Any] | None
    pending: list[dict[str, Any]]
    metadata: dict[str, Any]


def run_of(record: RunRecord, *, expose: bool = False) -> Run:
    """Return the run of a relay's record."""
    info = record.info
    pending = [question_of(one) for one in record.questions.values() if one["status"] == "pending"]
    return Run(
        id=record.id,
        conversation=info.get("conversation"),
        owner=info.get("owner"),
        status=record.status,
        created_at=record.created_at,
        ended_at=record.ended_at,
        cursor=record.cursor,
        finish_reason=info.get("finish_reason"),
        model=info.get("model"),
        usage=info.get("usage"),
        error=run_error(record.error, expose=expose),
        pending=pending,
        metadata=info.get("metadata") or {},
    )


def question_of(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return a question, without the fields for the relay alone."""
    return {key: question[key] for key in _QUESTION if key in question}


def conversation_of(conversation: Conversation, run: RunRecord | None) -> dict[str, Any]:
    """Return a conversation, and its open run."""
    return {
        "id": conversation.id,
        "title": conversation.title,
        "created_at": conversation.created_at,
        "updated_at": conversation.updated_at,
        "messages": conversation.messages,
        "run": None if run is None else run.id,
        "branch_of": conversation.branch_of,
    }
