"""Traces and metrics of streams, agents and tools, as OpenTelemetry's conventions for generative AI name them."""

from .handler import Telemetry

__all__ = ["Telemetry"]
