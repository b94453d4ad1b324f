"""What an engine gave to pools that other engines use too, and what it took from there.

It is the part of a trace that is held against the traces of other engines: small beside the trace,
so that it can be sent from where the trace lies to where all of them are brought together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from hkvtool.analyzers.keys import inputs
from hkvtool.model.clocks import WallClock
from hkvtool.model.event import Event
from hkvtool.model.rows import MISSING
from hkvtool.state.blocks import generation
from hkvtool.state.declarations import Group, Pool
from hkvtool.state.fold import Fold
from hkvtool.store.trace import Trace

T = TypeVar("T")

_FOLDED = frozenset({"trace", "evidence", "state", "pool", "group", "remap", "rebase", "weights",
                     "alloc", "publish", "unpublish", "reset", "dispatch"})  # fmt: skip
_KINDS = _FOLDED | {"lookup", "resume", "store_begin", "store_end", "load_begin", "load_end",
                    "fingerprint"}  # fmt: skip
"""What tells under which hash a block goes; what it holds is the other rules' business."""


DIRECT = "\0direct"
"""Stands for the pool of transfers that name none: they go from device to device, and whatever an
engine publishes there and did not load itself can be where they come from."""


BELOW = "\0below "
"""Stands, before the name of a pool that each engine has for itself, for what lies below it and is
one and the same to all: content is known there by its hash, places are each engine's own."""


class Moment(NamedTuple):
    """An event of a trace: where it stands, and when it was by that trace's clock."""

    pos: int
    ts: int | None


@dataclass(slots=True)
class Moved:
    """One transfer between an engine and a shared pool, as that engine saw it.

    Lists are aligned with `blocks`; None in them is what nothing tells. `group` and `table` are
    the device's, whichever side of the pool the transfer names. `check` is the lookup or resume
    that chose what is loaded.
    """

    out: bool
    handle: str
    pool: str
    group: str
    table: str
    blocks: list[int]
    begin: Moment
    places: list[int] | None = None
    hashes: list[str | None] = field(default_factory=list)
    prints: list[Any] = field(default_factory=list)
    end: Moment | None = None
    ok: bool = True
    failed: frozenset[int] = frozenset()
    req: str | None = None
    tokens: tuple[int, int] | None = None
    version: int | None = None
    kv_version: int | None = None
    codec: str | None = None
    bytes: int | None = None
    whole: bool = True
    """No `part` of the blocks, so that sizes of both sides can be compared."""
    key: frozenset[str] | None = None
    weights: str | None = None
    check: Moment | None = None

    def arrived(self, i: int) -> bool:
        """Whether a block is known to have made the way."""
        return self.end is not None and self.ok and self.blocks[i] not in self.failed


@dataclass(frozen=True, slots=True)
class Gone:
    """What an engine took out of a shared pool: a hash that leads nowhere any more, or a place
    that is given to other content. With neither, everything."""

    pool: str
    table: str | None
    at: Moment
    hash: str | None = None
    place: int | None = None


@dataclass(slots=True)
class Exchanges:
    """All of it, of one engine."""

    clock: WallClock | None = None
    moved: list[Moved] = field(default_factory=list)
    gone: list[Gone] = field(default_factory=list)
    groups: dict[str, Group] = field(default_factory=dict)
    """Groups that were moved, as they were declared."""


def exchanges(trace: Trace, shared: frozenset[str]) -> Exchanges:
    """What a trace tells of pools of these names."""
    reading = _Reading(shared)
    pools = {str(e.get("pool")) for e in trace.control if e.ev == "pool"}
    if shared & {DIRECT, *pools, *(BELOW + name for name in pools)}:
        reading.take(trace.events(kinds=_KINDS))
    return reading.found


