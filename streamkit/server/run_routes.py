"""The endpoints of runs: begin, list, read, cancel, answer."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..errors import UsageError
from ..protocols import registry
from ..protocols.event_stream import EventStreamWriter
from ..protocols.request_body import Fields
from ..relay import RunRecord
from ..relay.run_record import FINAL
from ..streams.error_mask import ErrorMask
from .core import Server, list_response
from .event_stream import (
    AtQuestion,
    Encoded,
    Native,
    RunEventStream,
    RunFrames,
    SharedFrames,
    at_question_of,
    is_within,
    number_of,
    open_reading,
)
from .inputs import PostedRun, answer_in, check_metadata, fingerprint, limit_in
from .problem import Problem
from .records import AG_UI, CLIENT, Context, question_of
from .response import JsonResponse
from .shared_encoding import EncodedTogether, SharedEncoding

__all__ = ["RunRoutes"]

_KEY = re.compile(r"[\x21-\x7e]{1,255}").fullmatch
_STATUSES = ("in_progress", "paused", *FINAL)


class RunRoutes:
    """Endpoints, each called with the request and the value of its body.

    Args:
        server: the settings and look-ups that all endpoints share.
        secret: makes the ids of runs with an Idempotency-Key impossible to guess.
    """

    def __init__(self, server: Server, secret: bytes) -> None:
        self._server = server
        self._secret = secret

    # -- begin

    async def begin(self, request: Request, body: Any) -> Response:
        """Begin a run."""
        wanted = PostedRun(body)
        check_protocol(wanted.protocol)
        key = request.headers.get("idempotency-key")
        if key is not None and _KEY(key) is None:
            raise Problem("invalid", "an Idempotency-Key is 1 to 255 visible ASCII characters")
        owner = await self._server.owner(request)
        run_id = secrets.token_urlsafe(16) if key is None else self.id_of("key", owner or "", key)
        conversation = wanted.conversation or (secrets.token_urlsafe(16) if key is None else f"c-{run_id}")
        if wanted.conversation is not None:
            await self._server.find_conversation(request, conversation)
        if wanted.stream:
            self._server.add_reader(request)
        context = Context(
            run_id=run_id,
            conversation_id=conversation,
            messages=[],
            input=wanted.input,
            metadata=wanted.metadata,
            owner=owner,
        )
        record, is_replay = await self.run(request, context, fingerprint(body) if key is not None else None)
        headers = {"Location": f"{request.scope.get('root_path', '')}/runs/{run_id}"}
        headers |= {"Idempotency-Replayed": "true"} if is_replay else {}
        if not wanted.stream:
            run = msgspec.to_builtins(self._server.run_of(record))
            return JsonResponse(run, 200 if is_replay else 201, headers)
        leaves = partial(self._server.relay.acancel, run_id, "disconnected")
        return await self.stream(
            request,
            record,
            wanted.protocol,
            headers=headers,
            on_disconnect=leaves if wanted.on_disconnect == "cancel" else None,
        )

    def id_of(self, *names: str) -> str:
        """Return the id of a run that these names identify, such as an Idempotency-Key."""
        value = "\0".join(names).encode("utf-8", "surrogatepass")
        return hmac.new(self._secret, value, hashlib.sha256).hexdigest()[:40]

    async def run(
        self, request: Request, context: Context, mark: str | None, *, ag_ui: Mapping[str, Any] | None = None
    ) -> tuple[RunRecord, bool]:
        """Begin a run, unless there is one with this id. Returns its record, and whether there was one.

        Args:
            mark: what an equal request has too; None where there is none.
            ag_ui: what a client of AG-UI sent for the agent. It is kept until the run has ended, and no client sees it.
        """
        relay = self._server.relay
        check_metadata(context.metadata)
        info: dict[str, Any] = {
            "conversation": context.conversation_id,
            "owner": context.owner,
            "metadata": context.metadata,
            "mark": mark,
        }
        if context.client is not None:
            info[CLIENT] = msgspec.to_builtins(context.client)
        if ag_ui is not None:
            info[AG_UI] = ag_ui
            context.metadata = {**context.metadata, AG_UI: ag_ui}
        found = await self._server.begun_record(context.run_id) if mark is not None else None
        if found is None:
            await self._server.check_owner(context.owner)
            try:
                await self._server.runs.begin(context, info, partial(self._server.check_new_run, request, context))
            except UsageError:  # an equal request came at the same moment
                if mark is None:
                    raise
                found = await self._server.begun_record(context.run_id)
                if found is None:
                    raise Problem("conversation-busy", "An equal request was refused at this moment.") from None
        record = found or await relay.aget(context.run_id)
        if record is None:
            raise Problem("run-not-found")
        if found is not None and found.info.get("mark") != mark:
            raise Problem("idempotency-mismatch")
        return record, found is not None

    # -- read

    async def all(self, request: Request, body: Any) -> Response:
        """Return the newest runs."""
        query = request.query_params
        status, conversation, before = query.get("status"), query.get("conversation"), query.get("before")
        if status is not None and status not in _STATUSES:
            raise Problem("bad-query", f"`status` is one of {', '.join(_STATUSES)}")
        page = await self._server.visible_runs(
            request, status=status, conversation=conversation, limit=limit_in(query), before=before
        )
        return list_response("runs", page)

    async def get(self, request: Request, body: Any) -> Response:
        """Return one run."""
        return self._response(await self._server.record(request, request.path_params["run"]))

    async def events(self, request: Request, body: Any) -> Response:
        """Return the events of a run."""
        query = request.query_params
        gap, protocol = query.get("gap", "snapshot"), query.get("protocol") or "streamkit"
        if gap not in ("snapshot", "error"):
            raise Problem("bad-query", "`gap` is `snapshot` or `error`")
        check_protocol(protocol)
        record = await self._server.record(request, request.path_params["run"])
        after = request.headers.get("last-event-id", query.get("after")) or None
        return await self.stream(request, record, protocol, after=after, gap=gap)

    async def stream(
        self,
        request: Request,
        record: RunRecord,
        protocol: str,
        *,
        after: str | None = None,
        gap: str = "snapshot",
        headers: Mapping[str, str] | None = None,
        on_disconnect: Any = None,
    ) -> Response:
        """Return the response with a run's events after a cursor: none, if it has ended there."""
        number = number_of(after, record.id)
        has_ended = record.ended_at is not None  # a lost run's end is not written before a client reads it
        if has_ended and after is not None and after == record.cursor:
            return Response(status_code=204)
        self._server.add_reader(request)
        is_native = protocol == "streamkit"
        if not is_native:
            if gap == "error" and after is not None:  # what is before the cursor may be gone
                (await open_reading(self._server, record, after, gap)).close()
            gap, number = "snapshot", number if is_within(after, record) else 0
        reading = await open_reading(self._server, record, after if is_native else None, gap)
        writer = self.writer(protocol)
        frames: RunFrames
        if is_native:
            frames = Native(writer, self._server.shared(SharedFrames, record.id))
        else:
            frames = self.encoded(writer, record, at_question_of(protocol), protocol, after=number)
        return RunEventStream(self._server, record, reading, frames, headers, on_disconnect)

    def encoded(
        self,
        writer: EventStreamWriter,
        record: RunRecord,
        at_question: AtQuestion | None,
        *options: object,
        after: int = 0,
    ) -> RunFrames:
        """Return the frames of a run in another protocol, from its beginning; `options` are those of the encoder."""
        newest = number_of(record.cursor, record.id)
        state = Encoded(
            writer,
            record.id,
            after=after,
            wants=is_no_input,
            at_question=at_question,
            questions_from=newest,
        )
        shared = self._server.shared(SharedEncoding, record.id, *options)
        return EncodedTogether(state, shared, record.id, max(after, newest))

    def writer(self, protocol: Any) -> EventStreamWriter:
        """Return the writer of frames in a protocol, or with an encoder. It masks the texts of errors."""
        return EventStreamWriter(protocol, mask=ErrorMask(expose=self._server.expose_errors))

    # -- change

    async def cancel(self, request: Request, body: Any) -> Response:
        """Stop a run."""
        reason = Fields(body, "").optional_text("reason")
        record = await self._server.record(request, request.path_params["run"])
        had_ended = not await self._server.relay.acancel(record.id, reason)
        now = await self._server.relay.aget(record.id)
        return self._response(now or record, 200 if had_ended else 202)

    async def answer(self, request: Request, body: Any) -> Response:
        """Answer a question."""
        record = await self._server.record(request, request.path_params["run"])
        question = record.questions.get(request.path_params["question"])
        if question is None:
            raise Problem("question-not-found")
        return JsonResponse(question_of(await self.give(record, question, answer_in(body, question))))

    async def give(self, record: RunRecord, question: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a question in the relay, and go on with the run if it is paused. Returns the question.

        Raises:
            Problem: it has another answer, or takes none any more.
        """
        if record.status == "lost":  # nobody acts on an answer any more, not even on one that came in time
            raise Problem("question-closed", "The run is lost.", extra={"question": question_of(question)})
        counts, now = await self._server.relay.aanswer(record.id, question["id"], answer)
        if not counts:
            code = "question-closed" if now["status"] == "closed" else "already-answered"
            raise Problem(code, extra={"question": question_of(now)})
        await self._server.runs.go_on(record.id)
        return now

    def _response(self, record: RunRecord, status: int = 200) -> Response:
        return JsonResponse(msgspec.to_builtins(self._server.run_of(record)), status)


def check_protocol(name: str) -> None:
    """Refuse a protocol that does not exist, or has no encoder.

    Raises:
        Problem: there is no such protocol.
    """
    try:
        registry.find(name)
    except UsageError:
        raise Problem(
            "unknown-protocol", f"there is no protocol {quote(name[:40])!r}; there are: {', '.join(registry.names())}"
        ) from None


def is_no_input(event: Any) -> bool:
    """Whether an event is not about the run's input: a user interface shows what its user wrote already."""
    message = getattr(event, "message", None) or getattr(event, "snapshot", None)
    return message is None or getattr(message, "role", None) not in ("user", "system")
