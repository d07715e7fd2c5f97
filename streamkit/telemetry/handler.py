"""`Telemetry`: the spans and metrics of each stream that it is on.

    invoke_agent {name}          an agent's stream
        chat {model}             each of its run steps: from sending the request to the end of the answer
        execute_tool {name}      each tool or piece of code that runs, from its start to its output

A stream without an agent has `chat` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UsageError
from ..handlers import Handler
from . import attributes as names
from .stream_spans import Instruments, StreamSpans

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["Telemetry"]

_SCOPE = "streamkit"


class Telemetry(Handler):
    """A handler that makes spans and metrics of the streams it is on, with OpenTelemetry.

        agent = sk.Agent(client, model="gpt-5-mini", tools=[get_weather], handlers=[Telemetry()])
        agent.stream("Will it be warmer than today?", Terminal()).until_done()

    One object serves any number of streams at once. The parent of the outermost span is what is current where the stream starts;
    what a tool does has the span of its call as parent. An exporter that raises ends no stream: the error is logged.

    Args:
        tracer_provider: makes the spans; by default the one that the application has set up.
        meter_provider: makes the histograms of durations, of the time to the first chunk and of tokens; by default the one that
            the application has set up.
        content: whether spans have what was said: messages, instructions, the arguments and results of tools. Without it no
            text of a request or an answer is in them.

    Raises:
        UsageError: `opentelemetry-api` is not installed; it is in the extra `otel`.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        content: bool = False,
    ) -> None:
        try:
            from opentelemetry import metrics, trace
        except ImportError:
            raise UsageError(
                "`Telemetry` needs opentelemetry-api: pip install 'streamkit-sdk[otel]', and an SDK with an exporter"
            ) from None
        meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        histograms = {
            name: meter.create_histogram(
                name, "{token}" if name == names.TOKENS else "s", explicit_bucket_boundaries_advisory=boundaries
            )
            for name, boundaries in names.BUCKETS.items()
        }
        tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._instruments = Instruments(tracer, histograms, content)

    def streamkit_attachable(self) -> Handler:
        """Return a handler for one stream."""
        return StreamSpans(self._instruments)
