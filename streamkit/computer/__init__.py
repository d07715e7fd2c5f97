"""Runs Python, shell and JavaScript code, and reports its output as canonical events. For POSIX systems.

from streamkit.computer import Computer

with Computer() as computer:
    sk.stream(computer.run("python", "1/0"), Terminal()).until_done()

Python is an IPython kernel, the shell one bash, JavaScript one node. Needs the extra `computer`
(`pip install "streamkit-sdk[computer]"`), and for the shell and JavaScript `bash` and `node` on the path.
"""

import os
from importlib.util import find_spec

if os.name != "posix" or find_spec("fcntl") is None:
    raise ImportError(
        "streamkit.computer needs a POSIX system, such as Linux, macOS or the Windows Subsystem for Linux"
    )
if find_spec("psutil") is None:  # the extra installs it together with the other packages
    raise ImportError('streamkit.computer needs an extra: pip install "streamkit-sdk[computer]"')

from .background_run import CodeError, ExecutionStatus
from .computer import Computer
from .environment import default_environment
from .execution import Execution
from .request import Limits, RunRequest, RunResult, Settings
from .runner import Runner

__all__ = [
    "CodeError",
    "Computer",
    "Execution",
    "ExecutionStatus",
    "Limits",
    "RunRequest",
    "RunResult",
    "Runner",
    "Settings",
    "default_environment",
]
