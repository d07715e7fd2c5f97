"""Headers of an error response about another attempt: whether it may be made, and when."""

from __future__ import annotations

import math
import time
from typing import Any

__all__ = ["retry_after", "should_retry"]

_SECONDS = (("retry-after-ms", 0.001), ("retry-after", 1.0))  # the header, and its unit


def retry_after(headers: Any) -> float | None:
    """Return the seconds after which the server wants the next request, from `retry-after-ms` or `Retry-After`, which has seconds
    or a date (RFC 9110, 10.2.3); 0 for a date that is past, None if there is neither."""
    for name, unit in _SECONDS:
        if (text := _header(headers, name)) is None:
            continue
        try:
            seconds = float(text) * unit
        except ValueError:
            seconds = _seconds_until(text)
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def should_retry(headers: Any) -> bool | None:
    """Return what `x-should-retry` says, which openai's and anthropic's servers send; None if there is none."""
    return {"true": True, "false": False}.get((_header(headers, "x-should-retry") or "").strip().lower())


def _header(headers: Any, name: str) -> str | None:
    try:
        value = headers.get(name) or headers.get(name.title())
    except Exception:  # of whatever object a client's error has there
        return None
    return value if isinstance(value, str) else None


def _seconds_until(date: str) -> float:
    from email.utils import parsedate_to_datetime  # few servers send a date

    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return math.nan
