"""Prompts that nobody has sent before, and where to cut them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

Piece = int | str
"""A token id; or text, where a server told what it generated as no more than that."""

VOCABULARY = (32, 250)
"""Token ids that every vocabulary has: below 256 all have at least the bytes."""

_SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]


@dataclass(frozen=True)
class Boundary:
    """A unit in which a server may keep its history: a block, a window, a compression ratio."""

    name: str
    tokens: int


@dataclass(frozen=True)
class Cut:
    """Where two prompts part, and in words why there."""

    at: int
    told: str


def fresh(rng: random.Random, count: int, vocabulary: tuple[int, int]) -> list[Piece]:
    """So many random tokens."""
    return [rng.randrange(*vocabulary) for _ in range(count)]


def cut(boundaries: Sequence[Boundary], length: int, rng: random.Random, turn: int) -> Cut:
    """A place to cut a prompt of `length`: at a multiple of a boundary, one before, one behind, or
    inside. Each boundary and each kind has its turn, so that few comparisons meet them all."""
    boundary = boundaries[turn % len(boundaries)]
    base = rng.choice(range(1, max(2, (length - 2) // boundary.tokens + 1))) * boundary.tokens
    kind = turn // len(boundaries) % 4
    if kind == 3 and boundary.tokens > 3:
        at, where = base - rng.randrange(2, boundary.tokens - 1), "inside a"
    else:
        offset, where = ((0, "at a"), (-1, "one before a"), (1, "one behind a"))[kind % 3]
        at = base + offset
    at = min(max(1, at), length - 1)
    return Cut(at, f"{where} {boundary.name} of {boundary.tokens}, at token {at}")


def as_text(prompt: Sequence[Piece]) -> str:
    """A prompt for a server that takes only text: a word for each token."""
    words: list[str] = []
    for piece in prompt:
        if isinstance(piece, str):
            words.append(piece)
            continue
        high, low = divmod(piece, len(_SYLLABLES))
        words.append(" " + _SYLLABLES[high % len(_SYLLABLES)] + _SYLLABLES[low])
    return "".join(words).lstrip()
