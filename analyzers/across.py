"""What one engine loaded against what others exported: the rules between engines, after the merge.

A load is explained where some engine exported the same content (hash, and place where both name
one), that export had ended, and nobody took it away before the load. Only where no recorded export
explains it, and one is known that would have to, there is a finding. Times of different engines
compare as far as their clocks allow; what they leave open is said to be open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from hkvtool.analyzers.exchanges import BELOW, DIRECT, Exchanges, Gone, Moment, Moved
from hkvtool.analyzers.kernel_abi import ORDER, unlike_sides
from hkvtool.model.findings import Finding
from hkvtool.state.wording import of_blocks

CODES = ("HKV102", "HKV103", "HKV104", "HKV105", "HKV203", "HKV304", "HKV402", "HKV701", "HKV702",
         "HKV906")  # fmt: skip
"""Rules that are evaluated on what one engine loads and another exported."""

_NEEDS = {
    "HKV104": ("key",), "HKV105": ("weights", "version"), "HKV201": ("layout",),
    "HKV203": ("layout", "codec"), "HKV204": ("layout",), "HKV205": ("layout",),
    "HKV304": ("kv_version",), "HKV402": ("size",), "HKV906": ("fingerprint",),
}  # fmt: skip
"""What of a load both sides must tell so that a rule can be asked of it, any of these."""

_BY_TIER = frozenset(
    {"HKV102", "HKV105", "HKV201", "HKV203", "HKV204", "HKV205", "HKV701", "HKV702"}
)
"""Rules that what is known of a pool answers too, or alone."""

SKEW = 50_000_000
"""Nanoseconds by which the wall clocks of two machines may be apart, unless somebody knows."""


class Side(NamedTuple):
    """One block of one transfer of one instance."""

    instance: str
    moved: Moved
    i: int

    @property
    def hash(self) -> str | None:
        return self.moved.hashes[self.i]

    @property
    def place(self) -> int | None:
        return self.moved.places[self.i] if self.moved.places is not None else None

    @property
    def print(self) -> Any:
        return self.moved.prints[self.i]


class Taken(NamedTuple):
    """Something that an instance took out of a shared pool."""

    instance: str
    gone: Gone


class When(Enum):
    """How two moments lie."""

    BEFORE = "before"
    AFTER = "after"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Wrong:
    """What one load has against one export, of one rule; `rival` is who came between."""

    code: str
    why: str
    load: Side
    export: Side
    rival: tuple[str, int] | None = None
    believed: tuple[tuple[str, Any], ...] = ()
    actual: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Crossing:
    """A finding in `instance`, against the event at `pos` of `other`."""

    instance: str
    other: str
    pos: int
    finding: Finding
    export: tuple[str, int]
    """Where the content came from: the begin of that export."""


@dataclass
class Across:
    """What came of it. Counts are of blocks that were loaded."""

    found: list[Crossing] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    compared: Counter[str] = field(default_factory=Counter)
    """Loads that had this told of them on both sides."""
    open: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Loads of which the clocks leave open whether they came in time, by loader and exporter."""
    elsewhere: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Loads of unknown origin that brought what an instance exported under another hash, by loader
    and exporter."""
    carried: dict[tuple[str, int], set[tuple[str, int]]] = field(default_factory=dict)
    """Begins of exports, and the begins of what other instances loaded of them."""
    came: dict[tuple[str, str], list[Side]] = field(default_factory=dict)
    """Right loads by the instance that exported them to another, and their hash."""

    def blind(self, *, tiers: bool) -> dict[str, tuple[str, ...]]:
        """Rules that could be asked of no load, and what was missing; `tiers` that pools with a
        name were looked at."""
        every = sorted({*CODES, *_NEEDS})
        if not any(self.counts[one] for one in ("right", "wrong", "order open")):
            return {code: ("load",) for code in every if not (tiers and code in _BY_TIER)}
        lacking: dict[str, tuple[str, ...]] = {}
        for code in every:
            needs = _NEEDS.get(code, ())
            if (tiers and code in _BY_TIER) or any(self.compared[one] for one in needs):
                continue
            if needs or code in _BY_TIER:
                lacking[code] = needs or ("pool",)
        return lacking


class Clocks:
    """Which of two moments came first."""

    def __init__(self, instances: Mapping[str, Exchanges], skew: int = SKEW) -> None:
        self._clocks = {name: one.clock for name, one in instances.items()}
        self._skew = skew

    def when(self, mine: str, a: Moment, theirs: str, b: Moment) -> When:
        """How `a` of one instance lies to `b` of another."""
        if mine == theirs:
            return When.BEFORE if a.pos < b.pos else When.AFTER
        here, there = self._clocks.get(mine), self._clocks.get(theirs)
        if a.ts is None or b.ts is None or here is None or there is None:
            return When.OPEN
        apart, doubt = b.ts - a.ts, 0
        if not here.host or here.host != there.host:
            apart += there.offset - here.offset
            doubt = here.error + there.error + self._skew
        if abs(apart) <= doubt:
            return When.OPEN
        return When.BEFORE if apart > 0 else When.AFTER


def across(instances: Mapping[str, Exchanges], skew: int = SKEW) -> Across:
    """Judge every load by what all instances exported."""
    judged = _Judged(instances, Clocks(instances, skew))
    for name, one in instances.items():
        for moved in one.moved:
            if not moved.out:
                judged.load(name, moved)
    judged.tell()
    return judged.out


Name = tuple[str, str, str | int | None]
"""A pool, a group or table of it, and a hash or a place."""


class _Judged:
    """The exports of all, and what is made of the loads."""

    def __init__(self, instances: Mapping[str, Exchanges], clocks: Clocks) -> None:
        self.instances = instances
        self.clocks = clocks
        self.out = Across()
        self._wrong: list[Wrong] = []
        self._by_hash: dict[Name, list[Side]] = {}
        self._by_print: dict[tuple[str, str, Any], Side] = {}
        self._by_place: dict[Name, list[Side]] = {}
        self._hash_gone: dict[Name, list[Taken]] = {}
        self._place_gone: dict[tuple[str, int], list[Taken]] = {}
        self._reset: dict[str, list[Taken]] = {}
        for name, one in instances.items():
            for moved in one.moved:
                if moved.out:
                    self._exported(name, moved)
            for gone in one.gone:
                self._took(Taken(name, gone))

    def _exported(self, name: str, moved: Moved) -> None:
        for i in range(len(moved.blocks)):
            side = Side(name, moved, i)
            if moved.pool == DIRECT and side.hash is None:
                continue
            self.out.counts["exports"] += 1
            if side.hash is not None:
                key = moved.pool, moved.group, side.hash
                self._by_hash.setdefault(key, []).append(side)
                if side.print is not None:
                    self._by_print.setdefault((moved.pool, moved.group, side.print), side)
            if side.place is not None:
                at = moved.pool, moved.group, side.place
                self._by_place.setdefault(at, []).append(side)

    def _took(self, one: Taken) -> None:
        gone = one.gone
        if gone.place is not None:
            self._place_gone.setdefault((gone.pool, gone.place), []).append(one)
        elif gone.hash is not None:
            key = gone.pool, gone.table or "", gone.hash
            self._hash_gone.setdefault(key, []).append(one)
        else:
            self._reset.setdefault(gone.pool, []).append(one)

    # --- one block ---------------------------------------------------------------------------

    def load(self, name: str, moved: Moved) -> None:
        for i in range(len(moved.blocks)):
            if moved.arrived(i):
                self._block(Side(name, moved, i))
            elif moved.end is not None:
                self.out.counts["failed"] += 1

    def _block(self, load: Side) -> None:
        self.out.counts["loads"] += 1
        candidates = [one for one in self._candidates(load) if one.moved.arrived(one.i)
                      or one.moved.end is None]  # fmt: skip
        if not candidates:
            self.out.counts["unknown origin"] += 1
            other = self._really(load)
            if other is not None:
                self.out.elsewhere[load.instance, other.instance] += 1
            return
        if all(one.instance == load.instance for one in candidates) and not self._others(load):
            # What only its own engine touched is judged by that engine's trace.
            self.out.counts["own"] += 1
            return
        wrong: list[Wrong] = []
        unsure: list[Side] = []
        good: list[Side] = []
        for export in candidates:
            said = self._in_time(load, export)
            if said is None:
                good.append(export)
            elif isinstance(said, Wrong):
                wrong.append(said)
            else:
                unsure.append(export)
        if good:
            self._contents(load, good)
        elif unsure:
            if self._contents(load, unsure, sure=False):
                self.out.counts["order open"] += 1
                self.out.open[load.instance, unsure[0].instance] += 1
        else:
            self.out.counts["wrong"] += 1
            # The latest export tells most: what came of the one that was to be found.
            self._wrong.append(max(wrong, key=lambda w: (w.code != "HKV103", -_far(load, w))))

    def _candidates(self, load: Side) -> list[Side]:
        """Exports that can have been what was loaded."""
        moved = load.moved
        if load.hash is None:
            if load.place is None:
                return []
            return self._by_place.get((moved.pool, moved.group, load.place), [])
        same = self._by_hash.get((moved.pool, moved.group, load.hash), [])
        if moved.pool == DIRECT:
            # What the loader computed itself it did not have to fetch.
            return [one for one in same if one.instance != load.instance]
        return [
            one for one in same
            if load.place is None or one.place is None or one.place == load.place
        ]  # fmt: skip

    def _really(self, load: Side) -> Side | None:
        """Whose bytes they are by their checksum, where that is not of what was asked for."""
        if load.print is None or load.hash is None:
            return None
        found = self._by_print.get((load.moved.pool, load.moved.group, load.print))
        if found is None or found.hash == load.hash or not self._alike(load, found):
            return None
        return found

    def _others(self, load: Side) -> bool:
        """Whether another instance has written to the place of a load, or taken it."""
        if load.place is None:
            return False
        here = load.moved.pool, load.moved.group, load.place
        who = {one.instance for one in self._by_place.get(here, [])}
        who |= {one.instance for one in self._place_gone.get((load.moved.pool, load.place), [])}
        return not who <= {load.instance}

    def _in_time(self, load: Side, export: Side) -> Wrong | When | None:
        """None where the export was there for the load to find."""
        if load.print is not None and load.print == export.print:
            return None
        begun, ended = load.moved.begin, export.moved.end
        if load.moved.pool == DIRECT:
            return self._fetched(load, export)
        lies = When.AFTER if ended is None else self.clocks.when(
            export.instance, ended, load.instance, begun
        )  # fmt: skip
        if lies is When.AFTER:
            return self._late(load, export)
        if lies is When.OPEN:
            # Of one instance nothing is open: an export of the loader's own is by its positions.
            return When.OPEN
        for overwritten, one in self._takers(load, export):
            taken = self._taken(load, export, overwritten, one)
            if taken is not None:
                return taken
        return None

    def _fetched(self, load: Side, export: Side) -> Wrong | When | None:
        """From device to device a load may begin before there is anything, and wait; how long the
        bytes are held for it is the connectors' own affair."""
        end, published = load.moved.end, export.moved.begin
        assert end is not None
        lies = self.clocks.when(export.instance, published, load.instance, end)
        if lies is not When.AFTER:
            return lies if lies is When.OPEN else None
        why = f"{export.instance} published it only at its event {published.pos}, behind this load"
        return Wrong("HKV103", why, load, export)

    def _late(self, load: Side, export: Side) -> Wrong | When:
        end, begin = export.moved.end, export.moved.begin
        if end is None:
            lies = self.clocks.when(export.instance, begin, load.instance, load.moved.begin)
            if lies is When.OPEN:
                return When.OPEN
            said = "never ended"
        else:
            said = f"ended only at event {end.pos} there"
        why = f"the export of it ({export.instance}, event {begin.pos}) {said}"
        return Wrong("HKV103", why, load, export, believed=(("complete", True),),
                     actual=(("complete", False),))  # fmt: skip

    def _takers(self, load: Side, export: Side) -> Iterator[tuple[bool, tuple[str, Moment]]]:
        """Who took the content away or wrote over it, and whether its bytes were lost by it."""
        moved = load.moved
        place = load.place if load.place is not None else export.place
        if place is not None:
            for one in self._by_place.get((moved.pool, moved.group, place), []):
                known = one.hash is not None and load.hash is not None
                if one.moved is not export.moved and known and one.hash != load.hash:
                    yield True, (one.instance, one.moved.begin)
            for taken in self._place_gone.get((moved.pool, place), []):
                yield True, (taken.instance, taken.gone.at)
        else:
            name = moved.pool, moved.table, load.hash
            for taken in self._hash_gone.get(name, []):
                yield False, (taken.instance, taken.gone.at)
        for taken in self._reset.get(moved.pool, []):
            yield False, (taken.instance, taken.gone.at)

    def _taken(
        self, load: Side, export: Side, overwritten: bool, taker: tuple[str, Moment]
    ) -> Wrong | When | None:
        """What it means that somebody took the content; None where it came earlier or later."""
        who, at = taker
        if who == load.instance:
            return None
        end = export.moved.end
        assert end is not None
        clocks = self.clocks
        since = clocks.when(export.instance, end, who, at)
        before = clocks.when(who, at, load.instance, load.moved.begin)
        if since is When.AFTER:
            return None
        if before is When.AFTER:
            return self._during(load, export, taker) if overwritten else None
        if since is When.OPEN or before is When.OPEN:
            return When.OPEN
        check = load.moved.check
        lies = When.BEFORE if check is None else clocks.when(load.instance, check, who, at)
        did = "gave its place to other content" if overwritten else "took it out"
        why = f"{who} {did} at its event {at.pos}, before this load began"
        if check is not None and lies is not When.AFTER:
            code, why = "HKV701", f"{why}, and behind the lookup at event {check.pos} here"
        else:
            code = "HKV105" if overwritten else "HKV102"
        return Wrong(code, why, load, export, (who, at.pos), (("hash", load.hash),))

    def _during(self, load: Side, export: Side, taker: tuple[str, Moment]) -> Wrong | None:
        """Who writes to the place while it is being read."""
        (who, at), end = taker, load.moved.end
        writes = any(
            one.instance == who and one.moved.begin == at
            for one in self._by_place.get((load.moved.pool, load.moved.group, load.place), [])
        )
        if end is None or not writes:
            return None
        if self.clocks.when(who, at, load.instance, end) is not When.BEFORE:
            return None
        why = f"{who} began to write other content there at its event {at.pos}, during this load"
        return Wrong("HKV702", why, load, export, (who, at.pos), (("hash", load.hash),))

    # --- what it is --------------------------------------------------------------------------

    def _contents(self, load: Side, exports: list[Side], *, sure: bool = True) -> bool:
        """Whether what was exported is what was taken for it, by one of the exports at least;
        `sure` that one of them is where it came from."""
        faults: list[Wrong] = []
        for export in exports:
            wrong = next(self._unlike(load, export), None)
            if wrong is None:
                self.out.counts["right"] += sure
                self.out.compared.update(self._told_by(load, export))
                if sure and all(one.instance != load.instance for one in exports):
                    origin = export.instance, export.moved.begin.pos
                    loads = self.out.carried.setdefault(origin, set())
                    loads.add((load.instance, load.moved.begin.pos))
                    if load.hash is not None:
                        self.out.came.setdefault((export.instance, load.hash), []).append(load)
                return True
            faults.append(wrong)
        self.out.counts["wrong"] += 1
        nearest = min(faults, key=lambda wrong: _far(load, wrong))
        self.out.compared.update(self._told_by(load, nearest.export))
        self._wrong.append(nearest)
        return False

    def _told_by(self, load: Side, export: Side) -> Iterator[str]:
        """What both sides tell, so that it could be compared."""
        there, here = export.moved, load.moved
        for name in ("key", "weights", "codec", "version", "kv_version"):
            if getattr(here, name) is not None and getattr(there, name) is not None:
                yield name
        mine = self.instances[load.instance].groups[here.group].layout
        theirs = self.instances[export.instance].groups[there.group].layout
        if mine.keys() & theirs.keys():
            yield "layout"
        if _size(here) is not None and _size(there) is not None:
            yield "size"
        if None not in (load.print, export.print) and self._alike(load, export):
            yield "fingerprint"

    def _unlike(self, load: Side, export: Side) -> Iterator[Wrong]:
        """Whatever the two sides disagree on, the gravest first."""
        there, here = export.moved, load.moved
        if there.key is not None and here.key is not None and there.key != here.key:
            inputs = ", ".join(sorted(there.key ^ here.key))
            yield self._differs("HKV104", f"unequal inputs share one hash: {inputs}", load, export,
                                "key", sorted(here.key), sorted(there.key))  # fmt: skip
        for code, name, mine, theirs in (
            ("HKV105", "weights", here.weights, there.weights),
            ("HKV203", "codec", here.codec, there.codec),
            ("HKV105", "version", here.version, there.version),
            ("HKV304", "kv_version", here.kv_version, there.kv_version),
        ):
            if mine is not None and theirs is not None and mine != theirs:
                why = f"it was exported with {name} {theirs}, and is taken for {mine}"
                if name == "weights":
                    why = f"it was computed with weights {theirs}, and this engine has {mine}"
                yield self._differs(code, why, load, export, name, mine, theirs)
        layout = self._layout(load, export)
        if layout is not None:
            yield layout
        sizes = _size(here), _size(there)
        if sizes[0] is not None and sizes[1] is not None and sizes[0] > sizes[1]:
            why = f"{sizes[0]:,} bytes of each block are read, where {sizes[1]:,} were exported"
            yield self._differs("HKV402", why, load, export, "bytes", *sizes)
        prints = load.print, export.print
        if None not in prints and prints[0] != prints[1] and self._alike(load, export):
            why = "other bytes arrived than were exported"
            other = self._really(load)
            if other is not None:
                why = (f"the bytes that arrived are those of other content, which {other.instance} "
                       f"exported at its event {other.moved.begin.pos}")  # fmt: skip
            yield self._differs("HKV906", why, load, export,
                                "fingerprint", load.print, export.print)  # fmt: skip

    def _alike(self, load: Side, export: Side) -> bool:
        """Whether bytes are laid out alike at both ends: transfers convert order and shards."""
        mine = self.instances[load.instance].groups[load.moved.group].layout
        theirs = self.instances[export.instance].groups[export.moved.group].layout
        return all(mine.get(key) == theirs.get(key) for key in _LAID_OUT)

    def _differs(
        self, code: str, why: str, load: Side, export: Side, name: str, mine: Any, theirs: Any
    ) -> Wrong:
        return Wrong(code, why, load, export, None, ((name, mine),), ((name, theirs),))

    def _layout(self, load: Side, export: Side) -> Wrong | None:
        """Where the device groups of both ends mean other bytes."""
        mine = self.instances[load.instance].groups[load.moved.group]
        theirs = self.instances[export.instance].groups[export.moved.group]
        whole = load.moved.places is not None and export.moved.places is not None
        wrong = unlike_sides(theirs, mine, whole=whole)
        first = next((d for code in ORDER for d in wrong if d.code == code), None)
        if first is None:
            return None
        why = f"{first.key} is {first.producer} there against {first.consumer} here"
        return self._differs(
            first.code, why, load, export, first.key, first.consumer, first.producer
        )

    # --- findings ----------------------------------------------------------------------------

    def tell(self) -> None:
        """One finding a load, rule and export; those of one cause under the first of them."""
        put: dict[tuple[Any, ...], list[Wrong]] = {}
        for wrong in self._wrong:
            load, export = wrong.load, wrong.export
            key = (wrong.code, load.instance, load.moved.begin.pos, export.instance, wrong.rival
                   or export.moved.begin.pos)  # fmt: skip
            put.setdefault(key, []).append(wrong)
        roots: dict[tuple[Any, ...], Finding] = {}
        for alike in put.values():
            crossing = self._finding(alike, f"X{len(self.out.found) + 1}")
            load = alike[0].load
            # Groups that travel together are loads of their own, of one cause.
            cause = (alike[0].code, load.instance, load.moved.req or load.moved.handle,
                     crossing.other)  # fmt: skip
            root = roots.setdefault(cause, crossing.finding)
            if root is not crossing.finding:
                crossing.finding.cause = root.id
                root.caused.append(crossing.finding.id)
            self.out.found.append(crossing)

    def _finding(self, alike: list[Wrong], name: str) -> Crossing:
        wrong = alike[0]
        load, export = wrong.load, wrong.export
        moved = load.moved
        blocks = [one.load.moved.blocks[one.load.i] for one in alike]
        events = [m.pos for m in (moved.check, moved.begin, moved.end) if m is not None]
        group = self.instances[load.instance].groups[moved.group]
        prints = load.print, export.print
        actual = dict(wrong.actual)
        if wrong.code != "HKV906" and None not in prints and prints[0] != prints[1]:
            actual["fingerprint"] = f"{prints[0]} here, {prints[1]} as exported"
        source = "another engine" if moved.pool == DIRECT else moved.pool
        if moved.pool.startswith(BELOW):
            source = f"what lies below {moved.pool.removeprefix(BELOW)}"
        finding = Finding(
            wrong.code,
            f"load {moved.handle} from {source} takes {of_blocks(blocks)} of group "
            f"{moved.group} for what {export.instance} exported, but {wrong.why}",
            sorted(set(events)),
            check=moved.check.pos if moved.check else None, use=moved.begin.pos,
            request=moved.req, group=moved.group, pool=group.pool.name, blocks=blocks,
            tokens=moved.tokens, believed=dict(wrong.believed), actual=actual, id=name,
        )  # fmt: skip
        other, pos = wrong.rival or (export.instance, export.moved.begin.pos)
        origin = export.instance, export.moved.begin.pos
        return Crossing(load.instance, other, pos, finding, origin)


_LAID_OUT = ("dtype", "order", "codec", "row_bytes", "scale_bytes", "page_bytes", "tp_shard")
"""What a checksum of a block's bytes rests on."""


def _far(load: Side, wrong: Wrong) -> int:
    """How far apart a load and an export are, as far as anything tells."""
    a, b = load.moved.begin, wrong.export.moved.begin
    return abs(a.ts - b.ts) if a.ts is not None and b.ts is not None else abs(a.pos - b.pos)


def _size(moved: Moved) -> int | None:
    if moved.bytes is None or not moved.whole or not moved.blocks:
        return None
    return moved.bytes // len(moved.blocks)
