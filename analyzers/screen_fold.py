"""The fold that the screen looks through: the compiled one, with the screen's arrays beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hkvtool.analyzers import (
    kinds,
    screen_content,
    screen_doubts,
    screen_holders,
    screen_lookups,
    screen_loop,
    screen_moves,
    screen_order,
    screen_races,
    screen_reads,
)
from hkvtool.analyzers import screen_arrays as s
from hkvtool.analyzers.screen_asked import Asked, asked
from hkvtool.analyzers.screen_sql import reached
from hkvtool.model.event import Event
from hkvtool.model.events import BY_CODE
from hkvtool.state import arrays as a
from hkvtool.state.batch import Batch
from hkvtool.state.codes import (
    ABORT,
    ALLOC,
    FINISH,
    FOLDED,
    LOAD_BEGIN,
    LOOKUP,
    STORE_BEGIN,
    TOUCH,
)
from hkvtool.state.compiled import CompiledFold
from hkvtool.state.declarations import Group, Pool
from hkvtool.state.faults import Span
from hkvtool.state.fold import NO_SLOT, Problem
from hkvtool.state.jit import compiled_with
from hkvtool.state.order import Order
from hkvtool.state.order_stamp import Stamp
from hkvtool.state.untouched import untouched
from hkvtool.store.trace import CONTROL_KINDS

SOURCES = (
    s, screen_order, screen_races, screen_holders, screen_content, screen_reads, screen_moves,
    screen_lookups, screen_doubts, screen_loop,
)  # fmt: skip
"""Modules of the screen's compiled functions, each after those it calls."""

MOST_LANES = 64
MOST_BUFFERS = 1 << 12
MOST_TRIPS = 1 << 31
"""Pairs of a group and a hash that trips are counted for; beyond, the rules count them."""

_CALLED = ("watched", "forget_released", "all_serve")
"""Functions that are called from Python."""

_SPARE_NAMES = 1 << 13
_ROOM = 1 << 12

_FOLDED = frozenset(BY_CODE[code].name for code in FOLDED)
_BEGINS = kinds.table((STORE_BEGIN, LOAD_BEGIN))
_TAKING = kinds.table((ALLOC, TOUCH))
_ENDINGS = kinds.table((ABORT, FINISH))


class Suspicious(Exception):
    """The rules must look at the trace; `why` and `pos` say what the screen did not get past."""

    def __init__(self, why: int | str, pos: int) -> None:
        super().__init__(f"{why} at {pos}")
        self.why, self.pos = why, pos


_OF_ARRAYS = (a.Arrays, s.Screen, Asked)

_functions: dict[str, Any] = {}


def call(name: str) -> Any:
    """A function of the screen or the fold, compiled."""
    if not _functions:
        _functions.update(compiled_with(SOURCES, _CALLED))
    return _functions[name]


class _Bounded:
    """A trace whose pools are declared to be no larger than what it names of them."""

    def __init__(self, source: Any) -> None:
        self.path, self.names = source.path, source.names
        self.meta, self.kinds = source.meta, source.kinds
        ends = reached(source)
        self.control = [_bounded(e, ends) if e.ev == "pool" else e for e in source.control]

    def batches(self, *_: Any, **__: Any) -> Iterator[Batch]:
        """Nothing: only its declarations are looked at."""
        return iter(())


def _bounded(event: Event, ends: dict[str, int]) -> Event:
    blocks = min(event["blocks"], ends.get(str(event["pool"]), 0))
    return Event.of(event.pos, {**event.data, "blocks": blocks})


def _made(size: int, empty: int, kind: Any) -> Any:
    """An array of one value, which takes memory where it is written to."""
    if empty:
        found = untouched(size, empty, kind)
        return np.full(size, empty, kind) if found is None else found
    return np.zeros(size, kind)


