"""Dates as Letta writes them, `2026-11-21T00:26:49+00:00`, to seconds since 1970 and back.

The core reads no clock, so there is no calendar in it but this one (Gregorian, with the leap day at a year's end).
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["date_of", "time_of"]

_parts_of = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(\.\d{1,9})?(?:Z|([+-]\d\d):?(\d\d))?", re.ASCII
).fullmatch
_DAY = 86400
_BEFORE_1970 = 719468  # days from the first of March of the year 0
_END = 253402300800  # the year 10000


def time_of(value: Any) -> float | None:
    """The seconds of a date, None if it is none, or not after 1970 began. Letta's client has read some already."""
    found = _parts_of(value) if isinstance(value, str) else None
    if found is None:
        return _read_already(value)
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second <= 60):
        return None
    sign = -1 if (found[8] or "").startswith("-") else 1
    offset = int(found[8] or 0) * 3600 + sign * int(found[9] or 0) * 60
    seconds = _days(year, month, day) * _DAY + hour * 3600 + minute * 60 + second - offset
    time = seconds + float(found[7] or 0)
    return time if time > 0 else None


def _read_already(value: Any) -> float | None:
    read = getattr(value, "timestamp", None)
    try:
        time = read() if callable(read) else None
    except (TypeError, ValueError, OverflowError, OSError):
        return None
    return time if isinstance(time, float) and time > 0 else None


def date_of(time: float | None) -> str:
    """The date of these seconds; that of 0 where there are none."""
    known = time if time is not None and 0 < time < _END else 0.0
    seconds, micros = divmod(round(known * 1_000_000), 1_000_000)
    days, rest = divmod(seconds, _DAY)
    year, month, day = _date(days)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{year:04}-{month:02}-{day:02}T{clock}{f'.{micros:06}' if micros else ''}+00:00"


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970. A year begins in March here, so that a leap day is its last."""
    year -= month <= 2
    day_of_year = (153 * ((month - 3) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + day_of_year - _BEFORE_1970


def _date(days: int) -> tuple[int, int, int]:
    days += _BEFORE_1970
    era, day = divmod(days, 146097)  # 400 years
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    day -= year * 365 + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    return year + era * 400 + (month >= 10), (month + 2) % 12 + 1, day + 1