class _Reading:
    """Goes through a trace once."""

    def __init__(self, shared: frozenset[str]) -> None:
        self.shared = shared
        self.fold = Fold()
        self.found = Exchanges()
        self._running: dict[str, Moved] = {}
        self._last_load: dict[tuple[str, int], tuple[Moved, int]] = {}
        self._device: dict[tuple[str, int], tuple[Moved, int]] = {}
        self._printed: dict[tuple[str, int], Any] = {}
        self._keys: dict[tuple[str, str], frozenset[str]] = {}
        self._asked: dict[str, tuple[Moment, Event]] = {}
        self._resumed: dict[str, Moment] = {}
        self._weights: str | None = None
        self._homes: dict[str, Group] = {}

    def take(self, events: Iterable[Event]) -> None:
        steps = {
            "trace": self._trace, "weights": self._weighed, "alloc": self._allocated,
            "publish": self._published, "unpublish": self._unpublished, "reset": self._reset,
            "lookup": self._looked_up, "resume": self._resume, "store_begin": self._begun,
            "load_begin": self._begun, "store_end": self._ended, "load_end": self._ended,
            "fingerprint": self._fingerprint,
        }  # fmt: skip
        for event in events:
            if event.problem is not None:
                continue
            step = steps.get(event.ev)
            if step is not None:
                step(event)
            if event.ev in _FOLDED:
                self.fold.apply(event)
                if event.ev in ("pool", "group"):
                    self._homes.clear()

    # --- declarations and hashes -------------------------------------------------------------

    def _trace(self, event: Event) -> None:
        self.found.clock = self.found.clock or WallClock.of(event.get("clock"))

    def _weighed(self, event: Event) -> None:
        self._weights = str(event["version"])

    def _home(self, group: Group) -> Group:
        """The device's group whose copies on a lower pool a group stands for."""
        if not group.pool.tier:
            return group
        known = self._homes.get(group.name)
        if known is None:
            declared = self.fold.declared
            known = next(
                (g for g in declared.groups.values()
                 if not g.pool.tier and declared.mirror(g, group.pool) is group),
                group,
            )  # fmt: skip
            self._homes[group.name] = known
        return known

    def _shared(self, group: Group | None, pool: Pool | None = None) -> bool:
        pool = pool or (group.pool if group else None)
        return pool is not None and pool.name in self.shared

    def _hash(self, group: Group, block: int, step: int | None = None) -> str | None:
        """The hash under which a block's content goes, be it live or not."""
        slot = self.fold.slot(group.pool, block)
        if slot < 0:
            return None
        st = self.fold.st
        held = generation(st, slot, MISSING if step is None else step)
        entry = st.first_entry[slot]
        while entry >= 0:
            if st.e_gen[entry] == held and st.e_table[entry] in (group.table_id, -1):
                return str(self.fold.names.name("hash", st.e_hash[entry]))
            entry = st.e_next_slot[entry]
        return None

    def _allocated(self, event: Event) -> None:
        group, pool = self.fold.place(event)
        mates = self.fold.declared.mates(group) if group is not None else []
        for block in event["blocks"]:
            for mate in mates:
                self._last_load.pop((mate.name, block), None)
                self._device.pop((mate.name, block), None)
            if pool is not None and pool.name in self.shared:
                self.found.gone.append(Gone(pool.name, None, _at(event), place=block))

    def _published(self, event: Event) -> None:
        group = self.fold.group(event["group"])
        if group is None:
            return
        home = self._home(group)
        for block, name in zip(event["blocks"], event["hashes"], strict=False):
            if event.get("key") is not None:
                self._keys[home.table, str(name)] = inputs(event["key"])
            self._named(group, home, block, str(name))
        if DIRECT in self.shared and not group.pool.tier:
            self._on_device(event, group)

    def _on_device(self, event: Event, group: Group) -> None:
        """What an engine computed and others may fetch, for every group of the table."""
        mates = self.fold.declared.mates(group)
        for mate in mates:
            own = [
                (block, str(name))
                for block, name in zip(event["blocks"], event["hashes"], strict=False)
                if (mate.name, block) not in self._last_load
            ]
            if not own:
                continue
            blocks = [block for block, _ in own]
            key = event.get("key")
            moved = Moved(
                True, f"publish {event.pos}", DIRECT, mate.name, mate.table, blocks, _at(event),
                None, [name for _, name in own], [None] * len(own), _at(event), req=event.req,
                version=event.get("version") if len(mates) == 1 else None,
                key=None if key is None else inputs(key), weights=self._weights,
            )  # fmt: skip
            self.found.moved.append(moved)
            self.found.groups[mate.name] = mate
            self._device.update({(mate.name, b): (moved, i) for i, b in enumerate(blocks)})

    def _named(self, group: Group, home: Group, block: int, name: str) -> None:
        """A hash that is said only behind the transfer is that of what was moved."""
        if group is home:
            for moved, i in self._loads_of(group, block):
                moved.hashes[i] = moved.hashes[i] or name
        elif group.pool.name in self.shared:
            for moved in reversed(self.found.moved[-_BEHIND:]):
                if moved.out and moved.table == home.table and block in (moved.places or ()):
                    i = (moved.places or []).index(block)
                    moved.hashes[i] = moved.hashes[i] or name
                    moved.key = moved.key or self._keys.get((home.table, name))

    def _loads_of(self, group: Group, block: int) -> list[tuple[Moved, int]]:
        mates = {g.name for g in self.fold.declared.mates(group)}
        known = (self._last_load.get((name, block)) for name in mates)
        return [one for one in known if one is not None]

    def _unpublished(self, event: Event) -> None:
        group = self.fold.group(event.get("group"))
        if event.get("reason") == "promote":
            return
        if group is not None and not self._shared(group):
            return
        names = [str(name) for name in event.get("hashes") or ()]
        if not names and group is not None:
            found = (self._hash(group, block) for block in event.get("blocks") or ())
            names = [name for name in found if name is not None]
        pools = [group.pool.name] if group is not None else sorted(self.shared)
        for pool in pools:
            table = self._home(group).table if group is not None else None
            self.found.gone += [Gone(pool, table, _at(event), name) for name in names]

    def _reset(self, event: Event) -> None:
        for pool in sorted(self.shared):
            if str(event.get("pool", pool)) == pool:
                self.found.gone.append(Gone(pool, None, _at(event)))

    # --- transfers ---------------------------------------------------------------------------

    def _looked_up(self, event: Event) -> None:
        _latest(self._asked, str(event["req"]), (_at(event), event))

    def _resume(self, event: Event) -> None:
        _latest(self._resumed, str(event["req"]), _at(event))

    def _begun(self, event: Event) -> None:
        group = self.fold.group(event["group"])
        out = event.ev == "store_begin"
        pool = str(event.get("to" if out else "from", DIRECT))
        below = BELOW + pool in self.shared
        if group is None or (pool not in self.shared and not below):
            return
        pool = BELOW + pool if below else pool
        home, blocks = self._home(group), list(event["blocks"])
        said_places = None if below else event.get("peer")
        places = None if said_places is None else list(said_places)
        whole = places is not None and len(places) == len(blocks)
        moved = Moved(
            out, str(event["handle"]), pool, home.name, home.table, blocks, _at(event),
            places if whole else None, [None] * len(blocks), [None] * len(blocks),
            req=event.req, tokens=_pair(event.get("tokens")), version=event.get("version"),
            kv_version=event.get("kv_version"), codec=_text(event.get("codec")),
            bytes=event.get("bytes"), whole="part" not in event, weights=self._weights,
        )  # fmt: skip
        self._running[moved.handle] = moved
        self.found.moved.append(moved)
        self.found.groups[home.name] = home
        said = event.get("hashes")
        if said is not None and len(said) == len(blocks):
            moved.hashes = [str(name) for name in said]
        elif out:
            moved.hashes = [self._hash(group, block, event.step) for block in blocks]
            moved.prints = [self._printed.pop((group.name, block), None) for block in blocks]
        key = event.get("key")
        if not out:
            self._load(moved, home, key is None)
        if key is not None:
            moved.key = inputs(key)
        elif out:
            known = (self._keys.get((home.table, name)) for name in moved.hashes if name)
            moved.key = next((one for one in known if one is not None), None)

    def _load(self, moved: Moved, home: Group, by_lookup: bool) -> None:
        """What the lookup behind a load believed to find where. An engine may publish before it
        loads: then the hash is known by now, and what it leads to is not of its own making."""
        for i, block in enumerate(moved.blocks):
            self._last_load[home.name, block] = moved, i
            mine = self._device.pop((home.name, block), None)
            if mine is not None:
                mine[0].hashes[mine[1]] = None
            moved.hashes[i] = moved.hashes[i] or self._hash(home, block)
        asked = self._asked.get(moved.req or "")
        if asked is None:
            moved.check = self._resumed.get(moved.req or "")
            return
        moved.check, lookup = asked
        if by_lookup and lookup.get("key") is not None:
            moved.key = inputs(lookup["key"])
        names = _by_place(self.fold, lookup, moved.pool, home.table, self._home)
        for i, place in enumerate(moved.places or ()):
            moved.hashes[i] = moved.hashes[i] or names.get(place)

    def _ended(self, event: Event) -> None:
        moved = self._running.pop(str(event["handle"]), None)
        if moved is not None:
            moved.end = _at(event)
            moved.failed = frozenset(event.get("failed") or ())
            moved.ok = bool(event.get("ok", True)) or bool(moved.failed)

    def _fingerprint(self, event: Event) -> None:
        group = self.fold.group(event["group"])
        if group is None or event["at"] not in ("publish", "store", "load", "resume"):
            return
        if "part" in event:
            # Each part is its worker's own: what one engine calls so need not be another's.
            return
        last = {"load": self._last_load, "publish": self._device,
                "resume": self._last_load}.get(event["at"])  # fmt: skip
        for block, value in zip(event["blocks"], event["values"], strict=False):
            if last is not None:
                known = last.get((group.name, block))
                # What goes on from a load reads what it has brought.
                if known is not None and (event["at"] != "resume" or known[0].end is not None):
                    known[0].prints[known[1]] = value
                continue
            for moved in self._running.values():
                if moved.out and moved.group == self._home(group).name and block in moved.blocks:
                    moved.prints[moved.blocks.index(block)] = value
                    break
            else:
                self._printed[group.name, block] = value


