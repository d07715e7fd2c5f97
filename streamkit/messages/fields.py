"""The types that the fields of a message have in its static form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from ..errors import UsageError

__all__ = ["Status", "check_field"]

Status = Literal["in_progress", "completed", "incomplete", "cancelled", "failed"]

_TYPES: dict[str, type | tuple[type, ...]] = {
    "annotations": (list, tuple),
    "choice": int,
    "created_at": (int, float),
    "index": int,
    "metadata": Mapping,
    "provider_executed": bool,
}
_STATUSES: tuple[str, ...] = get_args(Status)


def check_field(key: str, field: object) -> None:
    """Check one field of a static form.

    Raises:
        UsageError: it has another type than this key's values, or is a status that messages do not have.
    """
    wanted = _TYPES.get(key, str)
    if field.__class__ is not wanted and (
        not isinstance(field, wanted) or (isinstance(field, bool) and wanted is not bool)
    ):
        raise UsageError(_wrong_type(key, field, wanted))
    if key == "status" and field not in _STATUSES:
        raise UsageError(f"a message's 'status' cannot be {field!r}; it is one of {_STATUSES}")


def _wrong_type(key: str, value: object, wanted: type | tuple[type, ...]) -> str:
    names = " or ".join(kind.__name__ for kind in (wanted if isinstance(wanted, tuple) else (wanted,)))
    found = type(value).__name__
    hint = "; a message is flat, so each part is a message of its own" if (key, found) == ("content", "list") else ""
    return f"a message's {key!r} is a {names}, not a {found}{hint}: {value!r}"
