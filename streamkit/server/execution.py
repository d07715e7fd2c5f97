"""One run that this process produces, apart from the requests that began it, read it and answer it.

An `AsyncAgent` runs in a task, an `Agent` in a thread. Its conversation is saved at each step's end and before each question,
so that another process can go on from there.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import anyio
import anyio.lowlevel
import anyio.to_thread

from ..agent import Agent, AsyncAgent
from ..agent.actions import reopen_calls
from ..agent.code import CODE_TOOL
from ..answers import Confirmation
from ..errors import ProducerFenced, RequestError, StaleVersionError, UsageError
from ..events import (
    Event,
)
from ..handlers import AsyncEventHandler, EventHandler
from ..messages import Message
from ..relay import Answered, Cancelled, Control, Fenced, LogWriter
from ..relay.registry import value_of
from ..streams.tasks import scheduler, start_task
from .agent_events import goes_on_after, is_before_wait, question_in
from .api_client import ClientOfApi
from .heartbeat import ProcessRuns
from .publisher import Publisher
from .records import AG_UI, Context
from .saved_conversation import SavedConversation, not_shown_again

__all__ = ["AgentExecution"]

log = logging.getLogger("streamkit.server")

_LONGEST = 7 * 86_400.0  # seconds that a question waits; a paused run is kept for as long
_PATIENCE = 60.0  # seconds to wait until the relay knows that the agent acts on an answer


class AgentExecution:
    """A run and its agent.

    Args:
        runs: the runs of this process.
        context: the run that the agent is made for. Its `messages` are the conversation.

    Attributes:
        conversation: in the store.
        waits_since: when the agent began to wait for answers, on the monotonic clock; None while it does not wait.
        pause_after: for how many seconds it may wait; None for no limit.
    """

    def __init__(self, runs: ProcessRuns, context: Context) -> None:
        self.context = context
        self.conversation = SavedConversation(runs.store, context)
        self.publisher: Publisher | None = None
        self.waits_since: float | None = None
        self.pause_after: float | None = None
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._token = anyio.lowlevel.current_token().native_token  # of the event loop
        self._making = anyio.CancelScope()  # around the factory, which may hang
        self._runs = runs
        self._client = None if context.client is None else ClientOfApi(context.client)
        self._agent: Any = None
        self._stream: Any = None
        self._is_cancelled = self._is_elsewhere = False

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.context.run_id

    @property
    def messages(self) -> Sequence[Message]:
        """The messages of its agent."""
        messages: Sequence[Message] = self._agent.messages
        return messages

    @property
    def is_elsewhere(self) -> bool:
        """Whether the run is no longer this process's: it was paused, or another one has taken it over."""
        return self._is_elsewhere

    # -- from the relay, in any thread

    def receive(self, control: Control) -> None:
        """Receive an answer, a cancellation, or the loss of the run."""
        match control:
            case Answered(question=id, answer=answer):
                self._answer(id, answer)
            case Cancelled() | Fenced():
                self.cancel()
            case _:
                pass  # readers may come back: the question waits

    def _answer(self, id: str, answer: Mapping[str, Any]) -> None:
        waiting = None if self._stream is None else self._stream.pending.get(id)
        slot = None if waiting is None else waiting.answer_slot
        if slot is None:
            return  # the agent has not asked again yet; when it does, the relay sends the answer once more
        with self._lock:
            if self._is_elsewhere:
                return  # the process that takes the run over receives it
            self.waits_since = None
        slot.offer(value_of(answer))

    def cancel(self) -> None:
        """Stop the agent, without waiting for its end."""
        self._is_cancelled = True
        if self._stream is not None:
            self._stream.cancel()
        elif self._agent is None:
            scheduler(self._token)(self._making.cancel)

    def pause(self) -> None:
        """Leave the run to the process that takes it over."""
        publisher = self.publisher
        with self._lock:
            if publisher is None or self.waits_since is None:
                return
            self._is_elsewhere = True
        try:
            publisher.pause()
        finally:
            self.cancel()
        record = self._runs.relay.get(self.run_id)
        pending = {} if record is None else record.questions
        if any(pending[id]["status"] != "pending" for id in publisher.open_questions if id in pending):
            self._runs.take_over_soon(self.run_id, self._token)  # an answer came at this very moment

    # -- its course

    def begin(self, writer: LogWriter) -> None:
        """Begin a new run, in a task of the present event loop."""
        context = self.context
        self.publisher = self._publisher(writer)
        self.publisher.begin(context.input)
        start_task(self._execute, self._is_over)

    def take_over(self, writer: LogWriter) -> None:
        """Become the producer of a paused run: read its log so far. `resume` then starts the agent."""
        self.publisher = self._publisher(writer)
        self.publisher.continue_from(self._runs.relay)

    def _publisher(self, writer: LogWriter) -> Publisher:
        forgets = {AG_UI}.intersection(self.context.metadata)
        return Publisher(self.run_id, writer, self._runs.relay.limit, forgets)

    def resume(self) -> None:
        """Start the agent of a run that was taken over, in a task of the present event loop."""
        start_task(self._execute, self._is_over)

    def _is_over(self) -> None:
        if self._agent is None or isinstance(self._agent, AsyncAgent):
            self._remove()

    def _remove(self) -> None:
        self.ended.set()
        self._runs.remove(self)

    async def _execute(self) -> None:
        error: BaseException | None = None
        try:
            with self._making:
                self._agent = await self._make_agent()
                self._prepare()
        except BaseException as raised:
            self._agent, error = None, raised
            if _is_of_the_loop(raised):
                self._end("cancelled", None)
                raise
        if self._agent is None:
            await _in_thread(self._end, "cancelled" if error is None else "failed", error)
        elif isinstance(self._agent, AsyncAgent):
            await self._run_in_task()
        else:
            threading.Thread(target=self._run_in_thread, name=f"streamkit-run-{self.run_id}", daemon=True).start()

    async def _make_agent(self) -> Agent | AsyncAgent:
        factory = self._runs.factory
        if inspect.iscoroutinefunction(factory):
            made = factory(self.context)
        else:
            made = await _in_thread(factory, self.context, can_be_left=True)
        if inspect.isawaitable(made):
            made = await made
        if not isinstance(made, Agent | AsyncAgent):
            raise UsageError(f"the server's factory returns an Agent or an AsyncAgent, not {made!r}")
        agent: Agent | AsyncAgent = cast("Any", made)
        return agent

    def _prepare(self) -> None:
        agent, messages = self._agent, self.context.messages
        agent.messages = [*messages]
        self.pause_after = self._runs.pause_of(agent)
        own = {*agent.tools, *agent.toolbox.application_tools, *([CODE_TOOL] if agent.computer is not None else [])}
        for tool in self._runs.tools_of(self.context):
            if tool["name"] not in own or self._client is not None:
                agent.add_tool(tool)
        if self._client is not None:
            self._client.prepare(agent)
        if not self.context.input and self._client is None:
            # Taken over while it waited: the agent may not have come to all calls of its answer.
            reopen_calls(agent.messages, agent.executes)

    def _run_in_thread(self) -> None:
        error: BaseException | None = None
        try:
            with self._begin_stream(_Publishing(self)) as stream:
                stream.until_done()
        except BaseException as raised:  # an exception that ends the thread ends the run
            error = raised
        try:
            self._end(self._status, error)
        finally:
            self._remove()

    async def _run_in_task(self) -> None:
        error: BaseException | None = None
        try:
            async with self._begin_stream(_AsyncPublishing(self)) as stream:
                await stream.until_done()
        except BaseException as raised:
            if _is_of_the_loop(raised):
                if self.waits_since is not None:
                    self.pause()
                self._end("cancelled", None)
                raise
            error = raised
        await _in_thread(self._end, self._status, error)

    def _begin_stream(self, handler: Any) -> Any:
        stream = self._agent.stream(self.context.input or None, handler)
        earlier = self.context.messages
        stream.engine.messages.reserve(earlier if self.context.input else not_shown_again(earlier))
        stream.on_wait = self._on_wait
        stream.before_actions = self._begin_actions
        self._stream = stream
        if self._is_cancelled:
            stream.cancel()
        return stream

    def _on_wait(self) -> None:
        assert self.publisher is not None
        if self.publisher.open_questions:
            self.publisher.report_waiting()
            self.waits_since = time.monotonic()
            self._runs.heartbeat.wake()

    @property
    def _status(self) -> str:
        return "cancelled" if self._is_cancelled else "failed" if self._stream is None else self._stream.status

    # -- events

    def is_first_action(self, event: Event) -> bool:
        """Whether the agent goes on with this event, after it did nothing but wait. (`_begin_actions` is called for its tools.)"""
        return not self._is_elsewhere and not self._writer.busy and goes_on_after(event)

    def go_on(self, timeout: float = _PATIENCE) -> None:
        """Make sure that the run is still this process's, and record that it does not merely wait any more. Up to here another
        process may have acted on the answers, where this one was stopped for a while; from here on none will.

        Raises:
            ProducerFenced: the run is another producer's, or has ended.
        """
        with self._lock:
            if self._is_elsewhere:
                raise ProducerFenced(f"run {self.run_id!r} is another producer's: it was paused", "epoch")
            self.waits_since = None  # from here on it cannot be paused
        try:
            self._writer.busy = True
            self._writer.flush(timeout)
        except ProducerFenced:
            self._is_elsewhere = True
            raise

    async def ago_on(self) -> None:
        """As `go_on`, for tasks."""
        await self._runs.relay.in_task(self.go_on)

    def _begin_actions(self) -> None:
        """Record that tools or code are about to run in this thread: in the conversation, and then in the relay."""
        try:
            self.conversation.save(self._agent.messages)
        except StaleVersionError:
            self.go_on()  # which raises where another producer has the run
            raise
        if not self._writer.busy:
            self.go_on()

    @property
    def _writer(self) -> LogWriter:
        assert self.publisher is not None
        return self.publisher.log

    def must_save(self, event: Event) -> bool:
        """Whether the conversation is to be saved before this event is published. While the agent waits, or asks again in the
        place of another producer, there is nothing new."""
        if self._is_elsewhere or self._is_cancelled or not self._writer.busy:
            return False
        return is_before_wait(event, self._stream.pending)

    def publish(self, event: Event) -> None:
        """Publish an event of the agent's stream. A question waits for an answer from anywhere."""
        assert self.publisher is not None
        if self._is_elsewhere:
            return
        self.waits_since = None  # it goes on, even if the answer came before it began to wait
        waiting = question_in(event)
        if self._client is None and waiting is not None and waiting.waiting:
            waiting.defer(_LONGEST)
        elif self._client is not None and isinstance(waiting, Confirmation) and waiting.waiting:
            self._client.decide(waiting)
        self.publisher.publish(event)

    # -- its end

    def _end(self, status: str, error: BaseException | None) -> None:
        """Save the conversation, and end the run. The conversation is unlocked before readers receive the end."""
        publisher = self.publisher
        assert publisher is not None
        if self._is_elsewhere:
            return
        if error is not None:
            log.error("%s: run %s failed", publisher.instance, self.run_id, exc_info=error)
        try:
            if not self._writer.busy:
                self.go_on(5.0)
            if self._agent is not None:
                self.conversation.save(self._agent.messages)
        except ProducerFenced:  # another producer has the run by now, and saves the conversation
            return
        except StaleVersionError as stale:  # the conversation was deleted
            log.info("run %s: %s", self.run_id, stale)
        except Exception as failure:
            log.error("%s: run %s cannot be saved", publisher.instance, self.run_id, exc_info=failure)
            error = error or failure
        try:
            self.conversation.unlock()
            if self._client is not None:
                self._runs.client_conversations.end(self.context, status if error is None else "failed")
        except Exception as failure:  # the lock of a run that is over counts for nothing
            log.error("%s: run %s keeps its lock", publisher.instance, self.run_id, exc_info=failure)
        summary = None if error is None else {"type": type(error).__name__, "message": str(error)}
        if summary is not None and isinstance(error, RequestError):
            summary["path"] = error.path
        publisher.end(status, summary)
        if self._client is not None:
            self._runs.client_conversations.look()


