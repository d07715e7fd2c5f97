"""openai's `AssistantEventHandler` on any stream: the same name, hooks and types."""

from __future__ import annotations

import inspect
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import openai
from openai.types.beta import AssistantStreamEvent
from openai.types.beta.threads import Message, Run
from openai.types.beta.threads.runs import RunStep

from ...answers import Confirmation
from ...errors import UsageError
from ...events import Event
from ...handlers import warn_of_returned_value
from ...sources.interrupt import HttpConnection
from ...streams.sync import StreamManager
from .binding import ALL_HOOKS, BoundHandler, ClientStream
from .dispatch import Dispatcher
from .messages import HookCall
from .nested import NestedStream

__all__ = ["AssistantEventHandler"]


class AssistantEventHandler(BoundHandler, openai.AssistantEventHandler):
    """openai's `AssistantEventHandler`, on any stream. Subclass it and override the hooks that you need.

    Pass it to `streamkit.stream`, over any protocol:

        streamkit.stream(lambda: client.responses.create(model=…, input=…, stream=True), Handler()).until_done()

    or, on a server that still speaks the Assistants API, to the client as before:

        with client.beta.threads.runs.stream(thread_id=…, assistant_id=…, event_handler=Handler()) as stream:
            stream.until_done()

    The hooks, with openai's own signatures and types. A `snapshot` is the object so far, with the delta in it.

    | hook | called when |
    |---|---|
    | `on_event(event)` | any event arrives, before its other hooks |
    | `on_run_step_created(run_step)` | a run step begins |
    | `on_run_step_delta(delta, snapshot)` | a piece of a run step arrived, after the hooks of its tool calls |
    | `on_run_step_done(run_step)` | a run step ended; `run_step.status` says how |
    | `on_message_created(message)` | a message begins, without content |
    | `on_message_delta(delta, snapshot)` | a piece of a message arrived, after the hooks of its texts |
    | `on_message_done(message)` | a message ended; `message.status` says how |
    | `on_text_created(text)` | a text of a message begins, empty |
    | `on_text_delta(delta, snapshot)` | `delta.value` was appended to a text, or an annotation was added |
    | `on_text_done(text)` | a text is complete |
    | `on_image_file_done(image_file)` | an image of a message is complete |
    | `on_tool_call_created(tool_call)` | a tool call begins, without arguments |
    | `on_tool_call_delta(delta, snapshot)` | a piece of its arguments, code or outputs arrived |
    | `on_tool_call_done(tool_call)` | a tool call is complete; of a run that waits for outputs, the last call's hook comes with the status `requires_action` |
    | `on_timeout()` | the source timed out; `on_exception` follows |
    | `on_exception(exception)` | the stream failed, with a `StreamkitError` or the exception of a hook |
    | `on_end()` | the stream ended, however it did: exactly once, last |
    | `on_confirmation(confirmation)` | code or a tool asks whether it may run; a hook of streamkit's own |

    Differences from openai's class: a text or tool call is empty when it is created and done once; parallel calls and
    interleaved messages are kept apart; of a step that began in an earlier stream of the run, only its end is reported;
    `on_end` comes at the latest when `with` is left; the error that ended the
    stream is passed to `on_exception` and raised as a `StreamkitError`, a failed run as a `RunFailedError` (the reason
    is in `current_run.last_error`). One thing cannot reach a hook: a request that the client fails to send raises in
    the client before it has the handler. Pass the request to `streamkit.stream` instead, and `on_exception` gets that
    error too.

    Tool outputs. On an Assistants server, submit them from within a hook as OpenAI's guide does, with `self` or another
    handler, also in a thread that the hook waits for: the run continues in this stream. On other protocols, pass
    `then=` to `streamkit.stream`, which makes the next request, and answer the calls with `submit_tool_outputs` in
    `on_event` at `thread.run.requires_action`, or each with `self.stream.pending[tool_call.id].respond(…)` in
    `on_tool_call_done`. That event comes when the response has ended with unanswered calls. Without `then=` calls
    cannot be answered.
    """

    text_deltas: Iterable[str]  # a property of `BoundHandler`

    @classmethod
    def _streamkit_check_hook(cls, name: str, hook: Any) -> None:
        super()._streamkit_check_hook(name, hook)
        if inspect.iscoroutinefunction(hook):
            raise UsageError(
                f"{cls.__name__}.{name} is async and would never run: subclass AsyncAssistantEventHandler, for an async "
                "client or `astream`"
            )

    def on_confirmation(self, confirmation: Confirmation) -> None:
        """Code or a tool asks whether it may run: call `approve`, `decline` or `defer`. Otherwise nothing runs."""

    # -- what drives the stream, under openai's names

    def __next__(self) -> AssistantStreamEvent:
        """Return the next event, after its hooks were called."""
        manager, dispatcher = self._streamkit_manager(), self._streamkit_dispatcher()
        dispatcher.refuse_reading_in_hooks()
        if dispatcher.unread is None:
            dispatcher.unread = deque()
        while not dispatcher.unread:
            _advance(dispatcher, manager)
        return dispatcher.unread.popleft()

    def __iter__(self) -> Iterator[AssistantStreamEvent]:
        """openai's events, each after its hooks were called. `break` pauses the stream; leaving `with` closes it.

        Raises:
            StreamkitError: The stream failed. It is raised again by every further iteration.
        """
        return self

    def until_done(self) -> None:
        """Run the stream to its end, calling the hooks.

        Raises:
            StreamkitError: The stream failed.
            UsageError: A hook called it, or the handler is on no stream.
        """
        self._streamkit_innermost(self._streamkit_manager()).until_done()

    def submit_tool_outputs(self, *arguments: Any, **options: Any) -> Any:
        """Answer tool calls that the run waits for, on a stream with `then=`: `submit_tool_outputs(tool_outputs)`.

        A subclass may have something else by this name, as OpenAI's guide has: type checkers take any signature.

        Args:
            arguments: The first, or the option `tool_outputs`, is a list of `{"tool_call_id": …, "output": …}`. Further
                ones, such as the `run_id` in OpenAI's guide, are ignored.
            options: See there.

        Raises:
            UsageError: A call does not wait for an output, or cannot get one because there is no `then=`.
        """
        self._streamkit_respond(arguments, options)

    def close(self) -> None:
        """Stop: close the response, call the done hooks of what is open, then `on_end`. Closing again does nothing."""
        if self._streamkit is not None:
            self._streamkit_manager().close()

    def get_final_run(self) -> Run:
        """Run to the end; return the run. Raises as `until_done` does."""
        self.until_done()
        return self._streamkit_final_run()

    def get_final_run_steps(self) -> list[RunStep]:
        """Run to the end; return the run's steps. Raises as `until_done` does."""
        self.until_done()
        return self._streamkit_final_run_steps()

    def get_final_messages(self) -> list[Message]:
        """Run to the end; return the run's messages. Raises as `until_done` does."""
        self.until_done()
        return self._streamkit_final_messages()

    # -- what the stream and the client call

    def _streamkit_handle(self, event: Event) -> None:
        dispatcher = self._streamkit
        assert dispatcher is not None
        if (interrupted := dispatcher.take_interrupted()) is not None:
            _call_hooks(*interrupted)
        with dispatcher.hook_calls(event) as calls:
            _call_hooks(self, calls)

    def _init(self, stream: openai.Stream[AssistantStreamEvent]) -> None:
        """The client calls it with the stream that it has opened."""
        if not hasattr(stream, "__iter__"):
            HttpConnection(getattr(stream, "response", None)).cancel()  # to close it would have to be awaited
            raise UsageError(
                f"{type(self).__name__} is for a sync client, and this stream is an async client's: subclass "
                "AsyncAssistantEventHandler"
            )
        source = ClientStream(stream)
        try:
            reader: StreamManager | NestedStream = self._streamkit_begin(source, StreamManager, NestedStream)
        except UsageError:
            source.close()
            raise

        def close() -> None:
            try:
                reader.close()
            finally:
                source.close()

        source.replace_close(close)

    def _streamkit_manager(self) -> StreamManager:
        stream = self._streamkit_stream()
        if not isinstance(stream, StreamManager):
            raise UsageError(f"{type(self).__name__} is on an async stream: use what `astream()` returned")
        manager: StreamManager = cast("Any", stream)
        return manager

    def _streamkit_needs_async(self) -> str | None:
        """Return the name of an async hook that was assigned to the object; None if there is none."""
        own = (name for name in ALL_HOOKS if name in self.__dict__)
        return next((name for name in own if inspect.iscoroutinefunction(getattr(self, name))), None)

    @staticmethod
    def _streamkit_current_reader() -> int:
        return threading.get_ident()


def _call_hooks(handler: Any, calls: Iterator[HookCall]) -> None:
    for name, arguments in calls:
        hook = getattr(handler, name)
        if (result := hook(*arguments)) is not None:
            _refuse_awaitable(hook, result)
            warn_of_returned_value(hook, result)


def _refuse_awaitable(hook: Callable[..., Any], result: Any) -> None:
    """Refuse an awaitable that a sync handler's hook returned: it would never run."""
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        name = getattr(hook, "__qualname__", repr(hook))
        raise UsageError(
            f"{name} returned an awaitable: use AsyncAssistantEventHandler, and `astream` or an async client"
        )


def _advance(dispatcher: Dispatcher, manager: StreamManager) -> None:
    """Drive the innermost stream by one event."""
    if dispatcher.nested:
        next(dispatcher.nested[-1])
        return
    dispatcher.iterator = dispatcher.iterator or iter(manager)
    try:
        next(dispatcher.iterator)
    except BaseException:
        dispatcher.iterator = None  # a new iterator ends as the stream ended
        raise
