"""Traces as recorders leave them behind: cut off, begun midway, described anew, with losses."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from hkvtool.model.event import Event
from hkvtool.state import arrays as a
from hkvtool.state.fold import Fold

Lines = list[dict[str, Any]]

_DECLARING = frozenset({"trace", "evidence", "pool", "group", "kernel", "limits", "weights"})

_ENDS = ("store_end", "load_end")


def described(lines: Lines, place: int, pool: str, blocks: range, *, gens: bool) -> dict[str, Any]:
    """The `state` of blocks of a pool as a fold has it behind the first lines."""
    fold = Fold()
    for number, line in enumerate(lines[:place], 1):
        fold.apply(Event.of(number, line))
    st, declared = fold.st, fold.declared
    known = fold.slots_of(declared.pools[pool])
    tables = {g.table_id: g.name for g in declared.groups.values() if g.pool.name == pool}
    hashes: dict[int, list[Any]] = {}
    for entry in range(st.h[a.ENTRIES]):
        if st.e_live[entry] == 1:
            name = fold.names.name("hash", st.e_hash[entry])
            hashes.setdefault(st.e_slot[entry], []).append(name)
    named = [b for b in blocks if b in known and b not in declared.pools[pool].reserved]
    slots = [known[b] for b in named]
    told: dict[str, Any] = {
        "ev": "state", "pool": pool, "blocks": named,
        "refs": [max(0, st.refs[s]) for s in slots],
        "hashes": [hashes.get(s) for s in slots],
        "owners": [
            fold.names.name("req", st.owner[s]) if st.owner[s] >= 0 and st.refs[s] > 0 else None
            for s in slots
        ],
        "groups": [tables.get(st.table[s]) for s in slots],
    }  # fmt: skip
    if gens:
        told["gens"] = [st.gen[s] for s in slots]
    return told


def _pools(lines: Lines) -> dict[str, int]:
    return {line["pool"]: line["blocks"] for line in lines if line["ev"] == "pool"}


def cut_off(lines: Lines, rng: Random) -> Lines:
    """The process was killed: some transfer never ends, where there are any."""
    ends = [n for n, line in enumerate(lines) if line["ev"] in _ENDS]
    return lines[: rng.choice(ends) if ends else rng.randrange(len(lines) // 2, len(lines))]


def ends_lost(lines: Lines, rng: Random) -> Lines:
    """Some transfers never end, and the trace goes on."""
    ends = [n for n, line in enumerate(lines) if line["ev"] in _ENDS]
    gone = set(rng.sample(ends, min(len(ends), rng.choice((1, 2, 5)))))
    return [line for n, line in enumerate(lines) if n not in gone]


def described_again(lines: Lines, rng: Random) -> Lines:
    """The recording paused and went on: what it finds is told anew, more than once maybe."""
    out = list(lines)
    for _ in range(rng.choice((1, 2, 3))):
        at = rng.randrange(len(out) // 4, len(out))
        gens = rng.random() < 0.4
        for pool, size in _pools(lines).items():
            first = rng.choice((0, 0, size // 2))
            out.insert(at, described(out, at, pool, range(first, size), gens=gens))
    return out


def begun_midway(lines: Lines, rng: Random) -> Lines:
    """A flight recorder: its beginning is overwritten, and blocks are described a few at a time."""
    at = rng.randrange(len(lines) // 4, 3 * len(lines) // 4)
    out = [line for line in lines[:at] if line["ev"] in _DECLARING]
    rounds, rest = rng.choice((1, 4, 8)), len(lines) - at
    for turn in range(rounds):
        begin, end = (at + n * rest // (3 * rounds) for n in (turn, turn + 1))
        for pool, size in _pools(lines).items():
            blocks = range(turn * size // rounds, (turn + 1) * size // rounds)
            out.append(described(lines, begin, pool, blocks, gens=False))
        out += lines[begin : len(lines) if turn == rounds - 1 else end]
    return out


def losing(lines: Lines, rng: Random) -> Lines:
    """The recorder could not keep up: events of a lane are missing, once or more."""
    out = list(lines)
    for _ in range(rng.choice((1, 2, 3))):
        begun = next(n for n, line in enumerate(out) if line["ev"] not in _DECLARING)
        first = rng.randrange(begun, len(out) - 1)
        lane, count = out[first].get("actor"), rng.choice((1, 2, 5, 12, 30))
        told = {"ev": "dropped", "count": count, "actor": lane or "sched"}
        if rng.random() < 0.2:
            told["pool"] = rng.choice(list(_pools(lines)))
        rest = out[first:]
        lost = [n for n, line in enumerate(rest) if line.get("actor") == lane][:count]
        out = [*out[:first], told, *(line for n, line in enumerate(rest) if n not in set(lost))]
    return out


def asleep(lines: Lines, rng: Random) -> Lines:
    """The engine sleeps and wakes, now and then where something is under way."""
    out = list(lines)
    for _ in range(rng.choice((1, 2))):
        begun = next(n for n, line in enumerate(out) if line["ev"] not in _DECLARING)
        places = [n for n, line in enumerate(out) if line["ev"] in ("retire", "finish")]
        at = rng.choice(places) + 1 if places and rng.random() < 0.9 else begun
        pool = rng.choice(list(_pools(lines)))
        reasons = rng.choice((("sleep", "wake"), ("sleep", "wake"), ("realloc",), ("sleep",)))
        out[at:at] = [{"ev": "rebase", "pool": pool, "reason": reason} for reason in reasons]
    return out


RECORDED: dict[str, Callable[[Lines, Random], Lines]] = {
    "cut off": cut_off,
    "ends lost": ends_lost,
    "described again": described_again,
    "begun midway": begun_midway,
    "losing": losing,
    "asleep": asleep,
}
