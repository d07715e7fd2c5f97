"""What it costs to show a long answer: CPU seconds of `LiveDisplay`, and of Rich's `Live` updated with all the text.

    python -m tests.benchmarks --only rendering
    python -m tests.benchmarks.rendering [--quick]

Both draw the same text on the same terminal (80 x 24) at the same moments of a simulated clock: a thousand tokens of four
characters arrive a second, and the screen is drawn ten times a second. Nothing waits, so only the rendering is
measured; the figures are the least of three rounds. The last table shows that the cost of a token does not grow with
the text before it, whatever the text is.
"""

from __future__ import annotations

import argparse
import io
import random
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown

import streamkit as sk
from streamkit.events import TextDelta
from streamkit.renderers import LiveDisplay

from .measuring import Profile, Row, interleaved, numbered

TITLE = "Markdown in a terminal"
ABOUT = """\
CPU time for each token of four characters that is shown as Markdown, with 1,000 tokens and ten drawings a second, without
waiting. The baseline is Rich's `Live` updated with all the text, which becomes dearer the longer the answer is."""

TOKENS_A_SECOND = 1000
DRAWN_A_SECOND = 10
WORDS = ["the", "quick", "**brown fox**", "jumps", "over", "a lazy dog,", "while", "`streams`", "of", "many tokens"]


def answer(tokens: int) -> str:
    """An answer as models write them: headings, paragraphs, lists, code, a table now and then."""
    chance = random.Random(7)

    def words(count: int) -> str:
        return " ".join(chance.choice(WORDS) for _ in range(count))

    parts: list[str] = []
    length = 0
    while length < tokens * 4:
        number = len(parts)
        parts.append(f"## Part {number}\n\n{words(60)}.\n\n{words(40)}.\n\n- {words(9)}\n- {words(12)}\n")
        parts.append("```python\n" + "".join(f"value_{i} = compute({i}, 'text')  # step\n" for i in range(8)) + "```\n")
        parts.append(f"1. {words(8)}\n2. {words(8)}\n\n| name | value |\n|---|--:|\n| {words(2)} | 17 |\n")
        length = sum(map(len, parts))
    return "\n".join(parts)[: tokens * 4]


SHAPES: dict[str, Callable[[int], str]] = {
    "an answer": answer,
    "one paragraph": lambda tokens: ("several words that go on " * tokens)[: tokens * 4],
    "one line, no blank": lambda tokens: "x" * (tokens * 4),
    "one list": lambda tokens: "".join(f"- item number {i} of many\n" for i in range(tokens))[: tokens * 4],
    "one list, numbered": lambda tokens: "".join(f"{i}. item **{i}**\n" for i in range(1, tokens))[: tokens * 4],
    "one list, nested": lambda tokens: "".join(f"{'  ' * (i % 5)}- item {i}\n" for i in range(tokens))[: tokens * 4],
    "one block of code": lambda tokens: ("```python\n" + "value = compute(17)  # step\n" * tokens)[: tokens * 4],
    "one block, dense": lambda tokens: ("```python\n" + "y+x+y+z+x+y+y+x = 1\n" * tokens)[: tokens * 4],
    "one table": lambda tokens: ("| a | b |\n|---|---|\n" + "| some cell | other |\n" * tokens)[: tokens * 4],
    "one table, styled": lambda tokens: ("| a | b |\n|---|--:|\n" + "| a **b** | `c` |\n" * tokens)[: tokens * 4],
    "one quotation": lambda tokens: ("> words in a quotation\n" * tokens)[: tokens * 4],
}


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=80, height=24)


def pieces(text: str) -> list[str]:
    return [text[start : start + 4] for start in range(0, len(text), 4)]


def live_display(text: str, a_second: int = TOKENS_A_SECOND) -> float:
    """CPU seconds of the handler, its hooks included."""
    display = LiveDisplay(terminal(), refresh_per_second=0)
    message = sk.TextMessage("m", status="in_progress")
    deltas = [TextDelta("m", piece, snapshot=message) for piece in pieces(text)]
    every = max(1, a_second // DRAWN_A_SECOND)
    began = time.process_time()
    display.on_message_created(message)
    for number, delta in enumerate(deltas, 1):
        display.on_message_delta(delta, message)
        if number % every == 0:
            display.refresh()
    display.on_message_done(message)
    display.on_end()
    return time.process_time() - began


def naive(text: str) -> float:
    """CPU seconds of drawing all the text again, ten times a second."""
    console = terminal()
    every = TOKENS_A_SECOND // DRAWN_A_SECOND
    so_far = ""
    began = time.process_time()
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for number, piece in enumerate(pieces(text), 1):
            so_far += piece
            if number % every == 0:
                live.update(Markdown(so_far), refresh=True)
        live.update(Markdown(so_far), refresh=True)
    return time.process_time() - began


def rows(profile: Profile) -> Iterator[Row]:
    live_display(answer(500))  # imports, and the parsers' first use
    for tokens in profile.pick((100,), (1_000,), (2_000, 10_000)):
        text = answer(tokens)
        functions = {"LiveDisplay": lambda text=text: live_display(text), "Rich, Live": lambda text=text: naive(text)}
        seconds = interleaved(functions, profile.pick(1, 1, 3))
        values = {name: cost / tokens * 1e6 for name, cost in seconds.items()}
        yield from numbered(values, f"an answer of {tokens:,} tokens", "µs a token", "Rich, Live")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of the tokens")
    tokens = 5_000 if parser.parse_args().quick else 20_000
    live_display(answer(500))  # imports, and the parsers' first use
    text = answer(tokens)
    ours = min(live_display(text) for _ in range(3))
    print(f"{tokens:,} tokens, {TOKENS_A_SECOND:,} a second, drawn {DRAWN_A_SECOND} times a second: CPU seconds")
    print(f"  LiveDisplay                       {ours:8.2f}")
    print(f"  LiveDisplay, 100 tokens a second  {live_display(text, 100):8.2f}   (ten times as many drawings)")
    print(f"  Live.update(Markdown(all))        {naive(text):8.2f}")
    sizes = [tokens // 4, tokens // 2, tokens, tokens * 2]
    print(f"\nCPU seconds for {tokens:,} tokens, and microseconds a token, by how many there are:")
    print(f"  {'':20}{'':10}" + "".join(f"{size:>9,}" for size in sizes))
    for name, shape in SHAPES.items():
        costs = [min(live_display(shape(size)) for _ in range(3)) for size in sizes]
        each = "".join(f"{cost / size * 1e6:9.1f}" for cost, size in zip(costs, sizes, strict=True))
        print(f"  {name:20}{costs[2]:8.2f} s{each}")


if __name__ == "__main__":
    main()
