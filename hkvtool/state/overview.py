"""Every block of a pool at once: what `view.block_state` says of one, as columns.

A map of a million blocks cannot ask a million questions. The predicate is `serving.block_fault`;
this is its form over arrays, and a property test holds the two equal.
"""

from __future__ import annotations

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

_NUMBER = {code: number for number, code in enumerate(CODES)}


class Overview(NamedTuple):
    """Columns over some blocks of one pool; `group` is a number of the fold's, -1 for none.

    `code` is the rule that makes a block unrecoverable, a number of `CODES`, and `by` the group
    that it is of: the first that fails, where several share the block. `filled` says that
    something was written in the present generation; `written` is the position of the last write,
    -1 for none.
    """

    blocks: Any
    slots: Any
    group: Any
    by: Any
    form: Any
    code: Any
    named: Any
    known: Any
    filled: Any
    refs: Any
    pins: Any
    loading: Any
    hashed: Any
    generation: Any
    version: Any
    written: Any
    owner: Any

    def recoverable(self) -> Any:
        """Whether a request could resume from each block as it stands."""
        return (self.code == 0) & self.filled


class Columns:
    """The arrays of a fold at one moment as numpy's, each turned into one when it is asked for.

    A plain fold keeps lists, which would be turned again and again.
    """

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self._turned: dict[str, Any] = {}
        self._entries: Any = None

    def __getattr__(self, name: str) -> Any:
        column = getattr(self.fold.st, name)
        if isinstance(column, np.ndarray):
            return column
        if name not in self._turned:
            self._turned[name] = np.array(column, np.int64)
        return self._turned[name]

    def entries(self) -> tuple[Any, Any, Any, Any]:
        """Live hash entries, in the order of their making: number, slot, whether of the content
        that the slot now has, table."""
        if self._entries is None:
            used = int(self.fold.st.h[a.ENTRIES])
            live = np.flatnonzero(self.e_live[:used] == 1)
            slot = self.e_slot[live]
            same = self.e_gen[live] == self.gen[slot]
            self._entries = live, slot, same, self.e_table[live]
        return self._entries  # type: ignore[no-any-return]


def overview(
    fold: Fold, pool: Pool, blocks: Any, group: Group | None = None, columns: Columns | None = None
) -> Overview:
    """What every one of `blocks` (ids, ascending) is, as the fold stands.

    With `group` every block is seen as that group sees it; else as the groups of the block table
    that it was allocated for do. `columns` are the fold's where they were made before.
    """
    st = columns or Columns(fold)
    slots = _slots(fold, pool, blocks)
    there = slots >= 0
    at = np.where(there, slots, 0)
    if not len(st.gen):
        there = np.zeros(len(blocks), bool)

    def of(name: str, absent: int) -> Any:
        if not len(st.gen):
            return np.full(len(blocks), absent, np.int64)
        return np.where(there, getattr(st, name)[at], absent)

    named = of("touch", -1) >= 0
    table = of("table", -1)
    found = Overview(
        blocks=blocks, slots=np.where(there, slots, -1),
        group=np.full(len(blocks), -1, np.int16), by=np.full(len(blocks), -1, np.int16),
        form=np.full(len(blocks), ON_DISK, np.uint8), code=np.zeros(len(blocks), np.uint8),
        named=named, known=named & (of("known", a.UNKNOWN) != a.UNKNOWN) & (of("unsure", 0) == 0),
        filled=np.zeros(len(blocks), bool), refs=of("refs", 0), pins=of("pins", 0),
        loading=of("loads", 0) > 0, hashed=of("live", 0) > 0, generation=of("gen", 0),
        version=np.zeros(len(blocks), np.int64), written=np.full(len(blocks), -1, np.int64),
        owner=of("owner", -1),
    )  # fmt: skip
    groups = [g for g in fold.declared.groups.values() if g.pool is pool]
    if group is not None:
        _see(fold, st, found, np.flatnonzero(named), [group])
        return found
    tables: dict[int, list[Group]] = {}
    for g in groups:
        tables.setdefault(g.table_id, []).append(g)
    for number, mates in tables.items():
        mine = table == number
        if len(tables) == 1:
            mine |= table < 0
        _see(fold, st, found, np.flatnonzero(named & mine), mates)
    return found


def blocks_of(pool: Pool) -> Any:
    """Every block id of a pool, those that a `remap` put beyond its count too."""
    beyond = sorted(block for block in pool.map if block >= pool.blocks)
    return np.concatenate([np.arange(max(0, pool.blocks)), np.array(beyond, np.int64)])


def _slots(fold: Fold, pool: Pool, blocks: Any) -> Any:
    if isinstance(fold.st.gen, np.ndarray):
        return blocks + int(fold.st.base[pool.id])
    slots = np.full(len(blocks), -1, np.int64)
    named = fold.slots_of(pool)
    if len(named) and len(blocks):
        ids = np.fromiter(named, np.int64, len(named))
        place = np.searchsorted(blocks, ids)
        inside = (place < len(blocks)) & (blocks[np.minimum(place, len(blocks) - 1)] == ids)
        slots[place[inside]] = np.fromiter(named.values(), np.int64, len(named))[inside]
    return slots


