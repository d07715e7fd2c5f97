"""Several threads that use a class or a protocol for the first time, at once, in a new process.

msgspec learns the fields of a class when it decodes the first of them. Where two threads make it do so at once, the process may
crash: not each one does, so there are several.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

PROCESSES = 10

BEGIN = """
import sys, threading
sys.setswitchinterval(1e-6)

def at_once(work):
    start = threading.Barrier(6)
    def run():
        start.wait()
        work()
    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""

EVENTS = """
from streamkit.protocols import codec

def decode():
    codec.event_from_dict({"type": "run_created", "run": {"id": "r"}})
    codec.event_from_dict({"type": "run_done", "run": {"id": "r", "usage": {"input_tokens": 1}}})
    codec.event_from_dict({"type": "stream_end"})

at_once(decode)
"""

STREAMS = """
import streamkit as sk
import streamkit.protocols.openai_chat, streamkit.protocols.openai_responses, streamkit.protocols.anthropic
import streamkit.protocols.openai_assistants, streamkit.protocols.vercel_ui

STREAMS = {
    "openai_chat": {"object": "chat.completion.chunk", "id": "c", "model": "m", "created": 1,
        "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]},
    "openai_responses": {"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0,
        "delta": "a", "sequence_number": 1, "logprobs": []},
    "anthropic": {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
    "openai_assistants": {"object": "thread.message.delta", "id": "i",
        "delta": {"content": [{"index": 0, "type": "text", "text": {"value": "a"}}]}},
}
wrong = []
for protocol, item in STREAMS.items():
    def read():
        stream = sk.stream([item] * 3, protocol=protocol)
        try:
            stream.until_done()
        except sk.IncompleteStreamError:
            pass
        if [message.content for message in stream.messages] != ["aaa"]:
            wrong.append(protocol)
    at_once(read)
assert not wrong, wrong
"""


@pytest.mark.slow
@pytest.mark.parametrize("work", [EVENTS, STREAMS], ids=["events", "streams"])
def test_threads_may_begin_at_once(work: str) -> None:
    for _ in range(PROCESSES):
        done = subprocess.run([sys.executable, "-c", BEGIN + work], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
