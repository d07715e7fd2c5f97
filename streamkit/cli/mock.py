"""`streamkit mock`: serves recordings as the answers of a model."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from ..testing import ModelServer, Reply
from ..testing.recorded import recorded_answers

__all__ = ["run"]


def run(files: Iterable[str], port: int) -> int:
    """Serve the answers of these files until Ctrl-C.

    Raises:
        UsageError: a file cannot be read, or has no answer.
        OSError: the port is taken.
    """
    script = [
        Reply(recording=file, answer=number) for file in files for number in range(1, len(recorded_answers(file)) + 1)
    ]
    with ModelServer(script, port=port) as server:
        print(f"{len(script)} answer{'s' * (len(script) > 1)}, one for each request")
        print(f"OpenAI:    base_url={server.url}")
        print(f"Anthropic: base_url={server.root_url}", flush=True)
        threading.Event().wait()
    return 0
