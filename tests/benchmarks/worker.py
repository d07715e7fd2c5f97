"""The process of one contestant: takes parameters, runs it, and sends back what it cost."""

from __future__ import annotations

import gc
import importlib
import os
from multiprocessing.connection import Connection

__all__ = ["serve"]


def serve(pipe: Connection, module: str, name: str) -> None:
    """Answer each dict of parameters with the cost, or with a text that says how the contestant failed."""
    os.dup2(2, 1)  # what the contestant prints belongs to no table
    run = None
    while True:
        try:
            parameters = pipe.recv()
        except EOFError:
            return
        gc.collect()
        try:
            run = run or importlib.import_module(module).CONTESTANTS[name].run
            answer: float | str = run(**parameters)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        pipe.send(answer)
