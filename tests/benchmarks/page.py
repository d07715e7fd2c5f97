"""The chat page in Chromium: how long a long conversation takes to show, and whether frames are missed while an answer
arrives.

    python -m tests.benchmarks.page

2,000 messages are shown at once; then 20 KB of Markdown a second arrive for five seconds, in forty pieces a second. A frame
that came more than 25 ms after the one before it counts as missed. On a machine that has anything else to do the figures say
little.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

from ..browser.pages import CHROMIUM, FLAGS, TOKEN, Tab, served

SECTION = (
    "## A title\n\nSome *text* with `code`, **bold** words and [a link](https://example.org), which goes on.\n\n- one\n- two\n\n"
    "| a | b |\n|---|--:|\n| one | 2 |\n\n```python\nfor number in range(10):\n    print(number)  # a comment\n```\n\n"
)

SHOW = """async ([count, text]) => {
  const { ConversationView } = await import("/conversation.js");
  const [log, scroller] = [document.getElementById("log"), document.getElementById("scroller")];
  document.getElementById("empty").hidden = true;
  const view = new ConversationView(log, scroller, () => {}, () => {}, () => {});
  const message = (_, at) => at % 2
    ? { id: `m${at}`, role: "assistant", type: "message", content: text, status: "completed", run_id: `r${at >> 1}` }
    : { id: `m${at}`, role: "user", type: "message", content: "A question?", status: "completed", run_id: `r${at >> 1}` };
  const messages = Array.from({ length: count }, message);
  const began = performance.now();
  view.show(messages);
  view.scrollToEnd();
  const made = performance.now();
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  return [made - began, performance.now() - began];
}"""

GROW = """async ([bytes, pieces, seconds, text]) => {
  const { ConversationView } = await import("/conversation.js");
  const [log, scroller] = [document.getElementById("log"), document.getElementById("scroller")];
  log.replaceChildren();
  const view = new ConversationView(log, scroller, () => {}, () => {}, () => {});
  const message = { id: "m", role: "assistant", type: "message", content: "", status: "in_progress" };
  view.on_message_created(message);
  const frames = [];
  let runs = true;
  const count = (now) => (frames.push(now), runs && requestAnimationFrame(count));
  requestAnimationFrame(count);
  const began = performance.now();
  for (let piece = 0; piece < pieces * seconds; piece += 1) {
    await new Promise((resolve) => setTimeout(resolve, began + (piece * 1000) / pieces - performance.now()));
    const at = (piece * bytes) / pieces;
    message.content += text.repeat(Math.ceil((bytes * seconds) / text.length)).slice(at, at + bytes / pieces);
    view.on_message_delta({}, message);
  }
  runs = false;
  const gaps = frames.slice(1).map((now, at) => now - frames[at]);
  return [gaps.length, gaps.filter((gap) => gap > 25).length, Math.max(...gaps)];
}"""


@contextlib.contextmanager
def page() -> Generator[Any]:
    """The chat page, in a Chromium without a window."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as proxy, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield Tab(browser.new_context(viewport={"width": 1200, "height": 900}), f"{proxy.url}/#token={TOKEN}").page
        browser.close()


def main() -> None:
    """Print the figures."""
    with page() as shown:
        made, drawn = shown.evaluate(SHOW, [2000, SECTION])
        print(f"2,000 messages: made in {made / 1000:.2f} s, drawn after {drawn / 1000:.2f} s")
        frames, missed, longest = shown.evaluate(GROW, [20_000, 40, 5, SECTION])
        print(f"20 KB of Markdown a second, for 5 s: {frames} frames, {missed} missed, the longest {longest:.0f} ms")


if __name__ == "__main__":
    main()
