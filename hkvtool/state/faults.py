"""What is wrong with a block, or with a token range that no block covers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import NamedTuple

Span = tuple[int, int]
"""Token positions ``[start, end)``."""


class Kind(Enum):
    """In which way a block does not serve. One rule can be broken in several ways, and what
    follows from a fault depends on the way."""

    ABSENT = auto()
    """No block was brought for the tokens."""
    FOREIGN = auto()
    """The block is another table's, or holds content of another form."""
    DIRTY = auto()
    """Bytes of another form lie behind what was written."""
    LOADING = auto()
    """A load into it has not ended."""
    LOWER_TIER = auto()
    """Its bytes are on a lower tier only."""
    NOT_MIGRATED = auto()
    """A load was to fill it, and none did."""
    EMPTY = auto()
    """Nothing was written in this generation."""
    PROMISED = auto()
    """Its hash was published, and the write that fills it is yet to come."""
    SHORT = auto()
    """It holds some of the tokens, not all."""
    ELSEWHERE = auto()
    """It holds other tokens."""
    LATE = auto()
    """The write that fills it came after the reader."""
    STALE_HASH = auto()
    """Its hash was published for an earlier content."""
    REWRITTEN = auto()
    """It was rewritten after its hash was published."""
    REJECTED = auto()
    """Tokens that its hash stands for were rejected."""
    OLD_WEIGHTS = auto()
    """It was computed with older weights."""
    VERSION = auto()
    """It holds another version than was published, or than the data it routes to."""
    CODEC = auto()
    """Its content is of another codec than the group's."""
    UNHASHED = auto()
    """Nothing that was found led to it."""
    CHANGED = auto()
    """It is no longer what the check saw."""
    NO_RIGHT = auto()
    """The reader neither holds it nor was given it."""


class Fault(NamedTuple):
    """Why one block, or a token range that no block covers, does not serve.

    `code` is the rule; `slot` is -1 where the range has no block at all. `waiting` marks a
    fault that may still heal before the use: the write or load that fills the block is yet to
    come.
    """

    code: str
    kind: Kind
    slot: int
    tokens: Span
    why: str
    waiting: bool = False


PRECEDENCE: dict[str, int] = {
    code: rank
    for rank, codes in enumerate(
        (
            ("HKV703", "HKV709"),
            ("HKV702",),
            ("HKV601", "HKV604"),
            ("HKV105",),
            ("HKV602", "HKV305", "HKV603", "HKV803"),
            ("HKV103",),
            ("HKV307", "HKV301", "HKV302", "HKV303", "HKV304", "HKV306"),
            ("HKV701",),
            ("HKV704",),
            ("HKV102",),
            ("HKV101",),
        )
    )
    for code in codes
}
"""Rank of a code among the faults of one read; the lowest is the root."""

_OF_THE_HASH = frozenset({Kind.STALE_HASH, Kind.REWRITTEN})


def roots(faults: Iterable[Fault], evaluable: Callable[[str], bool]) -> dict[str, list[Fault]]:
    """The faults of one read by code, those first that come first by precedence: of each block the
    first that the evidence supports."""
    faults = list(faults)
    changed = {f.slot for f in faults if f.kind is Kind.CHANGED}
    best: dict[tuple[int, Span | None], Fault] = {}
    for fault in faults:
        if fault.code == "HKV105" and fault.slot in changed and fault.kind not in _OF_THE_HASH:
            # The hash was right when it was checked: what came after is check against use.
            continue
        if not evaluable(fault.code):
            continue
        key = (fault.slot, fault.tokens if fault.slot < 0 else None)
        held = best.get(key)
        if held is None or PRECEDENCE[fault.code] < PRECEDENCE[held.code]:
            best[key] = fault
    by_code: dict[str, list[Fault]] = {}
    for fault in best.values():
        by_code.setdefault(fault.code, []).append(fault)
    return {code: by_code[code] for code in sorted(by_code, key=lambda c: PRECEDENCE[c])}
