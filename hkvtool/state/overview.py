"""Every block of a pool at once: what `view.block_state` says of one, as columns.

A map of a million blocks cannot ask a million questions. The predicate is `serving.block_fault`;
this is its form over arrays, and a property test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hkvtool.model.rows import MISSING
from hkvtool.model.rules import MISSING_FORM, RULES
from hkvtool.state import arrays as a
from hkvtool.state.declarations import Group, Pool
from hkvtool.state.fold import Fold
from hkvtool.state.serving import absent_code, never_written

CODES = ("", *sorted(RULES))
"""Rules by their number in `Overview.code`; 0 is none."""

ON_DISK = len(a.FORMS)
"""`Overview.form` of a block whose bytes are elsewhere; the others are those of `FORMS`."""

NAMED, KNOWN, FILLED, HELD, PINNED, LOADING, HASHED = (1 << i for i in range(7))
"""Bits of `Overview.flags`: some event named the block; its state is certain; something was
written in its present generation, for every group that shares it; it is referenced; pinned; a
load into it is under way; a live hash leads to it."""

_NUMBER = {code: number for number, code in enumerate(CODES)}

_AT_ONCE = 1 << 14
"""Blocks judged at once: few enough that what is worked out about them stays in the cache."""


class Overview(NamedTuple):
    """Columns over some blocks of one pool.

    `code` is the rule that makes a block unrecoverable, a number of `CODES`, and `by` the group
    that it is of: the first that fails, where several share the block. `group` and `by` are
    numbers of the fold's, -1 for none, `owner` is one of its `req` names. `written` is the
    position of the last write in the present generation, -1 for none.
    """

    blocks: Any
    group: Any
    by: Any
    form: Any
    code: Any
    flags: Any
    owner: Any
    written: Any

    def recoverable(self) -> Any:
        """Whether a request could resume from each block as it stands."""
        return (self.code == 0) & (self.flags & FILLED > 0)


def blocks_of(pool: Pool) -> Any:
    """Every block id of a pool, those that a `remap` put beyond its count too."""
    beyond = sorted(block for block in pool.map if block >= pool.blocks)
    return np.concatenate([np.arange(max(0, pool.blocks)), np.array(beyond, np.int64)])


def overview(fold: Fold, pool: Pool, blocks: Any, group: Group | None = None) -> Overview:
    """What every one of `blocks` (ids, ascending) is, as the fold stands.

    With `group` every block is seen as that group sees it; else as the groups of the block table
    that it was allocated for do.
    """
    known = fold.overviewed(pool, blocks) if group is None else None
    return judged(fold, pool, blocks, group) if known is None else known


def judged(fold: Fold, pool: Pool, blocks: Any, group: Group | None = None) -> Overview:
    """`overview`, each block by its state."""
    count = len(blocks)
    found = Overview(
        blocks,
        np.full(count, -1, np.int16), np.full(count, -1, np.int16),
        np.full(count, ON_DISK, np.uint8), np.zeros(count, np.uint8), np.zeros(count, np.uint8),
        np.full(count, -1, np.int32), np.full(count, -1, _position(fold)),
    )  # fmt: skip
    if not len(fold.st.gen):
        return found
    columns = _Columns(fold)
    tables: dict[int, list[Group]] = {}
    for g in fold.declared.groups.values():
        if g.pool is pool and (group is None or g is group):
            tables.setdefault(g.table_id, []).append(g)
    together = fold.laid_out and count == max(0, pool.blocks)
    slots = None if together else _slots(fold, pool, blocks)
    for first in range(0, count, _AT_ONCE):
        end = min(first + _AT_ONCE, count)
        base = int(fold.st.base[pool.id])
        here = slice(base + first, base + end) if slots is None else slots[first:end]
        _look(columns, found, here, first, tables, group is not None)
    return found


def _position(fold: Fold) -> Any:
    """The type of a position: as small as the fold has it."""
    column = fold.st.wpos
    return column.dtype if isinstance(column, np.ndarray) else np.dtype(np.int64)


class _Columns:
    """The arrays of a fold as numpy's; a plain fold's lists are turned into some once."""

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self.width, self.weights = int(fold.st.h[a.COMPONENTS]), int(fold.st.h[a.EPOCH])
        self._turned: dict[str, Any] = {}
        self._hashes: tuple[Any, ...] | None = None
        self._leading: dict[int, tuple[Any, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        column = getattr(self.fold.st, name)
        if isinstance(column, np.ndarray):
            return column
        if name not in self._turned:
            self._turned[name] = np.array(column, np.int64)
        return self._turned[name]

    def components(self, slots: Any, group: Group) -> Any:
        """The places of a group's share of some slots."""
        if isinstance(slots, slice):
            shift = group.component
            return slice(slots.start * self.width + shift, slots.stop * self.width, self.width)
        return slots * self.width + group.component

    def hashes(self) -> tuple[Any, ...]:
        """Of the live hash entries: slot, whether of the content that it now has, whether that is
        of the present weights, table; and by slot when its latest hash of its generation was
        published."""
        if self._hashes is None:
            live = np.flatnonzero(self.e_live[: int(self.fold.st.h[a.ENTRIES])] == 1)
            slot = self.e_slot[live]
            same = self.e_gen[live] == self.gen[slot]
            fresh = same & (self.e_epoch[live] == self.weights)
            since = np.full(len(self.gen), np.iinfo(np.int64).max, np.int64)
            # Later entries come later, and the last assignment to a place holds.
            since[slot[same]] = self.e_pos[live[same]]
            self._hashes = slot, fresh, self.e_table[live], since
        return self._hashes

    def leading(self, group: Group) -> tuple[Any, Any]:
        """By slot: whether a live hash of the group's table leads there, and whether a good one."""
        if group.table_id not in self._leading:
            slot, fresh, table, _ = self.hashes()
            mine = (table == group.table_id) | (table == -1)
            any_, good = (np.zeros(len(self.gen), bool) for _ in range(2))
            any_[slot[mine]] = True
            good[slot[mine & fresh]] = True
            self._leading[group.table_id] = any_, good
        return self._leading[group.table_id]