def _see(fold: Fold, st: Columns, found: Overview, rows: Any, groups: list[Group]) -> None:
    """Fill in the rows of blocks that `groups` share; the first of them names the form."""
    if not len(rows):
        return
    slots = found.slots[rows]
    first = groups[0]
    found.group[rows] = first.id
    if not first.pool.tier:
        found.form[rows] = np.where(found.loading[rows], ON_DISK, first.form_number)
    code = np.zeros(len(rows), np.uint8)
    by = np.full(len(rows), first.id, np.int16)
    whole = np.ones(len(rows), bool)
    written = np.full(len(rows), -1, np.int64)
    for group in groups:
        own, filled = judged(fold, st, group, slots)
        fails = (code == 0) & ((own > 0) | (whole & ~filled))
        by[fails] = group.id
        code = np.where(code == 0, own, code)
        whole &= filled
        c = slots * int(fold.st.h[a.COMPONENTS]) + group.component
        written = np.maximum(written, np.where(filled, st.wpos[c], -1))
        if group is first:
            found.version[rows] = np.where(filled, st.ver[c], 0)
    found.code[rows], found.by[rows] = code, by
    found.filled[rows], found.written[rows] = whole, written


def judged(fold: Fold, st: Columns, group: Group, slots: Any) -> tuple[Any, Any]:
    """For each slot the number of the rule that makes it unrecoverable for a group, as
    `block_state` has it, and whether something was written in its present generation."""
    c = slots * int(fold.st.h[a.COMPONENTS]) + group.component
    gen, unit = st.gen[slots], group.block_tokens
    lo, hi, pver, vague = st.lo[c], st.hi[c], st.pver[c], st.vague[c]
    known = (st.known[slots] != a.UNKNOWN) & (st.unsure[slots] == 0)
    filled = (st.cgen[c] == gen) & (st.cid[c] > 0)
    published = st.pgen[c] == gen
    pub_hi = st.pub_hi[c]
    stated = published & (pub_hi != MISSING)
    first = np.where(stated, (pub_hi - 1) // unit * unit, lo - lo % unit)
    end = np.where(stated, pub_hi, first + unit)
    stale, hashed, newer = _hashes(st, group, slots, st.cpos[c])

    held = (end <= first) | (vague == a.VAGUE)
    held |= (vague == a.COUNTED) & ((end - 1) % unit < hi)
    held |= (vague == a.POSITIONED) & (lo <= first) & (end <= hi)
    held |= (vague == a.POSITIONED) & (st.lo2[c] <= first) & (end <= st.hi2[c])
    elsewhere = (hi <= first) | (lo >= end)
    short = MISSING_FORM[group.form] if group.form in ("tail", "indexer") else "HKV101"
    outdated = st.epoch[c] != int(fold.st.h[a.EPOCH])
    unlike = published & (pver >= 0) & (pver != st.ver[c])
    told = 0 if group.form == "indexer" else _NUMBER[MISSING_FORM[group.form]]

    code = np.zeros(len(slots), np.uint8)
    open_ = known.copy()

    def say(where: Any, number: Any) -> None:
        nonlocal open_
        met = open_ & where
        code[met] = number[met] if isinstance(number, np.ndarray) else number
        open_ &= ~met

    table = st.table[slots]
    # A block of another pool is never foreign, and every slot here is of the group's.
    say((table >= 0) & (table != group.table_id), _NUMBER["HKV601"])
    say(st.loads[slots] > 0, _NUMBER["HKV305"])
    say(stale, _NUMBER["HKV105"])
    say(~filled & (pver == a.PENDING) & published & hashed, _NUMBER["HKV103"])
    say(~filled, _NUMBER[never_written(group)])
    if group.form == "recurrent":
        say((vague == a.POSITIONED) & (hi != end), _NUMBER["HKV306"])
        say(outdated, _NUMBER["HKV105"])
    else:
        say(~held & elsewhere, _NUMBER[absent_code(group)])
        say(~held, _NUMBER[short])
        say(outdated, _NUMBER["HKV105"])
        say(published & (pver == a.VOIDED) & hashed, _NUMBER["HKV105"])
        say(unlike & newer, _NUMBER["HKV105"])
        say(unlike, told)
    if group.pool.tier:
        code[code == 0] = _NUMBER["HKV305"]
    return code, filled


def _hashes(st: Columns, group: Group, slots: Any, content: Any) -> tuple[Any, Any, Any]:
    """For each slot whether only stale hashes of the group's table lead to it, whether any does,
    and whether its content is newer than the latest hash of its generation."""
    entry, slot, same, table = st.entries()
    size = len(st.gen)
    mine = (table == group.table_id) | (table == -1)
    any_, good = np.zeros(size, bool), np.zeros(size, bool)
    any_[slot[mine]] = True
    fresh = same & (st.e_epoch[entry] == int(st.fold.st.h[a.EPOCH]))
    good[slot[mine & fresh]] = True
    since = np.full(size, np.iinfo(np.int64).max, np.int64)
    # Later entries come later, and the last assignment to a place holds.
    since[slot[same]] = st.e_pos[entry[same]]
    hashed = any_[slots] & (st.live[slots] > 0)
    return hashed & ~good[slots], hashed, content > since[slots]
