"""The core of a server, for all endpoints: its settings, the authorization, and the look-up of runs and
conversations."""

from __future__ import annotations

import inspect
import re
import time
import weakref
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..errors import SourceError, StoredDataError, UsageError
from ..relay import Relay, RunRecord
from ..relay.run_record import FINAL
from ..stores import Conversation, Store
from .problem import Problem
from .records import Context, Run, conversation_of, run_of
from .response import JsonResponse
from .runs import Runs

__all__ = ["Authorize", "FoundConversation", "Page", "Server", "is_id", "list_response"]

_T = TypeVar("_T")
Authorize: TypeAlias = Callable[[Run | None, Request], bool | str | Awaitable[bool | str]]
"""Returns whether a request may do something with a run, which is None where there is none yet: True, False, or the name of
the user, who then owns what is created."""

_READER = "streamkit.reader"  # in the scope of a request that counts among the readers
_MOST_LOOKED_AT = 1000  # entries of a list, for one request
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}").fullmatch


def is_id(value: str) -> bool:
    """Whether this can be the id of a run or of a conversation."""
    return _ID(value) is not None


class Server:
    """The parts of one app.

    Attributes:
        readers: how many streams are open.
    """

    def __init__(
        self, runs: Runs, *, authorize: Authorize | None, max_readers: int, max_owner_runs: int, expose_errors: bool
    ) -> None:
        self.runs = runs
        self.relay: Relay = runs.relay
        self.store: Store = runs.store
        self.expose_errors = expose_errors
        self.max_readers = max_readers
        self.max_owner_runs = max_owner_runs
        self.readers = 0
        self._next_check = 0.0  # of the relay, on the monotonic clock
        self._failure: SourceError | None = None  # of the last one
        self._authorize = authorize
        self._shared: weakref.WeakValueDictionary[tuple[object, ...], Any] = weakref.WeakValueDictionary()

    def shared(self, kind: type[_T], run_id: str, *options: object) -> _T:
        """Return the object that the readers of a run share who read it with the same options, for as long as there are
        any."""
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

    # -- the relay

    async def check_relay(self) -> None:
        """Find out whether the relay can be reached. Anybody may cause this, so it is asked once a second at most.

        Raises:
            Problem: it cannot.
        """
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + 1.0
            try:
                await self.relay.alist(limit=1)
                self._failure = None
            except SourceError as error:
                self._failure = error
        if self._failure is not None:
            raise Problem("relay-unavailable") from self._failure

    # -- authorization

    async def owner(self, request: Request) -> str | None:
        """Return the owner of what this request creates.

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
        """Return the run as clients see it."""
        return run_of(record, expose=self.expose_errors)

    async def record(self, request: Request, run_id: str) -> RunRecord:
        """Return the record of a run that the request may see.

        Raises:
            Problem: there is no such run, or the request may not see it.
        """
        record = await self.relay.aget(run_id) if is_id(run_id) else None
        if record is None or not await self.may(self.run_of(record), request):
            raise Problem("run-not-found")
        await self.runs.go_on_if_answered(record)
        return record

    async def begun_record(self, run_id: str) -> RunRecord | None:
        """Return the record of a run, None if there is none. One that is only about to begin, which has no event yet,
        may still be refused: it is waited for, up to five seconds."""
        record = await self.relay.aget(run_id)
        for _ in range(250):
            if record is None or record.cursor is not None or record.status != "in_progress":
                break
            await anyio.sleep(0.02)
            record = await self.relay.aget(run_id)
        return record

    async def check_owner(self, owner: str | None) -> None:
        """Refuse another run of an owner who has too many open ones.

        Raises:
            Problem: there are too many.
        """
        most = self.max_owner_runs
        if owner is None or await self.relay.acount_open(owner) < most:
            return
        if len(await self.relay.alist(owner=owner, open_only=True, limit=most)) >= most:  # the count may be too high
            raise Problem("too-many-runs", f"You have {most} open runs, as many as you may have.")

    async def visible_runs(
        self, request: Request, *, status: str | None, conversation: str | None, limit: int, before: str | None
    ) -> Page:
        """Return the newest runs that the request may see, with this status if one is given."""
        owner = await self.owner(request)
        options = {
            "conversation": conversation,
            "owner": owner if conversation is None else None,
            "open_only": status is not None and status not in FINAL,
        }

        async def shown(records: Sequence[RunRecord]) -> Sequence[Run | None]:
            runs = [self.run_of(record) if status in (None, record.status) else None for record in records]
            return [run if run is not None and await self.may(run, request) else None for run in runs]

        return await _page(partial(self.relay.alist, **options), shown, limit, before)

    # -- conversations

    async def visible_conversations(self, request: Request, *, limit: int, before: str | None) -> Page:
        """Return the conversations that the request may see, the last updated first."""
        owner = await self.owner(request)

        async def shown(found: Sequence[Conversation]) -> Sequence[dict[str, Any] | None]:
            locked = [one for one in found if one.run is not None]
            records = await self.relay.aget_many([one.run for one in locked if one.run is not None]) if locked else ()
            holders = {one.id: record for one, record in zip(locked, records, strict=True)}
            may = [await self._may_see(request, one, holders.get(one.id)) for one in found]
            return [
                conversation_of(one, _open(holders.get(one.id))) if allowed else None
                for one, allowed in zip(found, may, strict=True)
            ]

        return await _page(partial(self.store.alist, owner=owner), shown, limit, before)

    async def conversation(self, request: Request, id: str) -> FoundConversation:
        """Return a conversation that the request may see.

        Raises:
            Problem: there is no such conversation, or the request may not see it.
        """
        await self.owner(request)
        found = await self.find_conversation(request, id) if is_id(id) else None
        if found is None:
            raise Problem("conversation-not-found")
        return found

    async def find_conversation(
        self, request: Request, id: str, *, besides: str | None = None
    ) -> FoundConversation | None:
        """Return a conversation; None if there is none.

        Args:
            besides: the id of a run that does not count, because it only tries to begin.

        Raises:
            Problem: the request may not see it.
        """
        found = await self.store.aget(id)
        if found is None:
            return None
        holder = await self.relay.aget(found.run) if found.run not in (None, besides) else None
        if not await self._may_see(request, found, holder):
            raise Problem("conversation-not-found")
        run = _open(holder)
        if run is not None:
            await self.runs.go_on_if_answered(run)
        return FoundConversation(found, run)

    async def check_new_run(self, request: Request, context: Context) -> None:
        """Refuse a run that has tried to lock a conversation which another may have created meanwhile.

        Raises:
            Problem: the request may not go on with it.
        """
        found = await self.store.aget(context.conversation_id)
        is_new = found is None or (found.version == 0 and found.run == context.run_id and found.owner == context.owner)
        if not is_new:
            await self.find_conversation(request, context.conversation_id, besides=context.run_id)

    async def _may_see(self, request: Request, conversation: Conversation, holder: RunRecord | None) -> bool:
        """Whether the request may see a conversation: the run that holds it, or else the store, has its owner."""
        return await self.may(_past_run(conversation) if holder is None else self.run_of(holder), request)


class FoundConversation(NamedTuple):
    """A conversation, and its run that has not ended; None if there is none."""

    conversation: Conversation
    run: RunRecord | None


class Page(NamedTuple):
    """A part of a list: what is shown of it, and the id after which the next part begins; None if this is the last one."""

    found: list[Any]
    next: str | None


def list_response(name: str, page: Page) -> Response:
    """Return the response with a part of a list."""
    more: dict[str, Any] = {"more": False} if page.next is None else {"more": True, "next": page.next}
    return JsonResponse({name: msgspec.to_builtins(page.found), **more})


async def _page(
    fetch: Callable[..., Any], shown: Callable[[Any], Awaitable[Any]], limit: int, before: str | None
) -> Page:
    """Up to `limit` entries of a list that are to be shown.

    Args:
        fetch: returns entries, with `limit` and `before`.
        shown: returns what is shown of each of these entries, None where it is not to be seen.
    """
    found: list[Any] = []
    looked_at = 0
    while looked_at < _MOST_LOOKED_AT:
        entries = await fetch(limit=limit + 1, before=before)
        for entry, one in zip(entries, await shown(entries), strict=True):
            if one is not None and len(found) == limit:
                return Page(found, before)
            found += [] if one is None else [one]
            before = entry.id
        if len(entries) <= limit:
            return Page(found, None)
        looked_at += len(entries)
    return Page(found, before)


def _open(record: RunRecord | None) -> RunRecord | None:
    return None if record is None or record.has_ended else record


def _past_run(conversation: Conversation) -> Run:
    """Return the newest run of a conversation, where the relay no longer has it."""
    return Run(
        id="",
        conversation=conversation.id,
        owner=conversation.owner,
        status="completed",
        created_at=conversation.updated_at,
        ended_at=conversation.updated_at,
        cursor=None,
        finish_reason=None,
        model=None,
        usage=None,
        error=None,
        pending=[],
        metadata={},
    )


def relay_problem(error: SourceError) -> Problem:
    """Return the problem that clients receive when the relay or the store fails."""
    if isinstance(error, StoredDataError):
        return Problem("unreadable")
    match error.status_code:
        case 404:
            return Problem("run-not-found")
        case _:
            return Problem("relay-unavailable")
