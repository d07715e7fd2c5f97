"""The endpoints of `useChat` and of AG-UI.

Of a request's messages only what is new counts: what the user says now, and answers to questions that are open in this
conversation. What runs is the server's own, never something from the request.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..errors import RequestError
from ..messages import Message, is_from_user
from ..protocols import ag_ui, vercel_ui
from ..protocols.ui_answers import Approval, UiAnswer
from ..protocols.ui_parts import DENIED
from ..relay import RunRecord
from ..relay.registry import outcome_of
from ..stores import Conversation, Saved
from .conversation_routes import ConversationRoutes, messages_before
from .core import Server, is_id
from .event_stream import RunEventStream, ends_as_waiting, open_reading
from .inputs import checked_input
from .problem import Problem
from .records import Context, question_of
from .response import JsonResponse
from .run_routes import RunRoutes
from .ui_streams import AgUiStream, chat_continued, so_far

__all__ = ["UiRoutes"]

_NOTHING = Saved([], 0)
_SUPERSEDED = "superseded"
_PATIENCE = 5.0  # seconds to wait for the end of a run that was stopped


class UiRoutes:
    """Endpoints, each called with the request and the value of its body."""

    def __init__(self, server: Server, runs: RunRoutes, conversations: ConversationRoutes) -> None:
        self._server = server
        self._runs = runs
        self._conversations = conversations

    # -- useChat

    async def chat(self, request: Request, body: Any) -> Response:
        """New input, an edited message, answers to questions, or another try. The response is the stream of the run."""
        wanted, version = vercel_ui.from_request(body), _version(request)
        owner, conversation, run = await self._find(request, "id", wanted.id)
        self._server.add_reader(request)
        if wanted.trigger == "submit-message" and not wanted.new_messages:
            return await self._chat_answers(run, wanted.answers, version)
        again = conversation is not None and wanted.trigger == "regenerate-message"
        edited = conversation if again or wanted.message_id is not None else None
        saved = await self._saved(edited)
        turn = _turn_in(saved.messages, wanted, again=again)
        input = checked_input(wanted.new_messages)
        if not again and not input:
            raise RequestError("messages", "have nothing new of the user's")
        self._server.runs.check_room()
        if run is not None:  # nothing is wrong with the request: now it may change something
            await self._supersede(run)
            saved = await self._saved(edited)
        if edited is not None and turn is not None:
            removed = await self._conversations.roll_back(edited, saved, turn.before)
            input = (
                [one for one in removed if is_from_user(one) and one.run_id == removed[0].run_id] if again else input
            )
        record = await self._begin(request, wanted.id, input, dict(wanted.body), owner)
        return await self._chat_from_beginning(record, version)

    async def _saved(self, conversation: Conversation | None) -> Saved:
        return _NOTHING if conversation is None else await self._conversations.saved(conversation)

    async def _chat_answers(self, run: RunRecord | None, answers: Sequence[UiAnswer], version: Any) -> Response:
        answers_given = _checked_answers(run, answers)
        if run is None or not answers_given:
            raise Problem("question-closed", "Nothing is open that these messages answer.")
        found = await so_far(self._server, run)  # now, as the log may be trimmed once the run goes on
        for question, answer in answers_given:
            await self._runs.give(run, question, answer)
        return await chat_continued(self._server, run, version, found)

    async def chat_stream(self, request: Request, body: Any) -> Response:
        """Return the open run, from the beginning of its message; 204 if there is none."""
        run, version = await self._open_run(request), _version(request)
        if run is None:
            return Response(status_code=204)
        self._server.add_reader(request)
        return await self._chat_from_beginning(run, version)

    async def chat_stop(self, request: Request, body: Any) -> Response:
        """Stop the open run; 204 if there is none."""
        run = await self._open_run(request)
        if run is None:
            return Response(status_code=204)
        had_ended = not await self._server.relay.acancel(run.id)
        now = await self._server.relay.aget(run.id) or run
        return JsonResponse(msgspec.to_builtins(self._server.run_of(now)), 200 if had_ended else 202)

    async def chat_messages(self, request: Request, body: Any) -> Response:
        """Return the messages of runs that have ended, and the input of the open one, for `useChat({messages})`."""
        found, run = await self._server.conversation(request, request.path_params["conversation"])
        saved = (await self._conversations.saved(found)).messages
        input = [one for one in saved if run is not None and one.run_id == run.id and is_from_user(one)]
        shown = vercel_ui.to_input([*messages_before(run, saved), *input], version=_version(request))
        return JsonResponse({"id": found.id, "messages": shown})

    async def _chat_from_beginning(self, record: RunRecord, version: Any) -> RunEventStream:
        reading = await open_reading(self._server, record, None)
        encoder = vercel_ui.Encoder(version, message_id=record.id, expose_errors=True)
        frames = self._runs.encoded(self._runs.writer(encoder), record, ends_as_waiting, "chat", version)
        return RunEventStream(self._server, record, reading, frames)

    # -- AG-UI

    async def agui(self, request: Request, body: Any) -> Response:
        """Begin or continue the run of a `RunAgentInput`. The same one again attaches to its run."""
        wanted = ag_ui.from_request(body)
        owner, conversation, run = await self._find(request, "threadId", wanted.thread_id)
        self._server.add_reader(request)
        stream = AgUiStream(self._server, wanted)
        run_id = self._runs.id_of("agui", owner or "", wanted.thread_id, wanted.run_id)
        seen = await self._seen(request, run_id)
        past = await self._past(conversation, seen or run)
        if seen is not None and not wanted.resume:
            return await stream.attached(seen, past, await so_far(self._server, seen), shows_messages=True)
        current = run or await self._newest(request, wanted.thread_id)
        if wanted.resume or (run is not None and _pending(run)):
            try:
                answers_given = _checked_answers(current, wanted.answers)
            except Problem:
                answers_given = []
            ids = {question["id"] for question, _ in answers_given}
            answered_ids = {one.interrupt_id for one in wanted.resume}
            if current is None or not answers_given or not answered_ids <= ids or not {*_pending(current)} <= ids:
                return Response(stream.mismatch(), headers=dict(self._runs.writer("ag_ui").headers))
            found = await so_far(self._server, current)
            for question, answer in answers_given:
                await self._runs.give(current, question, answer)
            return await stream.attached(current, past, found, shows_messages=False)
        input = checked_input(wanted.new_messages)
        if not input:
            raise RequestError("messages", "have nothing new of the user's")
        more = {"state": wanted.state, "context": wanted.context, "forwardedProps": wanted.forwarded_props}
        tools = [msgspec.to_builtins(tool) for tool in wanted.tools]
        received = {"runId": wanted.run_id, "tools": tools, **more}
        record = await self._begin(request, wanted.thread_id, input, {}, owner, run_id, ag_ui=received)
        return await stream.beginning(record, past)

    async def _newest(self, request: Request, conversation: str) -> RunRecord | None:
        runs = await self._server.relay.alist(conversation=conversation, limit=1)
        return await self._seen(request, runs[0].id) if runs else None

    async def _seen(self, request: Request, run_id: str) -> RunRecord | None:
        """Return a run, if there is one that the request may see: it outlives the conversation that it was checked
        with."""
        record = await self._server.begun_record(run_id)
        return record if record is not None and await self._server.may(self._server.run_of(record), request) else None

    async def _past(self, conversation: Conversation | None, run: RunRecord | None) -> list[Message]:
        """Return the messages before a run."""
        return (
            []
            if conversation is None
            else messages_before(run, (await self._conversations.saved(conversation)).messages)
        )

    # -- both

    async def _find(
        self, request: Request, name: str, id: str
    ) -> tuple[str | None, Conversation | None, RunRecord | None]:
        """Return the owner, the conversation if there is one, and its open run."""
        if not is_id(id):
            raise RequestError(name, "is not an id: those have letters, digits, `-` and `_`, 128 at most")
        owner = await self._server.owner(request)
        found = await self._server.find_conversation(request, id)
        return (owner, None, None) if found is None else (owner, found.conversation, found.run)

    async def _open_run(self, request: Request) -> RunRecord | None:
        await self._server.owner(request)
        id = request.path_params["conversation"]
        try:
            found = await self._server.find_conversation(request, id) if is_id(id) else None
        except Problem:  # that it may not be seen is not to be seen
            return None
        return None if found is None else found.run

    async def _begin(
        self,
        request: Request,
        conversation: str,
        input: list[Message],
        metadata: dict[str, Any],
        owner: str | None,
        run_id: str = "",
        ag_ui: Mapping[str, Any] | None = None,
    ) -> RunRecord:
        context = Context(
            run_id=run_id or secrets.token_urlsafe(16),
            conversation_id=conversation,
            messages=[],
            input=input,
            metadata=metadata,
            owner=owner,
        )
        record, _ = await self._runs.run(request, context, run_id or None, ag_ui=ag_ui)
        return record

    async def _supersede(self, run: RunRecord) -> None:
        """The user sends a new message while questions are open: their run ends. They get no answer, not even a decline, to
        which the model would answer.

        Raises:
            Problem: something is running.
        """
        if not _pending(run):
            raise Problem("conversation-busy", extra={"run": run.id})
        await self._server.relay.acancel(run.id, _SUPERSEDED)
        reading = await open_reading(self._server, run, run.cursor)
        with anyio.move_on_after(_PATIENCE):
            async for _ in reading:
                pass  # up to its end
        reading.close()


def _version(request: Request) -> Any:
    """Return the major version of the client's `ai` package: `?version=5`, 6 by default."""
    version = request.query_params.get("version", "6")
    if version not in ("5", "6", "7"):
        raise Problem("bad-query", "`version` is 5, 6 or 7")
    return int(version)


