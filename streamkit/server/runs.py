"""The runs that this process produces: begun, taken over, and left at shutdown."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel

from ..errors import SourceError, StaleVersionError, StreamkitError
from ..protocols.values import is_list, is_object
from ..relay import LogWriter, Relay, RunRecord
from ..stores import Store
from ..streams.tasks import start_soon
from .client_conversations import ClientConversations
from .execution import AgentExecution
from .heartbeat import Heartbeat, WatchedExecution
from .problem import Problem
from .records import AG_UI, Context, client_of

__all__ = ["DEFAULT_PAUSE", "Runs"]

log = logging.getLogger("streamkit.server")

_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
_SHUTDOWN = 10.0  # seconds that runs get


class _Default(float):
    """A default, which differs from the same number that an application passes."""


DEFAULT_PAUSE = _Default(300.0)


class Runs:
    """The executions of this process, by their runs' ids.

    Attributes:
        active: the executions that have not ended.
        turns: removes the conversations of clients of model APIs.
    """

    def __init__(
        self,
        factory: Callable[[Context], Any],
        relay: Relay,
        store: Store,
        *,
        max_runs: int,
        max_owner_runs: int,
        pause_after: float | None,
    ) -> None:
        self.factory = factory
        self.relay = relay
        self.store = store
        self.client_conversations = ClientConversations(store, relay, max_owner_runs)
        self.active: dict[str, AgentExecution] = {}
        self.heartbeat = Heartbeat(self)
        self._max_runs = max_runs
        self._beginning = 0
        self._pause_after = pause_after
        self._is_shut_down = False

    # -- for executions

    def pause_of(self, agent: Any) -> float | None:
        """For how many seconds this agent waits before its run is paused; None for no limit, which is the default for an
        agent with a computer: what the computer has in memory would be lost."""
        if isinstance(self._pause_after, _Default) and agent.computer is not None:
            return None
        return self._pause_after

    def tools_of(self, context: Context) -> Iterable[Mapping[str, Any]]:
        """Return the tools that the client itself runs. Any client may send this metadata: what is not a tool is left out,
        and so is a second one of the same name."""
        if context.client is not None:
            return context.client.tools
        sent = context.metadata.get(AG_UI)
        tools = sent.get("tools") if is_object(sent) else None
        found: dict[str, Mapping[str, Any]] = {}
        for tool in tools if is_list(tools) else ():
            if not is_object(tool) or not isinstance(name := tool.get("name"), str):
                continue
            description, parameters = tool.get("description"), tool.get("parameters")
            found.setdefault(
                name,
                {
                    "name": name,
                    "description": description if isinstance(description, str) else "",
                    "parameters": parameters if is_object(parameters) and parameters else _NO_PARAMETERS,
                },
            )
        return found.values()

    def remove(self, execution: WatchedExecution) -> None:
        """Forget an execution that has ended or is paused."""
        if self.active.get(execution.run_id) is execution:
            del self.active[execution.run_id]
        if not self.active:
            self.heartbeat.rest()

    # -- beginning

    def check_room(self) -> None:
        """Refuse another run where there are too many. Those that wait for answers do not count."""
        running = sum(one.waits_since is None for one in [*self.active.values()])
        if running + self._beginning >= self._max_runs:
            raise Problem("too-many-runs", "This process has as many open runs as it may have.")

    async def begin(self, context: Context, info: Mapping[str, Any], check: Callable[[], Awaitable[None]]) -> None:
        """Begin a run: its input is saved, and the agent runs from here on by itself.

        Args:
            check: refuses a conversation that the request may not go on with. It is called when nobody else can create it
                any more.

        Raises:
            UsageError: the relay has this run already.
            Problem: the conversation is another's, or has another open run, or there are too many.
        """
        self.check_room()
        self._beginning += 1  # before anything is waited for
        try:
            await self._begin(context, info, check)
        finally:
            self._beginning -= 1

    async def _begin(self, context: Context, info: Mapping[str, Any], check: Callable[[], Awaitable[None]]) -> None:
        execution = AgentExecution(self, context)
        writer = await self.relay.aopen(context.run_id, info, control=execution.receive)
        try:
            holder = await self._lock(context)
            await check()
            if holder != context.run_id:
                raise Problem("conversation-busy", "The conversation has an open run.", extra={"run": holder})
            await execution.conversation.add_input()
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await self._undo(context, writer)
            if isinstance(error, StaleVersionError):  # it was rolled back or deleted at this very moment
                raise Problem("conversation-busy", "The conversation was changed meanwhile.") from None
            raise
        self.active[context.run_id] = execution
        execution.begin(writer)
        self.heartbeat.wake()

    async def _undo(self, context: Context, writer: LogWriter) -> None:
        """Remove a run that could not begin; where that fails too, it ends at least, and does not seem to run."""
        try:
            await self.relay.adelete(context.run_id)
        except SourceError:
            await writer.aend("cancelled")
        finally:
            await self.store.aunlock(context.conversation_id, context.run_id)

    async def _lock(self, context: Context) -> str:
        """Lock the conversation for this run. The lock of a run that has ended is taken from it. Returns the run that has
        it now."""
        id, run_id, owner = context.conversation_id, context.run_id, context.owner
        holder = await self.store.alock(id, run_id, owner=owner)
        if holder != run_id:
            record = await self.relay.aget(holder)
            if record is None or record.has_ended:
                holder = await self.store.alock(id, run_id, instead_of=holder, owner=owner)
        return holder

    # -- going on with runs that others began

    async def go_on(self, run_id: str) -> None:
        """See to it that a run goes on that was answered: it is taken over now if it is paused, and else later if its producer
        turns out to have died."""
        if await self.take_over(run_id) or run_id in self.active:
            return
        token = anyio.lowlevel.current_token().native_token
        self.heartbeat.watch(run_id, partial(self.take_over_soon, run_id, token))

    async def go_on_if_answered(self, record: RunRecord) -> None:
        """Go on with a paused run whose questions are all answered: the process that took the answer has died, too."""
        if record.status == "paused" and all(one["status"] != "pending" for one in record.questions.values()):
            await self.take_over(record.id)

    def take_over_soon(self, run_id: str, token: Any) -> None:
        """As `take_over`, from any thread, unless the app is shutting down; the token is that of an event loop."""

        async def take_over() -> None:
            try:
                await self.take_over(run_id)
            except Exception as error:
                log.error("run %s cannot be taken over: %s", run_id, error, exc_info=error)

        if not self._is_shut_down:
            start_soon(take_over, token)

    async def take_over(self, run_id: str) -> bool:
        """Go on with a run that is paused. Returns whether this process became its producer."""
        own = self.active.get(run_id)
        if own is not None and not own.is_elsewhere:
            return False  # its lease only seems to be over, where the process was stopped or very slow
        record = await self.relay.aget(run_id)
        if record is None or record.status != "paused" or record.cancel is not None:
            return False
        conversation_id = str(record.info.get("conversation"))
        if await self.store.aget(conversation_id) is None:
            return False  # there is nothing to go on from
        context = Context(
            run_id=run_id,
            conversation_id=conversation_id,
            messages=[],
            input=[],
            metadata=_metadata_in(record.info),
            owner=record.info.get("owner"),
            client=client_of(record.info),
        )
        execution = AgentExecution(self, context)
        writer = await self.relay.atake_over(run_id, control=execution.receive)
        if writer is None:
            return False
        self.active[run_id] = execution
        try:
            return await self._resume(execution, writer)
        except BaseException:
            self.remove(execution)
            with anyio.CancelScope(shield=True):
                await writer.apause()
            raise

    async def _resume(self, execution: AgentExecution, writer: LogWriter) -> bool:
        """Go on with a run that was taken over. False if that is not possible."""
        if writer.busy or not await execution.conversation.take_over():
            self.remove(execution)  # busy: another one took it over at the same moment, and died at work
            writer.abandon()
            return False
        await self.relay.in_task(execution.take_over, writer)
        execution.resume()
        self.heartbeat.wake()
        return True

    # -- the end

    def shutdown(self, timeout: float = _SHUTDOWN) -> None:
        """Leave all runs: those that wait for an answer are paused, others end as cancelled, by force if they take longer."""
        self._is_shut_down = True
        executions = [*self.active.values()]
        for execution in executions:
            if execution.waits_since is not None:
                execution.pause()
            else:
                execution.cancel()
        end = time.monotonic() + timeout
        for execution in executions:
            if not execution.ended.wait(max(0.0, end - time.monotonic())) and execution.publisher is not None:
                try:
                    execution.publisher.end("cancelled")
                except StreamkitError:
                    continue  # another process has the run by now


def _metadata_in(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `Context.metadata` of a run."""
    ag_ui = {AG_UI: info[AG_UI]} if info.get(AG_UI) is not None else {}
    return {**(info.get("metadata") or {}), **ag_ui}
