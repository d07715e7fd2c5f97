"""The endpoints of Responses: `/v1/responses`, with answers that are kept, read again, and gone on from.

A response is a run, and what it goes on from is the run's conversation. A response that is kept has a conversation of its own, which
begins with that of the response before it: so a second one that goes on from the same response is a branch.
"""

from __future__ import annotations

from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import Response

from ..protocols import openai_responses
from ..protocols.api_request import ApiRequest
from ..protocols.openai_responses.answer import ResponsesAnswer
from ..relay import RunRecord
from .api_routes import ApiRoutes
from .client_conversations import conversation_of_run
from .core import Server
from .item_references import with_items
from .problem import Problem
from .records import ClientRequest, client_of
from .response import JsonResponse

__all__ = ["ResponseRoutes"]

_DELETED = "deleted"
_PREFIX = ResponsesAnswer.id_prefix


class ResponseRoutes:
    """Endpoints, each called with the request and the value of its body.

    Args:
        server: the settings and look-ups that all endpoints share.
        api: answers requests to all APIs.
    """

    def __init__(self, server: Server, api: ApiRoutes) -> None:
        self._server = server
        self._api = api

    @property
    def rows(self) -> list[tuple[str, str, Any]]:
        """The rows of the table of endpoints: method, path, and the endpoint."""
        return [
            ("POST", "/v1/responses", self.create),
            ("GET", "/v1/responses/{response}", self.get),
            ("POST", "/v1/responses/{response}/cancel", self.cancel),
            ("DELETE", "/v1/responses/{response}", self.delete),
        ]

    async def create(self, request: Request, body: Any) -> Response:
        """Answer a request, at once where it is to go on in the background."""
        body = await with_items(self._server, request, body)
        wanted = openai_responses.from_request(body, options=self._api.endpoints.options)
        if not wanted.background or wanted.stream:
            return await self._api.answer(request, wanted)
        record = await self._api.begin(request, wanted)
        record = await self._server.begun_record(record.id) or record
        return JsonResponse(await self._as_it_stands(record, wanted))

    async def get(self, request: Request, body: Any) -> Response:
        """Return an answer as it stands, or its events after one."""
        record, client = await self._record(request)
        query = request.query_params
        wanted = _request_of(record, client, stream=query.get("stream") == "true")
        if not wanted.stream:
            return JsonResponse(await self._as_it_stands(record, wanted))
        after = query.get("starting_after", "-1")
        if not after.lstrip("-").isdecimal() or len(after) > 9:
            raise Problem("bad-query", "`starting_after` is a sequence number", extra={"path": "starting_after"})
        self._server.add_reader(request)
        encoder = self._api.encoder(wanted, record.id)
        assert isinstance(encoder, ResponsesAnswer)
        encoder.after = int(after)
        return await self._api.from_beginning(record, encoder, cancels=False)

    async def cancel(self, request: Request, body: Any) -> Response:
        """Stop a response."""
        record, client = await self._record(request)
        await self._server.relay.acancel(record.id)
        for _ in range(250):
            record = await self._server.relay.aget(record.id) or record
            if record.has_ended:
                break
            await anyio.sleep(0.02)
        return JsonResponse(await self._as_it_stands(record, _request_of(record, client, stream=False)))

    async def delete(self, request: Request, body: Any) -> Response:
        """Remove a response. Those that went on from it have its conversation in their own."""
        record, _ = await self._record(request)
        if not record.has_ended:
            await self._server.relay.acancel(record.id, _DELETED)
        await self._server.store.adelete(conversation_of_run(record.id))
        await self._server.relay.adelete(record.id)
        return JsonResponse({"id": f"{_PREFIX}{record.id}", "object": "response", "deleted": True})

    async def _record(self, request: Request) -> tuple[RunRecord, ClientRequest]:
        """Return the run of a response that is kept."""
        await self._server.owner(request)
        record = await self._server.record(request, request.path_params["response"].removeprefix(_PREFIX))
        client = client_of(record.info)
        if client is None or not client.stores:
            raise Problem("run-not-found")
        return record, client

    async def _as_it_stands(self, record: RunRecord, wanted: ApiRequest) -> dict[str, Any]:
        return await self._api.as_it_stands(record, self._api.encoder(wanted, record.id))


def _request_of(record: RunRecord, client: ClientRequest, *, stream: bool) -> ApiRequest:
    """Return what a kept response has of its request."""
    return ApiRequest(
        protocol=client.protocol,
        model=client.model,
        stream=stream,
        tools=client.tools,
        previous_id=client.previous_id,
        store=True,
        background=client.background,
        metadata=record.info.get("metadata") or {},
    )