class _RequestedTurn(NamedTuple):
    """A turn of a conversation that is taken back: that with this message of the user, or the last one."""

    before: str | None


def _turn_in(messages: Sequence[Message], wanted: vercel_ui.ChatRequest, *, again: bool) -> _RequestedTurn | None:
    """Return the turn that a request puts another one in place of: the one of the message that it names, which is to be
    answered `again`, or which the user has edited; None if there is none.

    Raises:
        RequestError: it is to be answered again, and there is no such message.
    """
    id = wanted.message_id
    if id is None:
        return _RequestedTurn(None) if again else None
    for message in messages:
        if message.role == "user" and id in (message.id, message.group, message.run_id if again else None):
            return _RequestedTurn(message.id)
    if again:
        raise RequestError("messageId", "is the id of no message in this conversation")
    return None


def _pending(run: RunRecord) -> dict[str, dict[str, Any]]:
    return {id: question for id, question in run.questions.items() if question["status"] == "pending"}


def _checked_answers(
    run: RunRecord | None, answers: Sequence[UiAnswer]
) -> list[tuple[dict[str, Any], Mapping[str, Any]]]:
    """Return the answers to questions of a run, each with its question. Outputs of tools that nobody asked the client
    about are left out.

    Raises:
        Problem: an approval answers no question that is open, or that has this very answer.
    """
    answers_given: list[tuple[dict[str, Any], Mapping[str, Any]]] = []
    for one in answers:
        question_id = one.id if isinstance(one, Approval) else one.call_id
        question = None if run is None else run.questions.get(question_id or "")
        answer = _answer_of(one)
        kind = "confirmation" if isinstance(one, Approval) else "tool_call"
        fits = question is not None and question["kind"] == kind and _takes(question, answer)
        if fits and question is not None:
            answers_given.append((question, answer))
        elif isinstance(one, Approval):
            shown = {} if question is None else {"question": question_of(question)}
            is_open = question is not None and question["status"] in ("approved", "declined")
            raise Problem("already-answered" if is_open else "question-closed", extra=shown)
    return answers_given


def _answer_of(one: UiAnswer) -> dict[str, Any]:
    if not isinstance(one, Approval):
        return {"error": one.output} if one.failed else {"output": one.output}
    # Their clients wait for the model's answer to a refusal, too; without a reason the run would end.
    key, value = ("edited", one.edited) if one.approved else ("reason", one.reason or DENIED)
    return {"approved": one.approved, **({} if value is None else {key: value})}


def _takes(question: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    """Whether a question is open, or has this answer."""
    if question["status"] == "pending":
        return "edited" not in answer or bool(question.get("editable"))
    outcome = outcome_of(answer)
    return all(question.get(key) == outcome.get(key) for key in ("status", "edited", "reason", "output", "error"))
