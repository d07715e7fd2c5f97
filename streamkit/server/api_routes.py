"""The endpoints of model APIs: `/v1/chat/completions`, `/v1/messages` and `/v1/models`.

The body of a request is the whole conversation. Each request begins a run, which the relay has for as long as any other, and whose
conversation goes when it ends; but one that brings what an open run waits for goes on with that run.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from .. import errors
from ..answers import Confirmation
from ..errors import RequestError, SourceError
from ..events import ConfirmationCreated, RunCreated
from ..messages import Message, TextMessage
from ..protocols import anthropic, openai_chat
from ..protocols.answer_activity import question_text
from ..protocols.api_request import ApiEncoder, ApiRequest
from ..protocols.ui_parts import DENIED
from ..protocols.values import json_text
from ..relay import RunRecord
from .api_response import AnswerResponse
from .core import Server
from .endpoints import Endpoints
from .event_stream import Encoded, RunEventStream, ends_as_waiting, number_of, open_questions, open_reading
from .problem import Problem
from .records import ClientRequest, Context, client_of
from .response import JsonResponse
from .run_routes import RunRoutes, is_no_input
from .ui_streams import SoFar, so_far

__all__ = ["ApiRoutes", "conversation_of_run"]

_CALL = re.compile(r"(?:call|toolu)_(?P<run>[A-Za-z0-9_-]{1,128})_[0-9]{1,6}").fullmatch
_QUESTION = re.compile(r"\[approval (?P<run>[A-Za-z0-9_-]{1,128})_[0-9]{1,6}\]\s*$")
_YES, _NO = ("yes", "y", "ok", "okay", "approve", "approved"), ("no", "n")
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
        wanted = anthropic.from_request(body, options=self.endpoints.options)
        self._check_model(wanted.model)
        return JsonResponse({"input_tokens": _tokens_of(wanted)})

    async def answer(self, request: Request, wanted: ApiRequest, past: Sequence[Message] = ()) -> Response:
        """Answer a request, by going on with the run that it answers, or by a new one.

        Args:
            past: the messages before those of the request.
        """
        self._server.add_reader(request)
        going_on = await self._go_on(request, wanted)
        if going_on is not None:
            return going_on
        record = await self.begin(request, wanted, past)
        return await self.from_beginning(record, self.encoder(wanted, record.id), cancels=not wanted.background)

    async def begin(self, request: Request, wanted: ApiRequest, past: Sequence[Message] = ()) -> RunRecord:
        """Begin a new run."""
        self._check_model(wanted.model)
        owner = await self._server.owner(request)
        if not wanted.input and not wanted.history:
            raise RequestError(_place(wanted), "has nothing of the user's")
        run_id = secrets.token_urlsafe(16)
        context = Context(
            run_id=run_id,
            conversation_id=conversation_of_run(run_id),
            messages=[*past, *_of_history(wanted.history, run_id)],
            input=wanted.input,
            metadata=wanted.metadata,
            owner=owner,
            client=self._client(wanted),
        )
        record, _ = await self._runs.run(request, context, None)
        return record

    async def from_beginning(self, record: RunRecord, encoder: ApiEncoder, *, cancels: bool) -> AnswerResponse:
        """Return the answer of a run, from its beginning.

        Args:
            cancels: whether the run stops where the client leaves.
        """
        return await self._response(record, encoder, self._frames(record, encoder), None, cancels=cancels)

    def _frames(self, record: RunRecord, encoder: ApiEncoder) -> Encoded:
        writer, newest = self._runs.writer(encoder), number_of(record.cursor, record.id)
        return Encoded(writer, record.id, wants=is_no_input, at_question=ends_as_waiting, questions_from=newest)

    async def as_it_stands(self, record: RunRecord, encoder: ApiEncoder) -> dict[str, Any]:
        """Return the whole answer of a run, as far as it has come."""
        frames, newest = self._frames(record, encoder), record.cursor
        reading = await open_reading(self._server, record, None)
        try:
            while newest is not None and not frames.has_ended:
                entries = await reading.apull(5.0)
                if not entries:
                    break
                if frames.needs_questions(entries):
                    frames.questions = await open_questions(self._server, record.id)
                frames.body(entries)
                if number_of(entries[-1].cursor, record.id) >= number_of(newest, record.id):
                    break
        finally:
            reading.close()
        return encoder.body()

    def _client(self, wanted: ApiRequest) -> ClientRequest:
        settings = self.endpoints
        return ClientRequest(
            protocol=wanted.protocol,
            model=wanted.model,
            system=wanted.system if settings.system == "append" else "",
            tools=[] if wanted.tool_choice.mode == "none" else wanted.tools,
            tool_paths=wanted.tool_paths,
            tool_choice=wanted.tool_choice,
            options=wanted.options,
            asks=settings.questions == "ask",
            stores=wanted.store,
            previous_id=wanted.previous_id,
            background=wanted.background,
        )

    def encoder(self, wanted: ApiRequest, run_id: str) -> ApiEncoder:
        """Return what encodes an answer of a run."""
        settings = self.endpoints
        return wanted.encoder(id=run_id, activity=settings.activity, asks=settings.questions == "ask")

    async def _response(
        self, record: RunRecord, encoder: ApiEncoder, frames: Encoded, after: str | None, *, cancels: bool
    ) -> AnswerResponse:
        reading = await open_reading(self._server, record, after)
        stream = RunEventStream(self._server, record, reading, frames)

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

    async def _failure(self, run_id: str) -> Problem:
        """Return the problem that a run ended with."""
        record = await self._server.relay.aget(run_id)
        for _ in range(100):  # its last event is there a moment before its end
            if record is None or record.has_ended:
                break
            await anyio.sleep(0.02)
            record = await self._server.relay.aget(run_id)
        return _problem_of(record)

    # -- going on with an open run

    async def _go_on(self, request: Request, wanted: ApiRequest) -> Response | None:
        """Answer with a run that waits for what the request brings: outputs of the client's tools, or what the user says to a
        question. None if there is no such run."""
        self._check_model(wanted.model)
        owner = await self._server.owner(request)
        output = next(filter(None, (_CALL(answer.call_id) for answer in wanted.answers)), None)
        question = _question_in(wanted)
        named = question.group("run") if question is not None else _previous_run(wanted)
        run_id = output.group("run") if output is not None else named
        record = None if run_id is None else await self._waiting(request, run_id, owner)
        if record is None:
            return None
        found = await so_far(self._server, record)
        encoder = self.encoder(wanted, record.id)
        asked = sum(isinstance(event, ConfirmationCreated) for event in found.shown)
        encoder.go_on_after(found.replay.engine.messages.all, found.replay.engine.runs.usage, asked)
        if output is not None:
            answers = _outputs(record, wanted, encoder)
        else:
            open_ = next((one for one in found.replay.engine.pending.confirmations if one.status == "pending"), None)
            is_shown = open_ is not None and (question is None or _shows(question, open_, f"{record.id}_{asked}"))
            answers = _decision(record, wanted) if is_shown else {}
        if not answers:
            return None
        for id, answer in answers.items():
            await self._runs.give(record, record.questions[id], answer)
        return await self._continued(record, encoder, found)

    async def _waiting(self, request: Request, run_id: str, owner: str | None) -> RunRecord | None:
        """Return the record of an open run of this owner."""
        record = await self._server.relay.aget(run_id)
        if record is None or record.has_ended or client_of(record.info) is None or record.info.get("owner") != owner:
            return None
        return record if await self._server.may(self._server.run_of(record), request) else None

    async def _continued(self, record: RunRecord, encoder: ApiEncoder, found: SoFar) -> Response:
        writer = self._runs.writer(encoder)
        beginning = b"".join(writer.event(event) for event in found.shown if isinstance(event, RunCreated))
        number = number_of(found.cursor, record.id)
        frames = Encoded(
            writer,
            record.id,
            after=number,
            wants=is_no_input,
            at_question=ends_as_waiting,
            questions_from=number,
            events=found.replay,
            beginning=beginning,
        )
        return await self._response(record, encoder, frames, found.cursor, cancels=not encoder.request.background)


def _tokens_of(wanted: ApiRequest) -> int:
    """Return an estimate of the tokens of a request."""
    messages = [*wanted.history, *wanted.input]
    texts = [message.content for message in messages if message.type not in ("image", "audio", "file")]
    size = sum(len(text.encode("utf-8", "replace")) for text in (wanted.system, *texts, *map(json_text, wanted.tools)))
    images = [message for message in messages if message.type == "image"]
    return size // 4 + len(images) * _IMAGE_TOKENS + 1


def conversation_of_run(run_id: str) -> str:
    """Return the id of the conversation of a run that a client of a model's API began."""
    return f"v1-{run_id}"


