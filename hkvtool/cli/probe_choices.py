"""What the options of `hkvtool probe` mean."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hkvtool.model.errors import HkvError

if TYPE_CHECKING:
    from hkvtool.probe.patterns import Shape
    from hkvtool.probe.prompts import Boundary
    from hkvtool.probe.scenario import Scenario
    from hkvtool.probe.survey import Survey

_MOST_BYTES = 64 << 20
"""Of a saved divergence: a device never ends."""

_DIGITS = 9
"""Of a number of tokens, and of an id."""

_BLOCK = 16
"""Tokens, where nothing tells the server's block."""

_LEAST = 16
"""Tokens of a prompt, below which it has no block."""

_SHORTEST, _LONGEST = 64, 1500
"""Tokens of a prompt, where nothing else is asked for."""

_BEYOND = 1.25
"""Of the cache's size, what of others' prompts pushes everything out of it."""


def range_of(text: str) -> tuple[int, int]:
    """Token ids LOW:HIGH. Raises HkvError."""
    low, _, high = text.partition(":")
    whole = all(n.isdecimal() and len(n) <= _DIGITS for n in (low, high))
    if not (whole and int(low) + 16 <= int(high)):
        raise HkvError(f"--vocabulary {text}: not LOW:HIGH", hint="at least 16 ids, e.g. 32:250")
    return int(low), int(high)


def patterns_of(names: Sequence[str] | None) -> tuple[str, ...]:
    """Patterns by name. Raises HkvError."""
    from hkvtool.probe.patterns import PATTERNS

    chosen = tuple(p for text in names or () for p in text.split(",") if p)
    for name in chosen:
        if name not in PATTERNS:
            raise HkvError(f"there is no pattern {name!r}", hint=", ".join(PATTERNS))
    return tuple(dict.fromkeys(chosen))


def boundaries_of(texts: Sequence[str] | None) -> list[Boundary]:
    """Boundaries NAME=N. Raises HkvError."""
    from hkvtool.probe.prompts import Boundary

    found = []
    for text in texts or ():
        name, _, number = text.partition("=")
        if not (name and number.isdecimal() and len(number) <= _DIGITS and int(number) >= 1):
            raise HkvError(f"--boundary {text}: not NAME=N", hint="e.g. --boundary window=1024")
        found.append(Boundary(name, int(number)))
    return found


def scenario_in(path: Path) -> Scenario:
    """A saved divergence. Raises HkvError."""
    from hkvtool.probe.scenario import scenario_of

    try:
        with path.open("rb") as file:
            data = json.loads(file.read(_MOST_BYTES))
    except (ValueError, RecursionError) as e:
        raise HkvError(f"that is no JSON: {e}", where=str(path)) from None
    return scenario_of(data, str(path))


def shape_of(
    survey: Survey, asked: list[Boundary], length: int, output: int, burst: int,
    adapters: tuple[str, ...], vocabulary: tuple[int, int],
) -> Shape:  # fmt: skip
    """How long prompts are, and where they are cut. Raises HkvError."""
    from hkvtool.probe.patterns import Shape
    from hkvtool.probe.prompts import Boundary

    cuts = [b for b in asked if b.name == "block"] or [Boundary("block", survey.block or _BLOCK)]
    cuts += [b for b in asked if b.name != "block"]
    # The longest of a conversation: prompt, answer, a quarter more, and an answer under load.
    most = int((survey.limit - 5 * output) / 1.25) if survey.limit else _LONGEST
    fitting = max(_SHORTEST, int(2.5 * max(b.tokens for b in cuts)) + 3)
    chosen = length or min(fitting, most)
    if most < _LEAST:
        raise HkvError(
            f"the server takes {survey.limit:,} tokens: too few for a prompt of {_LEAST} and what "
            "follows it", hint="--output-tokens 1 needs the least",
        )  # fmt: skip
    if chosen < _LEAST or (survey.limit and chosen > most):
        raise HkvError(
            f"prompts of {chosen} tokens do not fit the server's {survey.limit}",
            hint=f"--length {_LEAST} to {most}",
        )
    filler = int(survey.cache * _BEYOND)
    return Shape(chosen, output, tuple(cuts), burst, adapters, filler, vocabulary)


def progress_line() -> Callable[[str, int, int], None]:
    """Tells how far a probe is, on a terminal only."""
    if not sys.stderr.isatty():
        return lambda stage, done, of: None

    def tell(stage: str, done: int, of: int) -> None:
        end = "\n" if done == of else ""
        print(f"\r\x1b[K{stage} {done:,} of {of:,}", end=end, file=sys.stderr, flush=True)

    return tell
