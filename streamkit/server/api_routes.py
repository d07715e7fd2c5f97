"""The endpoints of model APIs: `/v1/chat/completions`, `/v1/messages` and `/v1/models`.

The body of a request is the whole conversation. Each request begins a run, which the relay has for as long as any other. A run never
waits for its client: it ends with what the client has to answer, and the request that does so goes on from its conversation.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import Response

from .. import errors
from ..errors import RequestError, SourceError
from ..messages import Message
from ..protocols import anthropic, openai_chat
from ..protocols.api_request import ApiEncoder, ApiRequest
from ..protocols.values import json_text
from ..relay import RunRecord
from .api_response import AnswerResponse
from .client_conversations import conversation_of_run
from .continuation import ask_again, continuation_of, messages_field
from .core import Server
from .endpoints import Endpoints
from .event_stream import Encoded, RunEventStream, number_of, open_reading
from .problem import Problem
from .records import ClientRequest, Context
from .response import JsonResponse
from .run_routes import RunRoutes, is_no_input

__all__ = ["ApiRoutes"]

_IMAGE_TOKENS = 1600
_HISTORY = "history"  # the id of the run that all messages before a request are of


class ApiRoutes:
    """Endpoints, each called with the request and the value of its body.

    Args:
        server: the settings and look-ups that all endpoints share.
        runs: begins and answers runs.
        endpoints: how requests are answered.

    Attributes:
        endpoints: the same.
    """

    def __init__(self, server: Server, runs: RunRoutes, endpoints: Endpoints) -> None:
        self._server = server
        self._runs = runs
        self.endpoints = endpoints
        self._created = int(time.time())

    @property
    def rows(self) -> list[tuple[str, str, Any]]:
        """The rows of the table of endpoints: method, path, and the endpoint."""
        return [
            ("GET", "/v1/models", self.models),
            ("GET", "/v1/models/{model:path}", self.model),
            ("POST", "/v1/chat/completions", self.chat),
            ("POST", "/v1/messages", self.messages),
            ("POST", "/v1/messages/count_tokens", self.count_tokens),
        ]

    # -- models

    async def models(self, request: Request, body: Any) -> Response:
        """Return the names of the agent, in the form of all APIs at once."""
        await self._server.owner(request)
        data = [self._model(name) for name in self.endpoints.listed]
        ends = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
        return JsonResponse({"object": "list", "data": data, "has_more": False, **ends})

    async def model(self, request: Request, body: Any) -> Response:
        """Return one of the names."""
        await self._server.owner(request)
        name = request.path_params["model"]
        self._check_model(name)
        return JsonResponse(self._model(name))

    def _model(self, name: str) -> dict[str, Any]:
        created_at = datetime.fromtimestamp(self._created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        times = {"created": self._created, "created_at": created_at}
        return {"id": name, "object": "model", "type": "model", **times, "display_name": name, "owned_by": "streamkit"}

    def _check_model(self, name: str) -> None:
        if not self.endpoints.takes(name):
            raise Problem("model-not-found", f"There is no model {name[:100]!r}.", extra={"path": "model"})

    # -- answers

    async def chat(self, request: Request, body: Any) -> Response:
        """Answer a request to Chat Completions."""
        return await self.answer(request, openai_chat.from_request(body, options=self.endpoints.options))

    async def messages(self, request: Request, body: Any) -> Response:
        """Answer a request to Messages."""
        return await self.answer(request, anthropic.from_request(body, options=self.endpoints.options))

    async def count_tokens(self, request: Request, body: Any) -> Response:
        """Return how many tokens a request to Messages has, by its size: which model reads it is the agent's."""
        await self._server.owner(request)
        wanted = anthropic.from_request(body, options=self.endpoints.options, answered=False)
        self._check_model(wanted.model)
        return JsonResponse({"input_tokens": _tokens_of(wanted)})

    async def answer(self, request: Request, wanted: ApiRequest) -> Response:
        """Answer a request with a new run."""
        self._server.add_reader(request)
        record = await self.begin(request, wanted)
        return await self.from_beginning(record, self.encoder(wanted, record.id), cancels=not wanted.background)

    async def begin(self, request: Request, wanted: ApiRequest) -> RunRecord:
        """Begin a new run."""
        self._check_model(wanted.model)
        owner = await self._server.owner(request)
        if not wanted.input and not wanted.history:
            raise RequestError(messages_field(wanted), "has nothing of the user's")
        run_id = secrets.token_urlsafe(16)
        _name_history(wanted.history, run_id)
        continuation = await continuation_of(self._server, request, wanted, owner)
        context = Context(
            run_id=run_id,
            conversation_id=conversation_of_run(run_id, stored=wanted.store),
            messages=continuation.messages,
            input=continuation.input,
            metadata=wanted.metadata,
            owner=owner,
            client=self._client(wanted, continuation.conversation),
        )
        try:
            record, _ = await self._runs.run(request, context, None)
        except Exception:  # refused: the client may send the same again
            await ask_again(self._server, continuation)
            raise
        return record

    async def from_beginning(self, record: RunRecord, encoder: ApiEncoder, *, cancels: bool) -> AnswerResponse:
        """Return the answer of a run, from its beginning.

        Args:
            cancels: whether the run stops where the client leaves.
        """
        reading = await open_reading(self._server, record, None)
        stream = RunEventStream(self._server, record, reading, self._frames(record, encoder))

        async def close(is_complete: bool) -> None:
            stream.close()
            if cancels and not is_complete:
                await self._server.relay.acancel(record.id, "disconnected")

        return AnswerResponse(
            encoder,
            stream.frames(),
            partial(self._failure, record.id),
            close,
            headers={"X-Streamkit-Run": record.id, "X-Request-Id": record.id, "request-id": record.id},
            expose_errors=self._server.expose_errors,
        )

    def _frames(self, record: RunRecord, encoder: ApiEncoder) -> Encoded:
        return Encoded(self._runs.writer(encoder), record.id, wants=is_no_input)

    async def as_it_stands(self, record: RunRecord, encoder: ApiEncoder) -> dict[str, Any]:
        """Return the whole answer of a run, as far as it has come."""
        frames, newest = self._frames(record, encoder), record.cursor
        reading = await open_reading(self._server, record, None)
        try:
            while newest is not None and not frames.has_ended:
                entries = await reading.apull(5.0)
                if not entries:
                    break
                frames.body(entries)
                if number_of(entries[-1].cursor, record.id) >= number_of(newest, record.id):
                    break
        finally:
            reading.close()
        return encoder.body()

    def _client(self, wanted: ApiRequest, continues: str | None) -> ClientRequest:
        settings = self.endpoints
        return ClientRequest(
            protocol=wanted.protocol,
            model=wanted.model,
            system=wanted.system if settings.system == "append" else "",
            tools=[] if wanted.tool_choice.mode == "none" else wanted.tools,
            tool_choice=wanted.tool_choice,
            options=wanted.options,
            asks=settings.questions == "ask",
            stores=wanted.store,
            previous_id=wanted.previous_id,
            background=wanted.background,
            continues=continues,
        )

    def encoder(self, wanted: ApiRequest, run_id: str) -> ApiEncoder:
        """Return what encodes an answer of a run."""
        settings = self.endpoints
        return wanted.encoder(id=run_id, activity=settings.activity, asks=settings.questions == "ask")

    async def _failure(self, run_id: str) -> Problem:
        """Return the problem that a run ended with."""
        record = await self._server.relay.aget(run_id)
        for _ in range(100):  # its last event is there a moment before its end
            if record is None or record.has_ended:
                break
            await anyio.sleep(0.02)
            record = await self._server.relay.aget(run_id)
        return _problem_of(record)