def _slots(fold: Fold, pool: Pool, blocks: Any) -> Any:
    """The slots of blocks, -1 where there is none."""
    places = fold.places(pool, blocks)
    if places is not None:
        return places
    slots = np.full(len(blocks), -1, np.int64)
    named = fold.slots_of(pool)
    if named and len(blocks):
        ids = np.fromiter(named, np.int64, len(named))
        place = np.searchsorted(blocks, ids)
        inside = (place < len(blocks)) & (blocks[np.minimum(place, len(blocks) - 1)] == ids)
        slots[place[inside]] = np.fromiter(named.values(), np.int64, len(named))[inside]
    return slots


def _look(
    st: _Columns, found: Overview, slots: Any, first: int, tables: dict[int, list[Group]],
    as_one: bool,
) -> None:  # fmt: skip
    """Fill in the rows from `first` on, of blocks that have these slots: a slice where they lie
    together, so that nothing has to be gathered."""
    if isinstance(slots, slice):
        named = st.touch[slots] >= 0
        rows: Any = slice(first, first + len(named))
        if not named.all():
            there = np.flatnonzero(named)
            slots, rows = there + slots.start, there + first
    else:
        there = np.flatnonzero(slots >= 0)
        there = there[st.touch[slots[there]] >= 0]
        slots, rows = slots[there], there + first
    refs = st.refs[slots]
    if not len(refs):
        return
    found.owner[rows] = st.owner[slots]
    flags = np.full(len(refs), NAMED, np.uint8)
    known = (st.known[slots] != a.UNKNOWN) & (st.unsure[slots] == 0)
    for bit, true in (
        (KNOWN, known), (HELD, refs > 0), (PINNED, st.pins[slots] > 0),
        (LOADING, st.loads[slots] > 0), (HASHED, st.live[slots] > 0),
    ):  # fmt: skip
        flags |= true.astype(np.uint8) * np.uint8(bit)
    found.flags[rows] = flags
    table = st.table[slots]
    for number, groups in tables.items():
        mine = table == number
        if as_one:
            mine[:] = True
        elif len(tables) == 1:
            mine |= table < 0
        if mine.all():
            _see(st, found, rows, slots, groups)
        elif mine.any():
            _see(st, found, _some(rows, mine), _some(slots, mine), groups)


def _some(places: Any, mask: Any) -> Any:
    """Those of some places that a mask lets through."""
    if isinstance(places, slice):
        return np.flatnonzero(mask) + places.start
    return places[mask]


