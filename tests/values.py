"""Random values for the laws, made from one number that Hypothesis draws.

Hypothesis draws each part of a value on its own, to be able to shrink it: that took more time than the code under test.
Here it draws a seed, and `random.Random(seed)` makes the whole value, ten times faster. A failing test shows the value;
it is not shrunk.

The functions are named as those of `hypothesis.strategies`, and `|` chooses in the same way. `drawn(values)` is what
`@given` takes.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st


class Values:
    """A kind of values: `make(random)` makes one."""

    def __init__(self, make: Callable[[Random], Any]) -> None:
        self.make = make
        self.choices: tuple[Values, ...] = (self,)

    def __or__(self, other: Values) -> Values:
        return one_of(*self.choices, *other.choices)

    def map(self, function: Callable[[Any], Any]) -> Values:
        return Values(lambda random: function(self.make(random)))

    def filter(self, takes: Callable[[Any], Any]) -> Values:
        """Those that a function takes, which must be many."""
        return Values(lambda random: next(value for _ in range(1000) if takes(value := self.make(random))))


def drawn(*kinds: Values) -> st.SearchStrategy[Any]:
    """The strategy that draws a value; of several kinds, a tuple of them."""

    def make(seed: int) -> Any:
        random = Random(seed)
        made = tuple(kind.make(random) for kind in kinds)
        return made if len(kinds) > 1 else made[0]

    return st.integers(0, 2**64 - 1).map(make)


def one_of(*kinds: Values) -> Values:
    values = Values(lambda random: random.choice(kinds).make(random))
    values.choices = kinds
    return values


def just(value: Any) -> Values:
    return Values(lambda random: value)


def sampled_from(values: Iterable[Any]) -> Values:
    kept = list(values)
    return Values(lambda random: random.choice(kept))


def none() -> Values:
    return just(None)


def booleans() -> Values:
    return sampled_from((False, True))


def integers(least: int | None = None, most: int | None = None) -> Values:
    """Without limits, small ones and huge ones."""
    if least is not None and most is not None:
        return Values(lambda random: random.randint(least, most))
    return Values(lambda random: random.randint(-(2 ** (size := random.choice((3, 16, 65, 128)))), 2**size))


def floats(*, allow_infinity: bool = True) -> Values:
    """All but NaN: plain ones, and any bits."""

    def make(random: Random) -> float:
        if random.random() < 0.5:
            return random.choice((0.0, -0.0, 1.0, 0.5, -1.5, 1e300, 5e-324))
        number: float = struct.unpack("<d", random.randbytes(8))[0]
        usual = number == number and (allow_infinity or abs(number) != float("inf"))
        return number if usual else 1e16

    return Values(make)


# Of each kind that JSON, UTF-8 or a screen could treat differently.
_ODD = 'aZ0 _-.{}[]":,\\/\n\r\t\x00\x1b\x7f\x85\u00e9\u0301\u200d\u2028\ufeff\uffff\U0001f600\U0010ffff'


def _character(random: Random) -> str:
    """Seldom any that UTF-8 can have."""
    code = random.randrange(0x110000)
    return random.choice(_ODD) if random.random() < 0.8 or 0xD800 <= code < 0xE000 else chr(code)


def text(alphabet: str | Values = "", *, min_size: int = 0, max_size: int = 10) -> Values:
    match alphabet:
        case "":
            character = Values(_character)
        case str():
            character = sampled_from(alphabet)
        case _:
            character = alphabet
    return lists(character, min_size=min_size, max_size=max_size).map("".join)


def binary(*, max_size: int) -> Values:
    return Values(lambda random: random.randbytes(random.randint(0, max_size)))


def lists(inner: Values, *, min_size: int = 0, max_size: int = 5) -> Values:
    return Values(lambda random: [inner.make(random) for _ in range(random.randint(min_size, max_size))])


def tuples(*parts: Values) -> Values:
    return Values(lambda random: tuple(part.make(random) for part in parts))


def dictionaries(keys: Values, inner: Values, *, max_size: int = 5) -> Values:
    return Values(lambda random: {keys.make(random): inner.make(random) for _ in range(random.randint(0, max_size))})


def fixed_dictionaries(required: Mapping[Any, Values], *, optional: Mapping[Any, Values] | None = None) -> Values:
    """As Hypothesis does, each optional key is there or not on its own; how likely, differs from value to value."""
    maybe = optional or {}

    def make(random: Random) -> dict[Any, Any]:
        made = {key: values.make(random) for key, values in required.items()}
        share = random.random()
        made.update((key, values.make(random)) for key, values in maybe.items() if random.random() < share)
        return made

    return Values(make)


def recursive(leaves: Values, extend: Callable[[Values], Values], *, depth: int = 3) -> Values:
    """Leaves, and what `extend` makes of values below, at most `depth` levels deep."""

    inner = leaves
    for _ in range(depth):
        inner = _either(leaves, extend(inner))
    return inner


def _either(leaves: Values, others: Values) -> Values:
    return Values(lambda random: (leaves if random.random() < 0.4 else others).make(random))


def builds(function: Callable[..., Any], *arguments: Values, **named: Values) -> Values:
    return Values(
        lambda random: function(
            *(argument.make(random) for argument in arguments),
            **{name: argument.make(random) for name, argument in named.items()},
        )
    )


def composite(function: Callable[..., Any]) -> Callable[..., Values]:
    """A decorator: what the function returns; its first parameter is `draw`, which makes a value of a kind."""

    def kind(*arguments: Any, **named: Any) -> Values:
        return Values(lambda random: function(lambda values: values.make(random), *arguments, **named))

    return kind


Draw = Callable[[Values], Any]


def changed(random: Random, items: Sequence[Any], values: Values) -> list[Any]:
    """The items with up to two values in each replaced by others, at any depth."""
    items = copy.deepcopy(list(items))
    for item in items:
        for _ in range(random.randint(0, 2) if isinstance(item, dict) else 0):
            at: Any = item
            while keys := [*at] if isinstance(at, dict) else [*range(len(at))]:
                key = random.choice(keys)
                if isinstance(at[key], dict | list) and at[key] and random.random() < 0.5:
                    at = at[key]
                    continue
                at[key] = values.make(random)
                break
    return items


def some(items: Sequence[Any], values: Values, *, max_size: int) -> Values:
    """Up to `max_size` of the items in any order, changed."""
    return Values(lambda random: changed(random, random.choices(items, k=random.randint(0, max_size)), values))