def _tokens_of(wanted: ApiRequest) -> int:
    """Return an estimate of the tokens of a request."""
    messages = [*wanted.history, *wanted.input]
    texts = [message.content for message in messages if message.type not in ("image", "audio", "file")]
    size = sum(len(text.encode("utf-8", "replace")) for text in (wanted.system, *texts, *map(json_text, wanted.tools)))
    images = [message for message in messages if message.type == "image"]
    return size // 4 + len(images) * _IMAGE_TOKENS + 1


def _name_history(messages: Sequence[Message], run_id: str) -> None:
    """Give the messages before a request ids of their own, as those of another run."""
    for number, message in enumerate(messages, 1):
        message.id, message.run_id = f"{run_id}-{number}", _HISTORY


def _problem_of(record: RunRecord | None) -> Problem:
    error: Mapping[str, Any] = (None if record is None else record.error) or {}
    name, message, instance = str(error.get("type")), str(error.get("message") or ""), str(error.get("instance") or "")
    kind: Any = getattr(errors, name, None)
    if name == RequestError.__name__:
        return Problem("invalid", message, extra={"path": error.get("path")}, instance=instance)
    if record is not None and record.status == "cancelled":
        return Problem("run-cancelled")
    is_source = isinstance(kind, type) and issubclass(kind, SourceError)
    return Problem("provider-failed" if is_source else "run-failed", message, instance=instance)
