"""What folding a long trace costs: compiled and plain, beside reading alone and a bare loop.

The trace is written by this process, the fold compiled by a second and measured in a third, so
that its peak of memory is of reading and folding only. CPU time counts what DuckDB's threads do.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from time import thread_time
from typing import Any

from hkvtool.bench.synthetic import synthetic_trace
from hkvtool.bench.ways import Way, child, peak

PLAIN = 200_000
"""Events that the plain fold is timed on; it costs the same for every event."""

MOMENTS = 15
"""Positions at which the trace is opened."""

_AT_ONCE = 10_000


@dataclass
class FoldCosts:
    """What was measured in one run; `ways` in the order of the telling, reading first."""

    events: int
    blocks_per_event: int
    file_bytes: int = 0
    load: float = 0.0
    ways: list[Way] = field(default_factory=list)
    moments_wall: list[float] = field(default_factory=list)
    moments_cpu: list[float] = field(default_factory=list)

    def way(self, name: str) -> Way:
        """One way by its name."""
        return next(way for way in self.ways if way.name == name)

    def facts(self) -> dict[str, Any]:
        """As plain values, rates included."""
        base, plain = self.way("reading alone"), self.way("plain fold")
        ways = [
            {**asdict(way), "events_per_second": round(way.rate),
             "of_reading": round(way.rate / base.rate, 4),
             "of_plain": round(way.rate / plain.rate, 2)}
            for way in self.ways
        ]  # fmt: skip
        return {**asdict(self), "ways": ways}


def fold_costs(
    events: int,
    blocks_per_event: int = 4,
    plain_events: int = PLAIN,
    keep: Path | None = None,
    told: Callable[[int], None] | None = None,
) -> FoldCosts:
    """Time each way once over one synthetic trace. Raises HkvError."""
    with tempfile.TemporaryDirectory(prefix="hkvtool-") as folder:
        path = keep or Path(folder, "trace.duckdb")
        count = synthetic_trace(path, events, blocks_per_event, progress=told)
        compiling = child(__name__, "compile")
        found = child(__name__, "measure", str(path), str(plain_events))
        ways = [Way(**way) for way in (*found.pop("ways"), compiling)]
        return FoldCosts(count, blocks_per_event, path.stat().st_size, ways=ways, **found)


def _compiling() -> dict[str, Any]:
    """What making the compiled fold ready costs, once a machine."""
    from hkvtool.state.jit import ready

    way = Way("compiling", 0)
    with way.timed():
        if ready():
            way.name = "compiling (it was in the cache)"
    return asdict(way)


def _measured(path: str, plain_events: int) -> dict[str, Any]:
    """What one run over a trace costs, as plain values."""
    from hkvtool.state.compiled import CompiledFold
    from hkvtool.state.jit import ready
    from hkvtool.store import open_trace
    from hkvtool.store.moments import fold_at

    with open_trace(path) as trace:
        count = trace.count
        CompiledFold(trace).advance(until=trace.meta["first_pos"] + _AT_ONCE)
        ready()
        loop = _bare_loop()

        reading, every = Way("reading alone", count), Way("reading every column", count)
        with peak(reading), reading.timed():
            for _ in trace.batches(folded=True):
                pass
        with every.timed():
            for _ in trace.batches():
                pass

        bare = Way("bare loop", count)
        for batch in trace.batches(folded=True):
            with bare.timed():
                loop(batch)

        fold, alone = Way("compiled fold", count), Way("of which folding", count)
        source = _Waiting(trace)
        with peak(fold), fold.timed(), alone.timed(thread_time):
            CompiledFold(source).advance()
        alone.wall -= source.waiting.wall
        alone.cpu -= source.waiting.cpu

        plain, decoding = _plain(trace, min(plain_events, count))
        rng, last = Random(0), trace.meta["last_pos"]
        fold_at(trace, last)
        moments = [Way("moment", 1) for _ in range(MOMENTS)]
        for moment in moments:
            pos = rng.randint(1, last)
            with moment.timed():
                fold_at(trace, pos)
    ways = [reading, every, bare, fold, alone, plain, decoding]
    return {
        "load": os.getloadavg()[0],
        "ways": [asdict(way) for way in ways],
        "moments_wall": [moment.wall for moment in moments],
        "moments_cpu": [moment.cpu for moment in moments],
    }


class _Waiting:
    """A trace that counts how long the fold waits for its batches."""

    def __init__(self, trace: Any) -> None:
        self.path, self.names, self.control = trace.path, trace.names, trace.control
        self.meta = trace.meta
        self.waiting = Way("waiting", trace.count)
        self._trace = trace

    def batches(self, *args: Any, **keys: Any) -> Iterator[Any]:
        batches = self._trace.batches(*args, **keys)
        while True:
            with self.waiting.timed(thread_time):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


def _plain(trace: Any, count: int) -> tuple[Way, Way]:
    """The plain fold on a prefix, and the making of the events that it takes."""
    from hkvtool.state.fold import Fold

    plain, decoding = Way("plain fold", count), Way("events for it", count)
    fold, events = Fold(), trace.events()
    while True:
        with decoding.timed():
            some = list(islice(events, min(_AT_ONCE, count)))
        count -= len(some)
        with plain.timed():
            for event in some:
                fold.apply(event)
        if not some:
            return plain, decoding


def _bare_loop() -> Callable[[Any], None]:
    """A compiled loop that reads all that the fold reads, and does nothing but count blocks: no
    fold over these columns can be faster."""
    import numba
    import numpy as np

    def plain(columns: Any, offsets: Any, blocks: Any, others: Any, seen: Any) -> int:
        total = 0
        for i in range(len(offsets) - 1):
            for column in columns:
                total += column[i]
            for j in range(offsets[i], offsets[i + 1]):
                seen[blocks[j] % len(seen)] += 1
        for j in range(len(others)):
            total += others[j]
        return total

    loop = numba.njit(nogil=True)(plain)
    seen = np.zeros(1 << 16, np.int64)

    def run(batch: Any) -> None:
        columns = (
            batch.pos, batch.ev, batch.step, batch.req, batch.group, batch.group2, batch.pool,
            batch.pool2, batch.handle, batch.t0, batch.t1, batch.version, batch.kv_version,
            batch.aux, batch.flags,
        )  # fmt: skip
        loop(columns, batch.blocks.offsets, batch.blocks.values, batch.hashes.values, seen)

    empty = np.zeros(1, np.int64)
    empty.flags.writeable = False
    loop((empty,) * 15, empty, empty[:0], empty[:0], seen)
    return run


if __name__ == "__main__":
    mode, *rest = sys.argv[1:]
    print(json.dumps(_compiling() if mode == "compile" else _measured(rest[0], int(rest[1]))))
