"""What a request to a model's API goes on from: the conversation of the run whose answer it answers.

That conversation has what the client never saw: what the agent itself called, and what came of it. The request names the run, with
the ids of the client's calls, with the question that an answer ended with, or with `previous_response_id`. Where nothing is found, the
history in the request is the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

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
from .core import Server, is_id
from .decisions import decision_of, decisions_in, with_decision, without_actions
from .problem import Problem
from .turns import conversation_of_run, conversations_of_run

__all__ = ["Past", "past_of", "place_of"]

_CALL = re.compile(r"(?:call|toolu)_(?P<run>[A-Za-z0-9_-]{1,128})_[0-9a-f]{8}").fullmatch
_QUESTION = re.compile(r"\[approval (?P<run>[A-Za-z0-9_-]{1,128})\]\s*$")


class Past(NamedTuple):
    """What a request goes on from.

    Attributes:
        messages: the conversation before its input.
        input: what the user says; nothing, where that is the answer to a question.
        conversation: the id of the stored conversation among the messages, None if there is none.
    """

    messages: list[Message]
    input: list[Message]
    conversation: str | None = None


async def past_of(server: Server, request: Request, wanted: ApiRequest, owner: str | None) -> Past:
    """Return what a request of this owner goes on from.

    Raises:
        Problem: the response that it goes on from does not exist, or may not be seen.
        RequestError: it has outputs of some of the calls that wait, and not of others.
    """
    question = _question_in(wanted)
    if wanted.previous_id is not None:
        run_id = wanted.previous_id.removeprefix("resp_")
        found = await _load(server, request, [conversation_of_run(run_id)], owner)
        if found is None:
            text = f"There is no response {wanted.previous_id[:100]!r}."
            raise Problem("previous-response-not-found", text, extra={"path": "previous_response_id"})
    else:
        run_id = _run_of_calls(wanted) or ("" if question is None else question.group("run"))
        found = await _load(server, request, conversations_of_run(run_id), owner)
    if found is None:
        return Past(wanted.history, wanted.input)
    id, saved = found
    pending = pending_in(saved.messages)
    calls = {f"{run_id}_{call_mark(one)}": one for one in pending.values() if isinstance(one, ToolCallMessage)}
    if (answered := _with_outputs(saved.messages, calls, wanted)) is not None:
        return Past(answered, wanted.input, id)
    decided = decisions_in(saved.messages)
    undecided = {id: one for id, one in pending.items() if isinstance(one, Confirmation) and id not in decided}
    if undecided and wanted.input:
        asked = first_question(undecided)
        if (wanted.previous_id is not None and not wanted.history) or _shows(question, asked):
            try:
                await server.store.asave(id, without_actions(saved.messages), saved.version)
            except StaleVersionError:  # another request was first, or the run has ended at this very moment
                return await past_of(server, request, wanted, owner)
            return Past(with_decision(saved.messages, asked, decision_of(wanted.input)), [], id)
    if wanted.previous_id is None:
        return Past(wanted.history, wanted.input)
    return Past([*saved.messages, *wanted.history], wanted.input, id)


def place_of(wanted: ApiRequest) -> str:
    """Return the field of a request that has its messages."""
    return "input" if wanted.protocol == "openai_responses" else "messages"


async def _load(server: Server, request: Request, ids: Sequence[str], owner: str | None) -> tuple[str, Saved] | None:
    """Return the first of these conversations that exists, if the request may go on from it."""
    for id in filter(is_id, ids):
        try:
            found = await server.find_conversation(request, id)
        except Problem:  # that it may not be seen is not to be seen
            return None
        saved = None if found is None or found.conversation.owner != owner else await server.store.aload(id)
        if saved is not None:
            return id, saved
    return None


# -- outputs of the client's tools


def _run_of_calls(wanted: ApiRequest) -> str | None:
    """Return the run that the outputs at the end of a request answer."""
    named = next(filter(None, (_CALL(answer.call_id) for answer in wanted.answers)), None)
    return None if named is None else named["run"]


def _with_outputs(
    messages: Sequence[Message], calls: Mapping[str, ToolCallMessage], wanted: ApiRequest
) -> list[Message] | None:
    """Return the conversation with the outputs of the calls that wait, and then the rest of what is new in the request; None
    if it answers none of them.

    Args:
        calls: those that wait, by the ids that the client has, without what these begin with.

    Raises:
        RequestError: it does not answer all of them.
    """
    answers = {answer.call_id: answer.call_id.partition("_")[2] for answer in wanted.answers}
    given = {id: name for id, name in answers.items() if name in calls}
    if not given:
        return None
    prefix = next(iter(given)).partition("_")[0]
    if missing := [f"{prefix}_{name}" for name in calls if name not in given.values()]:
        raise RequestError(place_of(wanted), f"has no output of these open calls: {', '.join(missing)}")
    named: list[Message] = []
    rest: list[Message] = []
    for message in wanted.history:
        if message.role == "computer" and message.call_id in given:
            named.append(_output(message, calls[given[message.call_id]], len(named)))
        elif wanted.previous_id is not None:
            rest.append(message)
    return [*messages, *named, *rest]


def _output(message: Message, call: ToolCallMessage, number: int) -> Message:
    """Return a message of a call's output as one of its run."""
    id = f"{call.id}.output" + (f"-{number}" if number else "")
    of_call = {"call_id": call.call_id or call.id, "run_id": call.run_id, "step_id": call.step_id, "group": None}
    if not isinstance(message, ToolOutputMessage):
        return changed(message, id=id, **of_call)
    failed = message.metadata.get("error") is True
    content = output_text({"error": message.content}) if failed else message.content
    return changed(message, id=id, name=call.name, content=content, **of_call)


# -- what the user says to a question


def _question_in(wanted: ApiRequest) -> re.Match[str] | None:
    """Return the question that the newest answer of a request's history ends with, where the user has said something to it."""
    last = wanted.history[-1] if wanted.history else None
    is_text = isinstance(last, TextMessage) and last.role == "assistant"
    return _QUESTION.search(last.content) if is_text and last is not None and wanted.input else None


def _shows(question: re.Match[str] | None, confirmation: Confirmation) -> bool:
    """Whether a text ends with this very question, and so shows what would run: a model may write one that does not."""
    if question is None:
        return False
    shown = question_text(confirmation, question["run"])
    return "".join(question.string.split()).endswith("".join(shown.split()))
