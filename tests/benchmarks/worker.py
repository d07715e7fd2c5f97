"""A contestant's process: takes parameters, runs the contestant, and sends back what it cost."""

from __future__ import annotations

import gc
import importlib
import os
from multiprocessing.connection import Connection

__all__ = ["serve"]


def serve(pipe: Connection, module: str, collects: bool) -> None:
    """Answer each name of a contestant, and dict of parameters, with the cost, or with a text that says how it failed.

    Args:
        collects: whether garbage is collected before each run, so that none pays for what another left.
    """
    os.dup2(2, 1)  # what the contestant prints belongs to no table
    while True:
        try:
            name, parameters = pipe.recv()
        except EOFError:
            return
        if collects:
            gc.collect()
        try:
            answer: float | str = importlib.import_module(module).CONTESTANTS[name].run(**parameters)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        pipe.send(answer)
