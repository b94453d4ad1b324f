"""A `state` event: what held when a recording began or went on.

Counts where they are stated, content without positions, and the hashes that lead to each block.
Declared groups only: what a group holds that is declared later was never said.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hkvtool.model.event import Event
from hkvtool.model.rows import MISSING, NO_NAME
from hkvtool.state import arrays as a
from hkvtool.state import blocks, content, hashes

if TYPE_CHECKING:
    from hkvtool.state.declarations import Pool
    from hkvtool.state.fold import Fold

_ALIGNED = ("refs", "gens", "hashes", "versions", "written", "owners", "groups")


def owners(event: Event) -> Iterator[str | int]:
    """The holders that a `state` event names, in order."""
    for name in event.get("owners") or ():
        if _is_name(name):
            yield name


def hash_names(event: Event) -> Iterator[str | int]:
    """The hashes that a `state` event names, in order."""
    for one in event.get("hashes") or ():
        for name in one if isinstance(one, list) else [one]:
            if _is_name(name):
                yield name


def _is_name(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


def fault(event: Event, pool: Pool) -> str | None:
    """Why a `state` event is impossible as written, or None."""
    blocks = event["blocks"]
    for key in _ALIGNED:
        values = event.get(key)
        if values is not None and len(values) != len(blocks):
            return f"{len(values)} {key} for {len(blocks)} blocks"
    for block in blocks:
        if block < 0 or not pool.has(block):
            return f"block {block} is beyond pool {pool.name!r}"
    for key in ("hashes", "owners", "groups"):
        for value in event.get(key) or ():
            for name in value if key == "hashes" and isinstance(value, list) else [value]:
                if name is not None and not _is_name(name):
                    return f"{name!r} in `{key}` is no name"
    return None


def take(fold: Fold, event: Event, pool: Pool) -> None:
    """Fold a `state` event that has no fault."""
    st = fold.st
    columns: dict[str, list[Any]] = {
        key: event.get(key) or [None] * len(event["blocks"]) for key in _ALIGNED
    }
    for i, block in enumerate(event["blocks"]):
        slot = fold.slot(pool, block)
        told = {key: values[i] for key, values in columns.items()}
        _take_block(fold, event.pos, slot, told)
        st.unhashed[slot] = int("hashes" not in event)
        if "hashes" in event:
            _lead_to(fold, event.pos, slot, told["hashes"])
    for block in reversed(event.get("free_order") or ()):
        slot = fold.slot(pool, block)
        if slot >= 0 and st.refs[slot] <= 0:
            st.touch[slot] = event.pos
            blocks.unlink_free(st, slot)
            blocks.prepend_free(st, slot)


def _take_block(fold: Fold, pos: int, slot: int, told: dict[str, Any]) -> None:
    st = fold.st
    group = fold.group(told["groups"])
    st.gen[slot] = told["gens"] if told["gens"] is not None else max(1, st.gen[slot])
    st.touch[slot] = pos
    st.unsure[slot] = 0
    if told["refs"] is not None:
        st.known[slot] = a.FROM_STATE
        st.refs[slot] = told["refs"]
        blocks.unlink_free(st, slot)
        if told["refs"] == 0:
            blocks.append_free(st, slot)
    if told["owners"] is not None:
        blocks.set_owner(st, slot, fold.req(told["owners"]))
    if group is not None:
        st.table[slot] = group.table_id
    for k in range(st.h[a.USED]):
        c = slot * st.h[a.COMPONENTS] + k
        content.void(st, c)
        st.cgen[c] = st.gen[slot]
        if told["written"] != 0:
            st.cid[c] = content.fresh(st)
            st.vague[c] = a.VAGUE
            st.origin[c] = NO_NAME
            st.epoch[c] = st.h[a.EPOCH]
            if told["written"] is not None and group is not None:
                if group.form not in ("recurrent", "tail"):
                    st.vague[c] = a.COUNTED
                    st.hi[c] = told["written"]
        if told["versions"] is not None:
            st.ver[c] = told["versions"]


def _lead_to(fold: Fold, pos: int, slot: int, told: Any) -> None:
    """These hashes lead to the block, and no others."""
    st = fold.st
    named = told if isinstance(told, list) else [told]
    wanted = dict.fromkeys(fold.hash(name) for name in named if name is not None)
    entry = st.first_entry[slot]
    while entry >= 0:
        if st.e_live[entry] == 1:
            if st.e_hash[entry] in wanted and st.e_gen[entry] == st.gen[slot]:
                del wanted[st.e_hash[entry]]
            else:
                hashes.bury(st, entry)
        entry = st.e_next_slot[entry]
    hashes.prune_slot(st, slot)
    fold.make_room("entry", st.h[a.ENTRIES] + len(wanted))
    for number in wanted:
        hashes.publish_one(fold.st, slot, st.table[slot], number, MISSING, pos)