class _Publishing(EventHandler):
    """Publishes the events of an `Agent`."""

    def __init__(self, execution: AgentExecution) -> None:
        self._execution = execution

    def on_event(self, event: Event) -> None:
        if self._execution.is_first_action(event):
            self._execution.go_on()
        if self._execution.must_save(event):
            self._execution.conversation.save(self._execution.messages)
        self._execution.publish(event)


class _AsyncPublishing(AsyncEventHandler):
    """Publishes the events of an `AsyncAgent`."""

    def __init__(self, execution: AgentExecution) -> None:
        self._execution = execution

    async def on_event(self, event: Event) -> None:
        if self._execution.is_first_action(event):
            await self._execution.ago_on()
        if self._execution.must_save(event):
            await _in_thread(self._execution.conversation.save, self._execution.messages)
        self._execution.publish(event)


def _is_of_the_loop(error: BaseException) -> bool:
    """Whether this ends the event loop, and not the run alone: a tool that calls `sys.exit` ends its run."""
    return isinstance(error, (anyio.get_cancelled_exc_class(), KeyboardInterrupt, GeneratorExit))


async def _in_thread(function: Callable[..., Any], *arguments: Any, can_be_left: bool = False) -> Any:
    """Call a function in a thread of its own: those that hang, all threads of the event loop even, do not hold it up."""
    limiter = anyio.CapacityLimiter(1)
    return await anyio.to_thread.run_sync(function, *arguments, abandon_on_cancel=can_be_left, limiter=limiter)