class RowFold(CompiledFold):
    """A compiled fold that goes row by row, of a trace whose pools may have no bounds."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        if not self.fits:
            # A tier may be declared without bounds; what is named of it is not without.
            super().__init__(_Bounded(source))
            self.source = source
        self.row = 0

    def room_for_moves(self, batch: Batch) -> None:
        """Have room for what the transfers that begin in a batch move."""
        moving = _BEGINS[batch.ev]
        if moving.any():
            self._room_for_records(int(np.diff(batch.blocks.offsets)[moving].sum()))


class ScreenedFold(RowFold):
    """A fold that also carries the arrays of the screen, and folds a row when told."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self._handed: dict[type, Any] = {}
        self.now: tuple[Any, ...] = ()
        if self.fits:
            self._lay_out(source)

    def _lay_out(self, source: Any) -> None:
        n = self._lengths
        lanes = source.names.count("actor") + 2
        components, begins = (
            n["component"],
            2 + sum(source.kinds.get(kind, 0) for kind in ("store_begin", "load_begin")),
        )
        groups, pools, hashes = n["group"], n["pool"], max(1, n["hash"])
        if lanes > MOST_LANES or groups * hashes > MOST_TRIPS:
            raise Suspicious("too many lanes or hashes", 0)
        per: dict[str, tuple[int, int, Any]] = {"h": (s.HEADER, 0, np.int64)}
        for size, names in (
            (lanes, "idx"), (lanes * lanes, "clk"),
            (s.STEPS, "d_step d_lane d_index"), (s.STEPS * lanes, "d_clk d_done"),
            (s.IN_FLIGHT, "recent"), (_SPARE_NAMES, "v_serial"),
            (s.SIGNAL_RING, "g_serial g_lane g_index"), (s.SIGNAL_RING * lanes, "g_clk"),
            (n["handle"], "t_inst t_who"), (s.BEGIN_RING, "x_inst x_lane x_index"),
            (s.BEGIN_RING * lanes, "x_clk"), (begins, "i_lane i_index"),
            (components, "w_lane w_index stored"), (components * s.READS, "r_lane r_index"),
            (components * s.MEMO, "memo"),
            (n["slot"], "history reserved mark read_at still"), (2 * _ROOM, "bucket"),
            (_ROOM, "e_req e_slot e_gen e_held e_released e_table e_out e_next e_prev"),
            (n["req"] * self._tables, "first last"),
            (n["req"], "named ended checked due rolled lookup"),
            (_ROOM, "k_pos k_asked k_best k_limit k_least k_joining k_resume k_at k_ring k_next"),
            (s.RING, "ring"), (_ROOM, "room outcome"),
            (MOST_BUFFERS, "b_lane b_index b_valid"), (_ROOM, "asked"), (n["slot"], "since"),
            (s.SNAPSHOTS, "snap_pos"), (s.SNAPSHOTS * lanes, "snap_index"),
            (MOST_BUFFERS * s.BUFFER_READS, "b_read_lane b_read_index"),
            (groups, "lost joins engine column serves served ratio index_of"),
            (groups, "window slack sink overlap chunked replayed"),
            (groups * groups, "alike"), (groups * pools, "far sides"),
            (pools * self._width * self._width, "travels"), (pools * self._width, "c_table"),
        ):  # fmt: skip
            per.update(dict.fromkeys(names.split(), (size, 0, np.int64)))
        for name in ("d_step", "history", "mark", "bucket", "first", "last", "ended", "checked",
                     "c_table", "lookup", "column", "serves"):  # fmt: skip
            per[name] = (per[name][0], -1, np.int64)
        # There is one of each for every request that the trace has.
        for name in ("named", "due"):
            per[name] = (per[name][0], 0, np.int8)
        for name in ("lookup", "first", "last"):
            per[name] = (per[name][0], -1, np.int32)
        place = self._type(a.Extent("req", -1, 4))
        for name, empty in (("ended", -1), ("checked", -1), ("rolled", 0)):
            per[name] = (per[name][0], empty, place)
        per["told_at"] = (n["slot"], -1, place)
        for name, kind in (("w_lane", np.int8), ("r_lane", np.int8), ("w_index", np.int32),
                           ("r_index", np.int32)):  # fmt: skip
            per[name] = (per[name][0], 0, kind)
        per["trips"] = (groups * hashes, 0, np.int8)
        per["block_trips"] = (components, 0, np.int8)
        per["doubt"] = (n["slot"], 0, np.int8)
        per["b_doubt"] = (MOST_BUFFERS, 0, np.int8)
        columns = {
            name: _made(max(1, size), empty, np.dtype(kind))
            for name, (size, empty, kind) in per.items()
        }
        self.sc = s.Screen(**columns)
        self.sc.h[s.LANES], self.sc.h[s.GROUPS] = lanes, groups
        self.sc.h[s.POOLS], self.sc.h[s.HASHES] = pools, hashes
        self.sc.h[s.FLOOR] = -1
        self._link_records(0)

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call a compiled function; named tuples of arrays go as one address each."""
        from hkvtool.state.handed import Handed

        function, given = call(name), list(arguments)
        for i, one in enumerate(arguments):
            if isinstance(one, _OF_ARRAYS):
                known = self._handed.get(type(one))
                if known is None or known.arrays is not one:
                    known = self._handed[type(one)] = Handed(one)
                given[i] = known
        return function(*given)

    def slot(self, pool: Pool, block: int) -> int:
        return super().slot(pool, block) if block < self._caps[pool.name] else NO_SLOT

    def regained_at(self, batch: Batch, first: int) -> tuple[int, str | None]:
        """The first row, from `first` on, of a lane that has lost events, and the lane."""
        return self._seen_again(batch, first, batch.n) if self.gaps else (batch.n, None)

    def regain(self, lane: str, pos: int) -> Event:
        """What was lost of a lane came before `pos`; where it began to be lost."""
        gap = self.gaps.pop(lane)
        self._doubt(gap)
        self.doubted = pos
        return gap

    @property
    def bases(self) -> dict[str, int]:
        """The first slot of each pool."""
        return self._bases

    def apply(self, event: Event) -> Problem | None:
        """A declaration is folded as ever, any other event as the row that it is."""
        if event.ev in CONTROL_KINDS:
            return super().apply(event)
        if event.ev in _FOLDED and self._run(self.row):
            return Problem("refused")
        return None

    def begin(self, batch: Batch, asked: Asked) -> None:
        """From here on rows are those of a batch, with what its lookups and resumes say."""
        self.room_for_moves(batch)
        taking = _TAKING[batch.ev]
        self._room_for_holders(int(np.diff(batch.blocks.offsets)[taking].sum()))
        self._room_for_entries(len(batch.hashes.values))
        self._room_for_lookups(batch, asked)
        self.sc.h[s.ASKED] = 0
        if len(self.sc.asked) < batch.n:
            self.sc = self.sc._replace(asked=np.zeros(batch.n, np.int64))
        self._lists = batch.blocks.values.copy(), batch.blocks2.values.copy()
        most = [np.diff(column.offsets).max(initial=0) for column in (batch.blocks, batch.blocks2)]
        self.slots = np.zeros(int(sum(most)) + 1, np.int64)
        self.batch, self.asked = batch, asked
        self._aligned = False

    def _room_for_lookups(self, batch: Batch, asked: Asked) -> None:
        """Let so many more lookups be open, and so many be settled."""
        sc = self.sc
        sc.h[s.SETTLED] = 0
        more = int((batch.ev == LOOKUP).sum())
        closed = more + int(_ENDINGS[batch.ev].sum())
        if 4 * closed > len(sc.outcome):
            self.sc = sc = sc._replace(outcome=np.zeros(4 * closed, np.int64))
        longest = int(asked.count.max(initial=0))
        if longest > len(sc.room):
            self.sc = sc = sc._replace(room=np.zeros(longest, np.int64))
        if more > len(sc.k_pos) - int(sc.h[s.OPEN]):
            old = len(sc.k_pos)
            grown = {
                name: np.concatenate([column, np.zeros(max(more, old), np.int64)])
                for name, column in sc._asdict().items() if name.startswith("k_")
            }  # fmt: skip
            self.sc = sc._replace(**grown)
            self._link_records(old)

    def _link_records(self, first: int) -> None:
        """Records from `first` on are free, and come before those that were."""
        sc = self.sc
        sc.k_next[first:] = np.arange(first + 1, len(sc.k_next) + 1)
        sc.k_next[-1] = sc.h[s.FREE_RECORD] if first else -1
        sc.h[s.FREE_RECORD] = first

    def _room_for_holders(self, count: int) -> None:
        """Let so many more entries be made; forgets those of no use first."""
        sc = self.sc
        used = int(sc.h[s.ENTRIES])
        if used + count <= len(sc.e_req):
            return
        self._call("forget_released", self.st, sc, int(sc.h[s.HORIZON]))
        used = int(sc.h[s.ENTRIES])
        if used + count <= len(sc.e_req) - used // 2:
            # Else they would be gone through again soon.
            return
        room = 2 * (used + count)
        grown = {
            name: np.concatenate([column, np.zeros(room - len(column), np.int64)])
            for name, column in sc._asdict().items() if name.startswith("e_")
        }  # fmt: skip
        buckets = 1 << (2 * room).bit_length()
        self.sc = sc._replace(bucket=np.full(buckets, -1, np.int64), **grown)
        self._call("forget_released", self.st, self.sc, int(sc.h[s.HORIZON]))

    def _arguments(self) -> tuple[Any, ...]:
        batch = self.batch
        if self._columns is None:
            self._columns = (
                self._numbers("group", self.declared.groups),
                self._numbers("pool", self.declared.pools),
                self._reach(),
            )
        blocks, blocks2 = self._lists
        return (
            *self._columns, self._mapped, batch.pos, batch.ev, batch.step, batch.req, batch.group,
            batch.group2, batch.pool, batch.pool2, batch.handle, batch.t0, batch.t1,
            batch.version, batch.kv_version, batch.aux, batch.flags, batch.blocks.offsets, blocks,
            batch.blocks2.offsets, blocks2, batch.hashes.offsets, batch.hashes.values,
        )  # fmt: skip

    def _run(self, row: int) -> int:
        return int(self._call("run", self.st, *self._arguments(), row, row + 1))

    def watch(self, lanes: Any, said: Any, stops: Any, first: int, end: int) -> int:
        """Look at rows and fold them; the row that it stops at. Raises Suspicious."""
        batch = self.batch
        row = int(self._call(
            "watched", self.st, self.sc, self.asked, self.spare, self.slots, lanes, said, stops,
            batch.actor, batch.part, *self._arguments(), first, end,
        ))  # fmt: skip
        if self.sc.h[s.WHY]:
            raise Suspicious(int(self.sc.h[s.WHY]), int(batch.pos[row]))
        return row

    def surely_serve(
        self, group: Group, slots: Sequence[int], spans: Sequence[Span], reader: int
    ) -> bool:
        if not slots or min(slots) < 0:
            return False
        given = np.array(slots, np.int64), np.array(spans, np.int64).ravel()
        return bool(self._call("all_serve", self.st, group.id, *given, reader))

    spare = np.zeros(_ROOM, np.int64)

    def table(self, request: int, table: int) -> list[int]:
        """Slots of one of a request's block tables, in the order in which it took them."""
        sc = self.sc
        found: list[int] = []
        entry = int(sc.first[request * self._tables + table])
        while entry >= 0:
            if sc.e_out[entry] < 0:
                found.append(int(sc.e_slot[entry]))
            entry = int(sc.e_next[entry])
        return found


