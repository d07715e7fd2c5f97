"""What a request to a model's API continues: the stored conversation of the run that it answers.

That conversation has what the client never saw: the calls of the agent itself, and their outputs. The request names the run: by the
ids of the client's calls, by the question at the end of the last answer, or by `previous_response_id`. Where no conversation is found, the
request's own history is the conversation.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import anyio
from starlette.requests import Request

from ..agent.conversation import changed
from ..agent.sub_agent import pending_in
from ..answers import Confirmation
from ..errors import RequestError, StaleVersionError
from ..messages import Message, TextMessage, ToolCallMessage, ToolOutputMessage, output_text
from ..protocols.answer_activity import question_text
from ..protocols.answer_stage import call_mark, first_question
from ..protocols.api_request import ApiRequest
from ..stores import Saved
from .client_conversations import conversation_of_run, conversations_of_run
from .core import Server, is_id
from .decisions import decision_of, decisions_in, with_decision, without_actions
from .problem import Problem

__all__ = [
    "ContinuedConversation",
    "StoredConversation",
    "ask_again",
    "continuation_of",
    "load_stored",
    "messages_field",
]

_PAUSE, _LONGEST_WAIT = 0.05, 60.0  # seconds: between two looks at a run that has not ended, and in all
_CALL = re.compile(r"(?:call|toolu)_(?P<run>[A-Za-z0-9_-]{1,128})_[0-9a-f]{8}").fullmatch
_QUESTION = re.compile(r"\[approval (?P<run>[A-Za-z0-9_-]{1,128})\]\s*$")


class ContinuedConversation(NamedTuple):
    """The conversation that a request continues.

    Attributes:
        messages: the conversation before its input.
        input: the user's new messages; none, where they are the answer to a question.
        conversation: the id of the stored conversation among the messages, None if there is none.
        with_question: the messages of that conversation before the request took the answer to a question out of it, and its version
            now; None if it took none.
    """

    messages: list[Message]
    input: list[Message]
    conversation: str | None = None
    with_question: Saved | None = None


class StoredConversation(NamedTuple):
    """The stored conversation of a run that a request names, by its own id."""

    run_id: str
    id: str
    saved: Saved


async def continuation_of(
    server: Server, request: Request, api_request: ApiRequest, owner: str | None
) -> ContinuedConversation:
    """Return what a request of this owner continues.

    Raises:
        Problem: the previous response that it names does not exist, or may not be seen; or it has outputs of calls of a run that goes on.
        RequestError: it has outputs of some of the calls that wait, and not of others.
    """
    question = _question_in(api_request)
    stored = await _find(server, request, api_request, question, owner)
    if stored is None:
        return ContinuedConversation(api_request.history, api_request.input)
    if api_request.answers and await _wait_for_run(server, stored.run_id):
        return await continuation_of(server, request, api_request, owner)
    messages = stored.saved.messages
    answered = _with_outputs(stored, api_request)
    if answered is not None:
        return ContinuedConversation(answered, api_request.input, stored.id)
    confirmation = _undecided(messages) if api_request.input else None
    input_alone = api_request.previous_id is not None and not api_request.history
    if confirmation is not None and (input_alone or _shows(question, confirmation)):
        try:
            version = await server.store.asave(stored.id, without_actions(messages), stored.saved.version)
        except StaleVersionError:  # another request was first, or the run has ended at this very moment
            return await continuation_of(server, request, api_request, owner)
        decided = with_decision(messages, confirmation, decision_of(api_request.input))
        return ContinuedConversation(decided, [], stored.id, Saved(messages, version))
    if api_request.previous_id is None:
        return ContinuedConversation(api_request.history, api_request.input)
    return ContinuedConversation([*messages, *api_request.history], api_request.input, stored.id)


async def _wait_for_run(server: Server, run_id: str) -> bool:
    """Wait until a run has ended: beside a call of the client, the agent's own may still go on. Returns whether it had not ended.

    Raises:
        Problem: it takes too long.
    """
    deadline = anyio.current_time() + _LONGEST_WAIT
    has_waited = False
    while (record := await server.relay.aget(run_id)) is not None and not record.has_ended:
        if anyio.current_time() > deadline:
            raise Problem("conversation-busy", "The answer with these calls has not ended.")
        has_waited = True
        await anyio.sleep(_PAUSE)
    return has_waited


async def ask_again(server: Server, continuation: ContinuedConversation) -> None:
    """Let the question that a request has answered be open again, where its run did not begin."""
    id, before = continuation.conversation, continuation.with_question
    if id is not None and before is not None:
        with contextlib.suppress(StaleVersionError):  # another request was in between
            await server.store.asave(id, before.messages, before.version)


def messages_field(api_request: ApiRequest) -> str:
    """Return the name of the field of a request that has its messages."""
    return "input" if api_request.protocol == "openai_responses" else "messages"


# -- the stored conversation


async def _find(
    server: Server, request: Request, api_request: ApiRequest, question: re.Match[str] | None, owner: str | None
) -> StoredConversation | None:
    """Return the conversation of the run that a request names; None if there is none.

    Raises:
        Problem: there is none of the previous response that it names.
    """
    if api_request.previous_id is None:
        run_id = _run_of_calls(api_request) or ("" if question is None else question.group("run"))
        return await load_stored(server, request, run_id, conversations_of_run(run_id), owner)
    run_id = api_request.previous_id.removeprefix("resp_")
    stored = await load_stored(server, request, run_id, [conversation_of_run(run_id)], owner)
    if stored is None:
        text = f"There is no response {api_request.previous_id[:100]!r}."
        raise Problem("previous-response-not-found", text, extra={"path": "previous_response_id"})
    return stored


async def load_stored(
    server: Server, request: Request, run_id: str, ids: Sequence[str], owner: str | None
) -> StoredConversation | None:
    """Return the first of these conversations that exists, if it is this owner's and the request may see it."""
    for id in filter(is_id, ids):
        try:
            found = await server.find_conversation(request, id)
        except Problem:  # the client must not learn that it exists
            return None
        saved = None if found is None or found.conversation.owner != owner else await server.store.aload(id)
        if saved is not None:
            return StoredConversation(run_id, id, saved)
    return None


