"""The fold of a long trace: the same transitions, compiled, over columns.

numba compiles copies of the very functions that `hkvtool.state.fold` runs plain. The compiled
code is cached by the content of their sources, so that an update never meets a stale cache.
"""

from __future__ import annotations

import hashlib
import os
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hkvtool.model.event import Event
from hkvtool.model.rows import MISSING, NO_NAME, Names
from hkvtool.state import arrays as a
from hkvtool.state import blocks, codes, content, hashes, loop, transfers
from hkvtool.state import step as step_module
from hkvtool.state.batch import Batch
from hkvtool.state.declarations import Pool
from hkvtool.state.fold import NO_SLOT, Fold

_SOURCES = (blocks, content, hashes, transfers, step_module, loop)
"""Modules of transitions, each after those it calls."""

_INLINED = frozenset(
    [
        "step",
        "to_slots",
        "used",
        "touch",
        "free",
        "alloc",
        "write",
        "write_slot",
        "mark_bytes",
        "fresh",
        "dispatch",
    ]
)
"""Functions that are compiled into their callers: a call hands over some seventy arrays, and these
are called for nearly every event. The rest would only make compiling slower."""

MAX_SLOTS = 1 << 26
"""Blocks of all pools together that the arrays are laid out for; beyond, fold plain."""

CONTROL_KINDS = frozenset(
    {"trace", "evidence", "state", "pool", "group", "limits", "remap", "rebase", "weights",
     "dropped", "kernel"}
)  # fmt: skip


class Source(Protocol):
    """What the compiled fold reads: a trace, as `hkvtool.store` opens it."""

    @property
    def names(self) -> Any: ...

    def batches(self, size: int = ..., since: int | None = ..., until: int | None = ...) -> Any: ...

    def events(
        self, since: int | None = ..., until: int | None = ..., req: Any = ..., kinds: Any = ...,
        block: Any = ...,
    ) -> Any: ...  # fmt: skip


def _cache_folder() -> Path:
    digest = hashlib.sha256()
    for path in (__file__, *(module.__file__ for module in (*_SOURCES, a, codes))):
        digest.update(Path(str(path)).read_bytes())
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(root) / "hkvtool" / f"numba-{digest.hexdigest()[:16]}"


_compiled: dict[str, Any] = {}


def run() -> Any:
    """The compiled loop of `hkvtool.state.loop`; compiling it takes seconds, once a machine."""
    if not _compiled:
        _compile()
    return _compiled["run"]


def _compile() -> None:
    import numba

    settings: Any = numba.config
    settings.CACHE_DIR = str(_cache_folder())
    for module in _SOURCES:
        space = dict(vars(module))
        space.update({name: _compiled[name] for name in _compiled if name in space})
        own = [
            f for f in vars(module).values()
            if isinstance(f, types.FunctionType) and f.__module__ == module.__name__
        ]  # fmt: skip
        for function in own:
            copy = types.FunctionType(function.__code__, space, function.__name__)
            copy.__qualname__ = function.__qualname__
            copy.__module__ = function.__module__
            # Without `_nrt` every call would count references of all arrays, which costs more than
            # the work; none of these functions allocates.
            options: dict[str, Any] = {"nogil": True, "_nrt": False}
            if function.__name__ in _INLINED:
                options["inline"] = "always"
            try:
                jitted = numba.njit(cache=True, **options)(copy)
            except RuntimeError:
                # No folder to cache in: compiled again in every process.
                jitted = numba.njit(**options)(copy)
            space[function.__name__] = _compiled[function.__name__] = jitted


class _Overlay(Names):
    """The names of a trace, and those that only its `state` events spell out."""

    def __init__(self, stored: Names) -> None:
        super().__init__()
        self._stored = stored

    def id(self, domain: str, name: str | int) -> int:
        found = self._stored.find(domain, name)
        return found if found != NO_NAME else self._stored.count(domain) + super().id(domain, name)

    def find(self, domain: str, name: str | int) -> int:
        found = self._stored.find(domain, name)
        if found != NO_NAME:
            return found
        extra = super().find(domain, name)
        return extra if extra == NO_NAME else self._stored.count(domain) + extra

    def name(self, domain: str, number: int) -> str | int:
        count = self._stored.count(domain)
        if number < count:
            return self._stored.name(domain, number)
        return super().name(domain, number - count)

    def count(self, domain: str) -> int:
        return self._stored.count(domain) + super().count(domain)


