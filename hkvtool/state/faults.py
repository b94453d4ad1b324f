"""What is wrong with a block, or with a token range that no block covers."""

from __future__ import annotations

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
