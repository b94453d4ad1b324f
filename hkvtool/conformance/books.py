"""What an engine itself holds for true of a pool, beside what the fold says of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hkvtool.state.fold import Fold
from hkvtool.state.serving import live_entries


@dataclass(frozen=True)
class Books:
    """The engine's own books of one pool at one moment, read from the engine and not from what its
    adapter keeps.

    `refs`: references by block id; a block that is left out has none. `hashes`: the hashes that
    lead to each block, and `pins`: pin counts; None where the engine has no such thing.
    """

    refs: Mapping[int, int]
    hashes: Mapping[int, Collection[Any]] | None = None
    pins: Mapping[int, int] | None = None


def differences(
    fold: Fold, pool: str, books: Books, keyed: Callable[[Any], str] = str
) -> Iterator[str]:
    """Everything in which the engine's books and the fold differ, in words. `keyed` makes of a
    hash what the adapter makes of it."""
    known = fold.declared.pools.get(pool)
    if known is None:
        yield f"{pool}: the engine has this pool, and no `pool` event told of it"
        return
    st, slots = fold.st, fold.slots_of(known)
    blocks = sorted({*slots, *books.refs, *(books.hashes or ()), *(books.pins or ())})
    for block in blocks:
        slot = slots.get(block)
        told = 0 if slot is None else int(st.refs[slot])
        if told != books.refs.get(block, 0):
            has = books.refs.get(block, 0)
            yield f"{pool} block {block}: the engine counts {has} references, the fold {told}"
        if books.pins is not None:
            pins = 0 if slot is None else int(st.pins[slot])
            if pins != books.pins.get(block, 0):
                has = books.pins.get(block, 0)
                yield f"{pool} block {block}: the engine counts {has} pins, the fold {pins}"
        if books.hashes is not None:
            mine = {keyed(h) for h in books.hashes.get(block, ())}
            seen = set() if slot is None else _hashes(fold, slot)
            if mine != seen:
                yield (
                    f"{pool} block {block}: in the engine {_named(mine)} lead to it, in the fold "
                    f"{_named(seen)}"
                )


def _hashes(fold: Fold, slot: int) -> set[str]:
    entries = live_entries(fold, slot)
    return {str(fold.names.name("hash", fold.st.e_hash[entry])) for entry in entries}


def _named(hashes: set[str]) -> str:
    return ", ".join(sorted(hashes)) if hashes else "no hashes"