class CompiledFold(Fold):
    """A fold whose arrays are numpy's and whose batches run compiled.

    Pools are laid out one after the other, every block has its slot from the start.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._plan(list(source.events(kinds=CONTROL_KINDS)))
        super().__init__(_Overlay(source.names))
        self.refused = 0

    # --- layout ----------------------------------------------------------------------------

    def _plan(self, control: list[Event]) -> None:
        """Sizes of everything, from the declarations to come."""
        caps: dict[str, int] = {}
        tables: set[str] = set()
        per_pool: dict[str, set[str]] = {}
        groups: set[str] = set()
        extra = 1
        for event in control:
            if event.problem is not None:
                continue
            if event.ev == "pool":
                name = str(event["pool"])
                caps[name] = max(caps.get(name, 0), event["blocks"])
            elif event.ev == "remap" and str(event["pool"]) in caps:
                top = max((int(k) for k in event["map"]), default=-1)
                caps[str(event["pool"])] = max(caps[str(event["pool"])], top + 1)
            elif event.ev == "state":
                for key in ("hashes", "owners"):
                    extra += sum(len(x) if isinstance(x, list) else 1 for x in event.get(key) or ())
            elif event.ev == "group":
                groups.add(str(event["group"]))
                tables.add(str(event.get("table", event["group"])))
                per_pool.setdefault(str(event["pool"]), set()).add(str(event["group"]))
        self._control_events = control
        self._extra = extra
        self._caps = caps
        self._bases = dict(zip(caps, np.cumsum([0, *caps.values()]).tolist(), strict=False))
        self._sizes = {
            "header": a.HEADER,
            "steps": 2 * a.STEPS,
            "slot": sum(caps.values()),
            "pool": max(1, len(caps)),
            "group": max(1, len(groups)),
            "tables": max(1, len(tables)),
            "width": max((len(g) for g in per_pool.values()), default=1),
        }

    @property
    def fits(self) -> bool:
        """Whether the pools are small enough to lay out block by block."""
        return self._sizes["slot"] * self._sizes["width"] <= MAX_SLOTS

    def _new_arrays(self) -> a.Arrays:
        names, sizes = self.names, self._sizes
        width = sizes["width"]
        lengths = {
            **{k: sizes[k] for k in ("header", "steps", "slot", "pool", "group")},
            "component": sizes["slot"] * width,
            "pool_component": sizes["pool"] * width,
            "group_pool": sizes["group"] * sizes["pool"],
            "req": names.count("req") + self._extra,
            "req_table": (names.count("req") + self._extra) * sizes["tables"],
            "hash": names.count("hash") + self._extra,
            "handle": names.count("handle") + 1,
            "entry": 1024,
            "arena": 64 * a.RECORD,
        }
        columns = [
            np.full(max(1, lengths[extent.per]), extent.empty, np.int64)
            for extent in a.EXTENTS.values()
        ]
        st = a.Arrays(*columns)
        st.h[a.COMPONENTS] = width
        st.h[a.TABLES] = sizes["tables"]
        for name, base in self._bases.items():
            st.slot_pool[base : base + self._caps[name]] = list(self._caps).index(name)
        return st

    def _extend(self, per: str, size: int) -> None:
        if per not in ("entry", "arena"):
            return
        grown: dict[str, Any] = {}
        for name, extent in a.EXTENTS.items():
            column = getattr(self.st, name)
            if extent.per == per and len(column) < size:
                more = max(size, 2 * len(column)) - len(column)
                grown[name] = np.concatenate([column, np.full(more, extent.empty, np.int64)])
        if grown:
            self.st = self.st._replace(**grown)

    def make_room(self, per: str, size: int) -> None:
        """Let the arrays of `per` (entry, arena) hold `size` integers."""
        self._extend(per, size)

    def _widen(self, width: int) -> None:
        """Laid out for all components from the start."""

    def _grow_tables(self, tables: int) -> None:
        """Laid out for all tables from the start."""

    def _mirrors(self) -> None:
        self._fill_mirrors(len(self.st.base))

    # --- blocks ----------------------------------------------------------------------------

    def slot(self, pool: Pool, block: int) -> int:
        if block < 0 or not pool.has(block):
            return NO_SLOT
        return int(self._bases[pool.name]) + block

    def find(self, pool: Pool, block: int) -> int | None:
        slot = self.slot(pool, block)
        return slot if slot >= 0 and self.st.touch[slot] >= 0 else None

    def _place_pool(self, pool: Pool) -> None:
        self.st.base[pool.id] = self._bases[pool.name]

    def _all_slots(self) -> Iterable[int]:
        return np.flatnonzero(self.st.touch >= 0).tolist()

    # --- running ---------------------------------------------------------------------------

    def advance(self, until: int | None = None, since: int | None = None) -> None:
        """Fold the events at positions `since` to `until`, both included (all, where left out)."""
        waiting = [
            e for e in self._control_events
            if (since is None or e.pos >= since) and (until is None or e.pos <= until)
        ]  # fmt: skip
        waiting.reverse()
        for batch in self.source.batches(since=since, until=until):
            self._batch(batch, waiting)

    def _batch(self, batch: Batch, waiting: list[Event]) -> None:
        self._extend("entry", int(self.st.h[a.ENTRIES]) + len(batch.hashes.values) + 1)
        moving = (batch.ev == codes.STORE_BEGIN) | (batch.ev == codes.LOAD_BEGIN)
        if moving.any():
            counts = np.diff(batch.blocks.offsets)[moving]
            if not (self.st.t_state == a.RUNNING).any():
                self.st.h[a.ARENA] = 0
            self._extend("arena", int(self.st.h[a.ARENA] + counts.sum() * a.RECORD))
        at = 0
        blk, blk2 = batch.blocks.values.copy(), batch.blocks2.values.copy()
        while waiting and waiting[-1].pos <= batch.pos[-1]:
            event = waiting.pop()
            index = int(np.searchsorted(batch.pos, event.pos))
            self._stretch(batch, at, index, blk, blk2)
            if event.problem is None:
                self.apply(event)
            at = index + 1
        self._stretch(batch, at, batch.n, blk, blk2)
        self.pos = int(batch.pos[-1])

    def _stretch(self, batch: Batch, first: int, end: int, blk: Any, blk2: Any) -> None:
        """Rows without control events between; a gap of a lane ends where the lane is seen."""
        while self.gaps and first < end:
            index, lane = self._seen_again(batch, first, end)
            if lane is None:
                break
            self._rows(batch, first, index, blk, blk2)
            self._doubt(self.gaps.pop(lane))
            first = index
        self._rows(batch, first, end, blk, blk2)

    def _seen_again(self, batch: Batch, first: int, end: int) -> tuple[int, str | None]:
        for i in range(first, end):
            actor = self._actor(batch, i)
            if actor in self.gaps:
                return i, actor
        return end, None

    def _actor(self, batch: Batch, i: int) -> str:
        if batch.actor[i] != NO_NAME:
            return str(self.names.name("actor", int(batch.actor[i])))
        return "device" if batch.step[i] != MISSING and batch.ev[i] in _ACCESSES else "sched"

    def _rows(self, batch: Batch, first: int, end: int, blk: Any, blk2: Any) -> None:
        if first >= end:
            return
        self.refused += run()(
            self.st, self._numbers("group", self.declared.groups),
            self._numbers("pool", self.declared.pools), self._reach(), self._mapped(),
            batch.pos, batch.ev, batch.step, batch.req, batch.group, batch.group2, batch.pool,
            batch.pool2, batch.handle, batch.t0, batch.t1, batch.version, batch.kv_version,
            batch.aux, batch.flags, batch.blocks.offsets, blk, batch.blocks2.offsets, blk2,
            batch.hashes.offsets, batch.hashes.values, first, end,
        )  # fmt: skip

    def _numbers(self, domain: str, declared: Mapping[str, Any]) -> Any:
        """Number of a group or pool in the names of the trace to its number here, or -1."""
        numbers = np.full(self.names.count(domain) + 1, -1, np.int64)
        for name, one in declared.items():
            for spelled in (name, int(name) if name.lstrip("-").isdigit() else name):
                found = self.names.find(domain, spelled)
                if found != NO_NAME:
                    numbers[found] = one.id
        return numbers

    def _reach(self) -> Any:
        """Blocks of each pool that have a slot."""
        reach = np.zeros(len(self.st.base), np.int64)
        for pool in self.declared.pools.values():
            reach[pool.id] = self._caps[pool.name]
        return reach

    def _mapped(self) -> Any:
        """By slot whether an id beyond its pool's count is one after all; empty without remaps."""
        if not self.st.h[a.MAPPED]:
            return np.zeros(0, np.int8)
        mapped = np.zeros(self._sizes["slot"], np.int8)
        for pool in self.declared.pools.values():
            base = self._bases[pool.name]
            mapped[base : base + pool.blocks] = 1
            for block in pool.map:
                if 0 <= block < self._caps[pool.name]:
                    mapped[base + block] = 1
        return mapped


_ACCESSES = frozenset(
    {codes.WRITE, codes.SEAL, codes.INDEX, codes.ZERO, codes.COPY, codes.USE, codes.BUFFER,
     codes.SELECT}
)  # fmt: skip


def fold_of(source: Source, names: Names | None = None) -> Fold:
    """The fold of a whole trace, compiled where its pools can be laid out."""
    fold = CompiledFold(source)
    if fold.fits:
        fold.advance()
        return fold
    plain = Fold(names)
    for event in source.events():
        plain.apply(event)
    return plain