def _see(st: _Columns, found: Overview, rows: Any, slots: Any, groups: Sequence[Group]) -> None:
    """Blocks that `groups` share; the first of them names the form."""
    first = groups[0]
    found.group[rows] = first.id
    flags = found.flags[rows]
    if not first.pool.tier:
        found.form[rows] = np.where(flags & LOADING > 0, ON_DISK, first.form_number)
    count = len(flags)
    code = np.zeros(count, np.uint8)
    by = np.full(count, first.id, np.int16)
    whole = np.ones(count, bool)
    written = np.full(count, -1, np.int64)
    for group in groups:
        own, filled = _judged(st, group, slots)
        by[(code == 0) & ((own > 0) | (whole & ~filled))] = group.id
        code = np.where(code == 0, own, code)
        whole &= filled
        wrote = st.wpos[st.components(slots, group)]
        written = np.maximum(written, np.where(filled, wrote, -1))
    found.code[rows], found.by[rows], found.written[rows] = code, by, written
    found.flags[rows] = flags | whole.astype(np.uint8) * np.uint8(FILLED)


def _hashed(st: _Columns, group: Group, slots: Any) -> tuple[Any, Any]:
    """For each slot whether a live hash of the group's table leads to it, and whether only stale
    ones do. The latest hash mostly settles both."""
    live = st.live[slots] > 0
    entry = np.where(live, st.first_entry[slots], -1)
    some = entry >= 0
    if not some.any():
        return live & False, live & False
    entry = np.where(some, entry, 0)
    table = st.e_table[entry]
    good = some & (st.e_live[entry] == 1) & ((table == group.table_id) | (table == -1))
    good &= (st.e_gen[entry] == st.gen[slots]) & (st.e_epoch[entry] == st.weights)
    open_ = live & ~good
    if not open_.any():
        return good, live & False
    any_, fresh = st.leading(group)
    return good | (open_ & any_[slots]), open_ & any_[slots] & ~fresh[slots]


def _judged(st: _Columns, group: Group, slots: Any) -> tuple[Any, Any]:
    """For each slot the number of the rule that makes it unrecoverable for a group, as
    `block_state` has it, and whether something was written in its present generation."""
    c, unit = st.components(slots, group), group.block_tokens
    lo, hi, pver, vague = st.lo[c], st.hi[c], st.pver[c], st.vague[c]
    filled = (st.cgen[c] == st.gen[slots]) & (st.cid[c] > 0)
    published = st.pgen[c] == st.gen[slots]
    pub_hi = st.pub_hi[c]
    stated = published & (pub_hi != MISSING)
    first = np.where(stated, (pub_hi - 1) // unit * unit, lo - lo % unit)
    end = np.where(stated, pub_hi, first + unit)
    hashed, stale = _hashed(st, group, slots)
    held = (end <= first) | (vague == a.VAGUE)
    held |= (vague == a.COUNTED) & ((end - 1) % unit < hi)
    held |= (vague == a.POSITIONED) & (lo <= first) & (end <= hi)
    held |= (vague == a.POSITIONED) & (st.lo2[c] <= first) & (end <= st.hi2[c])
    outdated = st.epoch[c] != st.weights
    unlike = published & (pver >= 0) & (pver != st.ver[c])

    code = np.zeros(len(filled), np.uint8)
    undecided = (st.known[slots] != a.UNKNOWN) & (st.unsure[slots] == 0)

    def say(where: Any, rule: str) -> None:
        met = undecided & where
        if met.any():
            code[met] = _NUMBER[rule]
            undecided[met] = False

    table = st.table[slots]
    # Every slot here is of the group's pool, so that another table makes it foreign.
    say((table >= 0) & (table != group.table_id), "HKV601")
    say(st.loads[slots] > 0, "HKV305")
    say(stale, "HKV105")
    say(~filled & (pver == a.PENDING) & published & hashed, "HKV103")
    say(~filled, never_written(group))
    if group.form == "recurrent":
        say((vague == a.POSITIONED) & (hi != end), "HKV306")
        say(outdated, "HKV105")
    else:
        short = group.form in ("tail", "indexer")
        say(~held & ((hi <= first) | (lo >= end)), absent_code(group))
        say(~held, MISSING_FORM[group.form] if short else "HKV101")
        say(outdated, "HKV105")
        say(published & (pver == a.VOIDED) & hashed, "HKV105")
        if unlike.any():
            say(unlike & (st.cpos[c] > st.hashes()[3][slots]), "HKV105")
            say(unlike & (group.form != "indexer"), MISSING_FORM[group.form])
    if group.pool.tier:
        code[code == 0] = _NUMBER["HKV305"]
    return code, filled