# -- outputs of the client's tools


def _run_of_calls(api_request: ApiRequest) -> str | None:
    """Return the id of the run that the outputs at the end of a request answer."""
    match = next(filter(None, (_CALL(answer.call_id) for answer in api_request.answers)), None)
    return None if match is None else match["run"]


def _with_outputs(stored: StoredConversation, api_request: ApiRequest) -> list[Message] | None:
    """Return the conversation with the request's outputs of the calls that wait, and then the rest of what is new in the request; None
    if it has no such output.

    Raises:
        RequestError: it has outputs of some of these calls, and not of others.
    """
    # Both by the ids that the client has, without their prefix, which is another in each API.
    pending = pending_in(stored.saved.messages).values()
    calls = {f"{stored.run_id}_{call_mark(one)}": one for one in pending if isinstance(one, ToolCallMessage)}
    names = {answer.call_id: answer.call_id.partition("_")[2] for answer in api_request.answers}
    outputs_of = {call_id: calls[name] for call_id, name in names.items() if name in calls}
    if not outputs_of:
        return None
    prefix = next(iter(outputs_of)).partition("_")[0]
    if missing := [f"{prefix}_{name}" for name in calls if name not in names.values()]:
        raise RequestError(messages_field(api_request), f"has no output of these open calls: {', '.join(missing)}")
    outputs: list[Message] = []
    rest: list[Message] = []
    for message in api_request.history:
        if message.role == "computer" and message.call_id in outputs_of:
            outputs.append(_output(message, outputs_of[message.call_id], len(outputs)))
        elif api_request.previous_id is not None:
            rest.append(message)
    return [*stored.saved.messages, *outputs, *rest]


def _output(message: Message, call: ToolCallMessage, number: int) -> Message:
    """Return a message of a call's output as one of its run."""
    id = f"{call.id}.output" + (f"-{number}" if number else "")
    of_call = {"call_id": call.call_id or call.id, "run_id": call.run_id, "step_id": call.step_id, "group": None}
    if not isinstance(message, ToolOutputMessage):
        return changed(message, id=id, **of_call)
    failed = message.metadata.get("error") is True
    content = output_text({"error": message.content}) if failed else message.content
    return changed(message, id=id, name=call.name, content=content, **of_call)


# -- the user's answer to a question


def _question_in(api_request: ApiRequest) -> re.Match[str] | None:
    """Return the question that the newest answer in a request's history ends with, if a message of the user follows it."""
    last = api_request.history[-1] if api_request.history else None
    is_text = isinstance(last, TextMessage) and last.role == "assistant"
    return _QUESTION.search(last.content) if is_text and last is not None and api_request.input else None


def _undecided(messages: Sequence[Message]) -> Confirmation | None:
    """Return the confirmation that the client was shown last and has not decided; None if there is none."""
    decided, pending = decisions_in(messages), pending_in(messages)
    undecided: Mapping[str, Confirmation] = {
        id: one for id, one in pending.items() if isinstance(one, Confirmation) and id not in decided
    }
    return first_question(undecided) if undecided else None


def _shows(question: re.Match[str] | None, confirmation: Confirmation) -> bool:
    """Whether a text ends with this very question, and so shows what would run: a model may write one that does not."""
    if question is None:
        return False
    shown = question_text(confirmation, question["run"])
    return "".join(question.string.split()).endswith("".join(shown.split()))
