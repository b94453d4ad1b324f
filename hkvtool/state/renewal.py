"""Names of what is over, forgotten: so that a scene that follows a running engine does not grow.

Ended requests, hashes that lead nowhere and transfers that nothing remembers lose their numbers;
whatever is known of blocks stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from hkvtool.state import arrays as a
from hkvtool.state.fold import Fold
from hkvtool.state.hashes import forget_dead
from hkvtool.state.moves import Moves
from hkvtool.state.scene import Scene

OVER = "(over)"
"""Stands for every request that was forgotten: who wrote what still lies somewhere."""

_ORIGIN = 11
"""Place in a record of the arena: who wrote what is transferred (four of the transfer, then the
eighth of the content)."""

_IN_FLIGHT = 16
"""Steps that an engine may have out at once: they may still read for a request that has ended."""

_STEPS = 4096
"""Steps that are remembered."""


def size(scene: Scene) -> int:
    """How many names are held, of what is there and of what is over."""
    values = scene.fold.names.values
    return len(values["hash"]) + len(values["req"]) + len(values["handle"])


def forget(scene: Scene) -> None:
    """Forget the names of what is over."""
    fold = scene.fold
    _forget_requests(scene)
    forget_dead(fold.st)
    _forget_hashes(fold)
    _forget_transfers(fold, scene.moves)
    for steps in (scene.dispatched, scene.launched):
        for step in list(steps)[:-_STEPS]:
            del steps[step]
    del scene.lost[:-1]


def shrink(scene: Scene, before: int) -> None:
    """Forget the names of what was over before a position and left nothing behind.

    Unlike `forget`, it keeps the name of everybody who wrote or owns what still lies somewhere:
    whatever is found later is told in the same words."""
    fold = scene.fold
    st = fold.st
    forget_dead(st)
    _forget_hashes(fold)
    _forget_transfers(fold, scene.moves, before)
    writers = {*st.owner, *st.origin, *st.arena[_ORIGIN : int(st.h[a.ARENA]) : a.RECORD]}
    alive = scene.requests.by_name
    kept = {
        n for n, name in enumerate(fold.names.values["req"]) if n in writers or str(name) in alive
    }
    _renumber_requests(fold, kept)


def _renumber(fold: Fold, domain: str, kept: Iterable[int]) -> dict[int, int]:
    """Number names anew; returns the new numbers by the old ones."""
    names = fold.names
    old = names.values[domain]
    numbers = {was: now for now, was in enumerate(sorted(kept))}
    names.values[domain] = [old[was] for was in numbers]
    names.ids[domain] = {old[was]: now for was, now in numbers.items()}
    for name, extent in a.EXTENTS.items():
        if extent.per == domain:
            column = getattr(fold.st, name)
            column[:] = [column[was] for was in numbers if was < len(column)]
    return numbers


def _forget_requests(scene: Scene) -> None:
    fold, requests = scene.fold, scene.requests
    st = fold.st
    recent = min(list(scene.dispatched.values())[-_IN_FLIGHT:], default=0)
    alive = {
        n: r for n, r in requests.by_name.items()
        if r.held or r.ended is None or r.ended > recent
    }  # fmt: skip
    requests.by_name = alive
    requests.holders = {slot: held for slot, held in requests.holders.items() if held}
    over = fold.req(OVER)
    # A request's name may be written as an integer; either is told by its text.
    kept = {n for n, name in enumerate(fold.names.values["req"]) if str(name) in alive}
    numbers = _renumber_requests(fold, kept | {over})
    st.own_head[numbers[over]] = -1


def _renumber_requests(fold: Fold, kept: set[int]) -> dict[int, int]:
    """Number requests anew; what one wrote that is not kept is that of the one that stands for
    all of them."""
    st = fold.st
    width = st.h[a.TABLES]
    rows = {n: st.next_token[n * width : (n + 1) * width] for n in kept}
    numbers = _renumber(fold, "req", kept)
    stands_in = numbers.get(fold.names.find("req", OVER), -1)
    st.next_token[:] = [
        v for was in numbers for v in (rows[was] if len(rows[was]) == width else [0] * width)
    ]
    for slot, owner in enumerate(st.owner):
        if owner >= 0:
            st.owner[slot] = numbers.get(owner, -1)
            if owner not in numbers:
                st.own_prev[slot] = st.own_next[slot] = -1
    for c, origin in enumerate(st.origin):
        if origin >= 0:
            st.origin[c] = numbers.get(origin, stands_in)
    for place in range(_ORIGIN, int(st.h[a.ARENA]), a.RECORD):
        if st.arena[place] >= 0:
            st.arena[place] = numbers.get(st.arena[place], stands_in)
    return numbers


def _forget_hashes(fold: Fold) -> None:
    st = fold.st
    used = range(st.h[a.ENTRIES])
    numbers = _renumber(fold, "hash", {st.e_hash[e] for e in used})
    for e in used:
        st.e_hash[e] = numbers[st.e_hash[e]]


def _forget_transfers(fold: Fold, moves: Moves, before: int | None = None) -> None:
    """Those that nothing remembers; of them, where a position is given, that began before it."""
    events = [*moves.loads.values(), *moves.share_loads.values(), *moves.stored_to.values()]
    named = {str(event["handle"]) for event in events}
    named |= moves.running.keys()
    if before is not None:
        named |= {name for name, t in fold.transfers.items() if t.begin.pos >= before}
    for stored in moves.stored_from.values():
        named |= {str(store["handle"]) for store, _ in stored.values()}
    fold.transfers = {name: t for name, t in fold.transfers.items() if name in named}
    running = {n for n, state in enumerate(fold.st.t_state) if state == a.RUNNING}
    kept = {n for n, name in enumerate(fold.names.values["handle"]) if name in named}
    _renumber(fold, "handle", kept | running)
