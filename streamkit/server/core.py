"""What all endpoints of a server share: its settings, the authorization, and the look-up of runs and conversations."""

from __future__ import annotations

import inspect
import re
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import anyio
from starlette.requests import Request

from ..errors import SourceError, StoredDataError, UsageError
from ..relay import Relay, RunRecord
from ..stores import Conversation, Store
from .context import Context
from .problem import Problem
from .records import Run, run_of
from .runs import Runs

__all__ = ["Authorize", "Server", "is_id"]

_T = TypeVar("_T")
Authorize: TypeAlias = Callable[[Run | None, Request], bool | str | Awaitable[bool | str]]
"""Returns whether a request may do something with a run, which is None where there is none yet: True, False, or the name of
the user, who then owns what is created."""

_READER = "streamkit.reader"  # in the scope of a request that counts among the readers
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}").fullmatch


def is_id(value: str) -> bool:
    """Whether this can be the id of a run or of a conversation."""
    return _ID(value) is not None


class Server:
    """The parts of one app.

    Attributes:
        readers: how many streams are open.
    """

    def __init__(self, runs: Runs, *, authorize: Authorize | None, max_readers: int, expose_errors: bool) -> None:
        self.runs = runs
        self.relay: Relay = runs.relay
        self.store: Store = runs.store
        self.expose_errors = expose_errors
        self.max_readers = max_readers
        self.readers = 0
        self._authorize = authorize
        self._shared: weakref.WeakValueDictionary[tuple[object, ...], Any] = weakref.WeakValueDictionary()

    def shared(self, kind: type[_T], run_id: str, *options: object) -> _T:
        """What the readers of a run share who read it with the same options, for as long as there are any."""
        shared: _T = self._shared.setdefault((kind, run_id, *options), kind())
        return shared

    # -- readers

    def add_reader(self, request: Request) -> None:
        """Count a request among the readers, until its response is over. It is called before anything is changed for it, or
        waited for.

        Raises:
            Problem: there are too many.
        """
        if _READER in request.scope:
            return
        if self.readers >= self.max_readers:
            raise Problem("too-many-readers", "This process has as many readers as it may have.")
        request.scope[_READER] = True
        self.readers += 1

    def remove_reader(self, request: Request) -> None:
        """The response is over, or there was none."""
        if request.scope.pop(_READER, False):
            self.readers -= 1

    # -- authorization

    async def owner(self, request: Request) -> str | None:
        """The owner of what this request creates.

        Raises:
            Problem: it may not create anything.
        """
        allowed = await self._ask(None, request)
        if allowed is False:
            raise Problem("forbidden")
        return allowed if isinstance(allowed, str) else None

    async def may(self, run: Run | None, request: Request) -> bool:
        """Whether the request may see or change this run."""
        return await self._ask(run, request) is not False

    async def _ask(self, run: Run | None, request: Request) -> bool | str:
        if self._authorize is None:
            return True
        allowed: Any = self._authorize(run, request)
        if inspect.isawaitable(allowed):
            allowed = await allowed
        if allowed is True or allowed is False or isinstance(allowed, str):
            return allowed or False  # an empty name is that of nobody
        raise UsageError(f"`authorize` returns True, False or an owner's name, not {allowed!r}")

    # -- runs

    def run_of(self, record: RunRecord) -> Run:
        """The run as clients see it."""
        return run_of(record, expose=self.expose_errors)

    async def record(self, request: Request, run_id: str) -> RunRecord:
        """The record of a run that the request may see.

        Raises:
            Problem: there is no such run, or the request may not see it.
        """
        record = await self.relay.aget(run_id) if is_id(run_id) else None
        if record is None or not await self.may(self.run_of(record), request):
            raise Problem("run-not-found")
        await self.runs.go_on_if_answered(record)
        return record

    async def begun_record(self, run_id: str) -> RunRecord | None:
        """The record of a run, None if there is none. One that is only about to begin, which has no event yet, may still be
        refused: it is waited for, up to five seconds."""
        record = await self.relay.aget(run_id)
        for _ in range(250):
            if record is None or record.cursor is not None or record.status != "running":
                break
            await anyio.sleep(0.02)
            record = await self.relay.aget(run_id)
        return record

    async def visible_runs(
        self,
        request: Request,
        accepts: Callable[[RunRecord], bool],
        *,
        conversation: str | None,
        limit: int,
        before: str | None,
    ) -> tuple[list[Run], bool]:
        """Runs that the request may see, and whether there are more."""
        found: list[Run] = []
        while True:
            records = await self.relay.alist(conversation=conversation, limit=limit + 1, before=before)
            for record in records:
                if not accepts(record):
                    continue
                run = self.run_of(record)
                if not await self.may(run, request):
                    continue
                if len(found) == limit:
                    return found, True
                found.append(run)
            if len(records) <= limit:
                return found, False
            before = records[-1].id

    # -- conversations

    async def conversation(self, request: Request, id: str) -> Conversation:
        """A conversation that the request may see.

        Raises:
            Problem: there is no such conversation, or the request may not see it.
        """
        await self.owner(request)
        found = await self.store.aget(id) if is_id(id) else None
        if found is None or not await self.may_see(request, found):
            raise Problem("conversation-not-found")
        return found

    async def check_conversation(self, request: Request, id: str) -> None:
        """Refuse a conversation that exists and that the request may not go on with."""
        found = await self.store.aget(id)
        if found is not None and not await self.may_see(request, found):
            raise Problem("conversation-not-found")

    async def check_new_run(self, request: Request, context: Context) -> None:
        """As `check_conversation`, for a run that has tried to lock the conversation: meanwhile another may have created it."""
        found = await self.store.aget(context.conversation_id)
        is_new = found is None or (found.version == 0 and found.run == context.run_id and found.owner == context.owner)
        if found is not None and not is_new and not await self.may_see(request, found, besides=context.run_id):
            raise Problem("conversation-not-found")

    async def may_see(self, request: Request, conversation: Conversation, *, besides: str | None = None) -> bool:
        """Whether the request may see a conversation: whether it may see the run that holds it, or else its newest. The store
        has the owner even where the relay no longer has the run.

        Args:
            besides: the id of a run that does not count, because it only tries to begin.
        """
        if self._authorize is None:
            return True
        run = conversation.run
        holder = None if run is None or run == besides else await self.relay.aget(run)
        records = [holder, *await self.relay.alist(conversation=conversation.id, limit=2)]
        seen = next((one for one in records if one is not None and one.id != besides), None)
        return await self.may(_past_run(conversation) if seen is None else self.run_of(seen), request)

    async def open_run(self, conversation: Conversation | None) -> RunRecord | None:
        """The run of a conversation that has not ended; None if there is none."""
        if conversation is None or conversation.run is None:
            return None
        record = await self.relay.aget(conversation.run)
        if record is None or record.has_ended:
            return None
        await self.runs.go_on_if_answered(record)
        return record


def _past_run(conversation: Conversation) -> Run:
    """The newest run of a conversation, where the relay no longer has it."""
    return Run(
        id="",
        conversation=conversation.id,
        owner=conversation.owner,
        status="done",
        created_at=conversation.updated_at,
        ended_at=conversation.updated_at,
        cursor=None,
        finish_reason=None,
        usage=None,
        error=None,
        pending=[],
        metadata={},
    )


def relay_problem(error: SourceError) -> Problem:
    """The problem that clients receive when the relay or the store fails."""
    if isinstance(error, StoredDataError):
        return Problem("unreadable")
    match error.status_code:
        case 404:
            return Problem("run-not-found")
        case _:
            return Problem("relay-unavailable")