def _of_history(messages: Sequence[Message], run_id: str) -> Sequence[Message]:
    """Return the messages before a request with ids of their own, as those of another run."""
    for number, message in enumerate(messages, 1):
        message.id, message.run_id = f"{run_id}-{number}", _HISTORY
    return messages


def _place(wanted: ApiRequest) -> str:
    return "input" if wanted.protocol == "openai_responses" else "messages"


def _previous_run(wanted: ApiRequest) -> str | None:
    """Return the run of the response that a request goes on from with what the user says."""
    id = wanted.previous_id if wanted.input and not wanted.history else None
    return None if id is None else id.removeprefix("resp_")


def _question_in(wanted: ApiRequest) -> re.Match[str] | None:
    """Return the question that the newest answer of a request's history ends with, where the user has said something to it."""
    last = wanted.history[-1] if wanted.history else None
    is_text = isinstance(last, TextMessage) and last.role == "assistant"
    return _QUESTION.search(last.content) if is_text and last is not None and wanted.input else None


def _shows(question: re.Match[str], confirmation: Confirmation, id: str) -> bool:
    """Whether a text ends with this very question, and so shows what would run: a model may write one that does not."""
    return "".join(question.string.split()).endswith("".join(question_text(confirmation, id).split()))


def _decision(record: RunRecord, wanted: ApiRequest) -> dict[str, dict[str, Any]]:
    """Return the answer to the question that is open, by its id."""
    said = "\n".join(message.content for message in wanted.input if message.type == "message").strip()
    word = said.lower().rstrip(".!")
    answer = {"approved": True} if word in _YES else {"approved": False, "reason": DENIED if word in _NO else said}
    pending = [
        id for id, one in record.questions.items() if (one["status"], one["kind"]) == ("pending", "confirmation")
    ]
    return dict.fromkeys(pending[:1], answer)


def _outputs(record: RunRecord, wanted: ApiRequest, encoder: ApiEncoder) -> dict[str, dict[str, Any]]:
    """Return the outputs of the calls that are open, by the ids of the questions. None of them are, where none waits.

    Raises:
        RequestError: the request has not all of them.
    """
    calls = encoder.calls
    given = {calls[one.call_id]: one for one in wanted.answers if one.call_id in calls}
    pending = [id for id, one in record.questions.items() if (one["status"], one["kind"]) == ("pending", "tool_call")]
    if not given.keys() & {*pending}:
        return {}
    missing = [named for named, id in calls.items() if id in pending and id not in given]
    if missing:
        raise RequestError(_place(wanted), f"has no output of these open calls: {', '.join(missing)}")
    outputs: dict[str, dict[str, Any]] = {
        id: {"error" if given[id].failed else "output": given[id].output} for id in pending
    }
    outputs[pending[-1]]["tool_choice"] = msgspec.to_builtins(wanted.tool_choice)
    if wanted.input:
        outputs[pending[-1]]["input"] = [message.to_dict() for message in wanted.input]
    return outputs


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