_BEHIND = 256
"""Transfers back that a hash may be said of: a tier publishes what it stored when it has it."""


_ASKED = 1 << 16
"""Requests whose last lookup is remembered."""


def _latest(known: dict[str, T], name: str, value: T) -> None:
    """Put a value last in a dictionary that keeps only so many."""
    known.pop(name, None)
    known[name] = value
    if len(known) > _ASKED:
        del known[next(iter(known))]


def _by_place(
    fold: Fold, lookup: Event, pool: str, table: str, home: Callable[[Group], Group]
) -> Mapping[int, str]:
    """Hashes that a lookup found, by their place in a pool."""
    found: dict[int, str] = {}
    places: Mapping[str, Sequence[int]] = lookup.get("blocks") or {}
    for name, hashes in (lookup.get("hashes") or {}).items():
        group = fold.group(name)
        if group is None or group.pool.name != pool or home(group).table != table:
            continue
        # Right-aligned: a window group lists only its window.
        blocks = places.get(name) or ()
        for place, one in zip(reversed(blocks), reversed(hashes), strict=False):
            found[place] = str(one)
    return found


def _at(event: Event) -> Moment:
    ts = event.get("ts")
    return Moment(event.pos, ts if isinstance(ts, int) else None)


def _pair(value: Any) -> tuple[int, int] | None:
    return None if value is None else (value[0], value[1])


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