class TakenIn(Order):
    """The order as the screen has taken it in, for the event that it stopped at."""

    def __init__(self, fold: ScreenedFold) -> None:
        super().__init__()
        self.fold = fold
        self.lane = 0

    def feed(self, event: Event) -> Stamp:
        sc, lane = self.fold.sc, self.lane
        lanes = int(sc.h[s.LANES])
        clock = tuple(sc.clk[lane * lanes : (lane + 1) * lanes].tolist())
        return Stamp(event.ev, event.pos, lane, int(sc.idx[lane]), clock, event.step)


def warm_up(trace: Any) -> bool:
    """Compile now what a screen will call; whether all of it was in the cache."""
    fold = ScreenedFold(trace)
    lanes, none = np.zeros(2, np.int64), np.zeros(1, np.int64)
    for batch, chunk in trace.batches_with({}, 2):
        fold.begin(batch, asked(batch, chunk, 0))
        fold.watch(lanes, none, np.ones(batch.n, np.int8), 0, 0)
        fold._call("run", fold.st, *fold._arguments(), 0, 0)
        break
    fold._call("forget_released", fold.st, fold.sc, 0)
    fold._call("all_serve", fold.st, 0, lanes[:0], lanes[:0], 0)
    stats = [call(name).stats for name in ("run", *_CALLED)]
    return all(stat.cache_hits and not stat.cache_misses for stat in stats)
