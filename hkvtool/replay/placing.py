"""Which tokens of an access lie in which of its blocks, and in which rows of them."""

from __future__ import annotations

from typing import NamedTuple

from hkvtool.state.declarations import Declarations, Group
from hkvtool.state.needs import pieces


class Piece(NamedTuple):
    """Tokens [start, end) of a group in the block at `place` of an event's list."""

    place: int
    start: int
    end: int


def written(group: Group, count: int, tokens: tuple[int, int]) -> list[Piece]:
    """How a write spreads over `count` blocks, from the one of its first token on.

    A list too short for the tokens is a ring that keeps the last lap; a recurrent block keeps the
    state at the end of its tokens.
    """
    start, end = tokens
    unit = group.block_tokens
    if count == 0:
        return []
    first = start - start % unit
    total = 1 if end == start else max(0, -(-(end - first) // unit))
    skip = max(0, total - count)
    found = []
    for i in range(skip, total):
        place = i - skip if group.form == "recurrent" else i % count
        a, b = max(first + i * unit, start), min(first + (i + 1) * unit, end)
        found.append(Piece(place, a, b))
    return found


def held(group: Group, count: int, tokens: tuple[int, int], at: int) -> list[Piece]:
    """What of `tokens` a right-aligned list of `count` blocks holds, the last of them token
    ``at - 1``."""
    spans = pieces(group, count, tokens, at)
    if group.form == "recurrent":
        return [Piece(count - 1, at - 1, at)] if count and at > 0 else []
    return [Piece(i, a, b) for i, (a, b) in enumerate(spans) if b > a]


def needed_from(declared: Declarations, group: Group, at: int, query: int) -> int:
    """The first token that a step reads of a group when it has come to token `at`, its first
    query being token `query`."""
    if group.form == "tail":
        return max(0, at - at % declared.ratio_served(group) - group.overlap)
    if group.form == "swa" and group.window:
        if group.chunked:
            return query - query % group.window
        return max(0, query - group.window + 1)
    return 0
