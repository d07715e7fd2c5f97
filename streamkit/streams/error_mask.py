"""The part of an error that a client may see: its kind, and the `instance` under which the log has all of it.

The text of an exception may hold anything: keys, paths, what another user wrote. So it stays here.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from .. import errors
from ..errors import StreamkitError
from ..events import Event, RunEvent, RunStepDone, StreamException, StreamRetry, StreamWarning
from .failures import details_of

__all__ = ["ErrorMask", "masked_text"]

_log = logging.getLogger("streamkit")

_TITLES: Mapping[str, str] = {
    "LimitError": "The source is larger than allowed.",
    "ProtocolError": "The source sent malformed data.",
    "SourceError": "The source failed.",
    "SourceTimeoutError": "The source timed out.",
    "IncompleteStreamError": "The source was cut off.",
}
_TITLE = "The run failed."  # of all others
_SHOWN = ("code", "allowed")  # of the details: what names the error, and has no text


class ErrorMask:
    """Replaces the texts of errors in the events of one stream, and logs them.

    Args:
        expose: leave them as they are. For development.

    Attributes:
        instance: the `urn:uuid:…` in all of them, and in the log.
    """

    def __init__(self, *, expose: bool = False) -> None:
        self.instance = uuid.uuid4().urn
        self._exposes = expose
        self._logged: set[tuple[str, bool]] = set()

    def __call__(self, event: Event) -> Event:
        """Return the event as a client may see it: the same object, if there is nothing to hide in it."""
        match event:
            case StreamException():
                return self._of_exception(event)
            case _ if self._exposes:
                return event
            case StreamWarning(code="decoder-error"):
                self.log(event.fault)
                return replace(event, fault=f"it could not be read ({self.instance})")
            case StreamRetry(error=name, message=text):
                self.log(text)
                return replace(event, message=masked_text(name, self.instance), exception=None)
            case RunEvent(run=run) if run.error:
                return replace(event, run=replace(run, error=self._error(run.error), raw=None))
            case RunStepDone(run_step=step) if step.error:
                return replace(event, run_step=replace(step, error=self._error(step.error), raw=None))
            case _:
                return event

    @staticmethod
    def exception_of(error: BaseException) -> StreamException:
        """Return the event of an error that is in no event of the stream. Nothing is hidden in it yet."""
        return StreamException(type(error).__name__, str(error), details_of(error), error)

    def log(self, text: str, error: BaseException | None = None) -> None:
        """Log an error of the stream once, or twice where its traceback comes later."""
        key = text, error is not None
        if key not in self._logged:
            self._logged |= {key, (text, False)}
            _log.error("%s: %s", self.instance, text, exc_info=error)

    def _of_exception(self, event: StreamException) -> StreamException:
        if event.exception is not None or not self._exposes:  # what a client sees is logged for its traceback alone
            self.log(event.message, event.exception)
        if self._exposes:
            return event
        name = event.error if _is_own(event.error, event.exception) else StreamkitError.__name__
        title = _TITLES.get(name, _TITLE)
        shown = {key: event.details[key] for key in _SHOWN if isinstance(event.details.get(key), (str, int))}
        details = {"title": title, "instance": self.instance, **shown}
        return StreamException(name, masked_text(name, self.instance), details, position=event.position)

    def _error(self, error: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a run's error. Its type is the provider's word, or the name of a Python error's class."""
        self.log(str(error.get("message") or error))
        kind = error.get("type")
        names = {"type": kind} if isinstance(kind, str) and (kind.islower() or _is_own(kind)) else {}
        names |= {"code": error["code"]} if isinstance(error.get("code"), (str, int)) else {}
        return {"message": masked_text(str(kind), self.instance), **names}


def masked_text(kind: str, instance: str) -> str:
    """Return what a client may see of an error of this class."""
    return f"{_TITLES.get(kind, _TITLE)} ({instance})"


def _is_own(name: str, error: BaseException | None = None) -> bool:
    """Whether this is the name of a `StreamkitError`."""
    kind = getattr(errors, name, None) if error is None else type(error)
    return isinstance(kind, type) and issubclass(kind, StreamkitError)
