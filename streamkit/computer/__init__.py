"""Runs python, shell and javascript, and tells what happens as canonical events. For POSIX systems.

from streamkit.computer import Computer

with Computer() as computer:
    sk.stream(computer.run("python", "1/0"), Terminal()).until_done()
"""

import os
from importlib.util import find_spec

if os.name != "posix":
    raise ImportError("streamkit.computer needs a POSIX system")
if find_spec("psutil") is None:  # what brings it brings the others
    raise ImportError('streamkit.computer needs an extra: pip install "streamkit-sdk[computer]"')

from .computer import Computer
from .execution import CodeError, Execution, ExecutionStatus
from .request import Limits, Outcome, RunRequest, Settings
from .runner import Runner

__all__ = [
    "CodeError",
    "Computer",
    "Execution",
    "ExecutionStatus",
    "Limits",
    "Outcome",
    "RunRequest",
    "Runner",
    "Settings",
]
