"""`interpreter.computer`: a `Computer` that says what to use in place of what Open Interpreter's has and it has not."""

from __future__ import annotations

from typing import Any, NoReturn

from ...computer import Computer, Execution
from ...errors import UsageError

__all__ = ["InterpreterComputer"]

_INSTEAD = {
    "terminate": "interpreter.close() ends the processes, and the next chat starts new ones",
    "stop": "interpreter.close() stops a chat, and ends the processes",
}
_OTHERS = "tools for it can be given to streamkit.Agent"
_RUN_OPTIONS = ("stream", "display")  # of the original


class InterpreterComputer(Computer):
    """A `Computer` for programs that were written for Open Interpreter's."""

    def run(self, language: str, code: str, **options: Any) -> Execution:
        """Return a run of some code, as `Computer.run` gives it.

        Raises:
            UsageError: an option of the original, or what `Computer.run` raises.
        """
        for name in _RUN_OPTIONS:
            if name in options:
                raise UsageError(
                    f"interpreter.computer.run has no argument `{name}`: a run is always a stream; "
                    'streamkit.stream(interpreter.computer.run(…)).chunks("open_interpreter") are its chunks'
                )
        return super().run(language, code, **options)

    def __getattr__(self, name: str) -> NoReturn:  # called for attributes that a `Computer` has not
        replacement = _INSTEAD.get(name, _OTHERS)
        raise AttributeError(f"interpreter.computer.{name} is not supported: {replacement}")
