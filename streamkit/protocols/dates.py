"""Dates of ISO 8601, such as `2026-11-21T00:26:49+00:00`, to seconds since 1970 and back.

The protocols import no clock and no calendar, so this has its own: Gregorian, with years that begin in March, so that the
leap day is the last day of a year.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["date_of", "time_of"]

_match_date = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(\.\d{1,9})?(?:Z|([+-]\d\d):?(\d\d))?", re.ASCII
).fullmatch
_SECONDS_PER_DAY = 86400
_DAYS_PER_ERA = 146097  # 400 years
_DAYS_BEFORE_1970 = 719468  # from the first of March of the year 0
_YEAR_10000 = 253402300800  # in seconds


def time_of(value: Any) -> float | None:
    """Return the seconds of a date, None if it is not a date or not after the beginning of 1970.

    Letta's client parses some dates; a `datetime` is read, too.
    """
    found = _match_date(value) if isinstance(value, str) else None
    if found is None:
        return _time_of_object(value)
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second <= 60):
        return None
    sign = -1 if (found[8] or "").startswith("-") else 1
    offset = int(found[8] or 0) * 3600 + sign * int(found[9] or 0) * 60
    seconds = _days_of(year, month, day) * _SECONDS_PER_DAY + hour * 3600 + minute * 60 + second - offset
    time = seconds + float(found[7] or 0)
    return time if time > 0 else None


def _time_of_object(value: Any) -> float | None:
    timestamp = getattr(value, "timestamp", None)
    try:
        time = timestamp() if callable(timestamp) else None
    except (TypeError, ValueError, OverflowError, OSError):
        return None
    return time if isinstance(time, float) and time > 0 else None


def date_of(time: float | None) -> str:
    """Return the date of these seconds; the first of 1970 for None, and for times before it or after the year 9999."""
    valid = time if time is not None and 0 < time < _YEAR_10000 else 0.0
    seconds, microseconds = divmod(round(valid * 1_000_000), 1_000_000)
    days, rest = divmod(seconds, _SECONDS_PER_DAY)
    year, month, day = _date_of_days(days)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{year:04}-{month:02}-{day:02}T{clock}{f'.{microseconds:06}' if microseconds else ''}+00:00"


def _days_of(year: int, month: int, day: int) -> int:
    """Return the days since 1970 of a date."""
    year -= month <= 2
    day_of_year = (153 * ((month - 3) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + day_of_year - _DAYS_BEFORE_1970


def _date_of_days(days: int) -> tuple[int, int, int]:
    """Return the year, month and day of these days since 1970."""
    era, day = divmod(days + _DAYS_BEFORE_1970, _DAYS_PER_ERA)
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    day -= year * 365 + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    return year + era * 400 + (month >= 10), (month + 2) % 12 + 1, day + 1
