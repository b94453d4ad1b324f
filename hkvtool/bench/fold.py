"""What folding a long trace costs: the compiled fold and the plain one beside the bare reading."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time

from hkvtool.bench.synthetic import synthetic_trace
from hkvtool.state.compiled import CompiledFold
from hkvtool.state.fold import Fold
from hkvtool.store import open_trace

PLAIN = 50_000
"""Events that the plain fold is timed on; it is the same for every event."""


@dataclass(frozen=True)
class Way:
    """One way to take in the events of a trace."""

    name: str
    events: int
    wall: float
    cpu: float

    @property
    def rate(self) -> float:
        """Events a second of CPU time, which others on the machine disturb least."""
        return self.events / max(self.cpu, 1e-9)


def _timed(name: str, events: int, work: Callable[[], None]) -> Way:
    wall, cpu = perf_counter(), process_time()
    work()
    return Way(name, events, perf_counter() - wall, process_time() - cpu)


def fold_costs(
    events: int, folder: Path | None = None, told: Callable[[int], None] | None = None
) -> list[Way]:
    """Time each way once over one synthetic trace of `events` events; the reading comes first and
    is the baseline. Compiling is a way of its own: it happens once a machine."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="hkvtool-") as place:
        path = Path(place, "long.duckdb")
        small = Path(place, "small.duckdb")
        synthetic_trace(small, 1_000)
        synthetic_trace(path, events, progress=told)
        with open_trace(path) as trace, open_trace(small) as first:

            def read() -> None:
                for _ in trace.batches():
                    pass

            def plain() -> None:
                fold = Fold()
                for event in islice(trace.events(), PLAIN):
                    fold.apply(event)

            return [
                _timed("reading alone", events, read),
                _timed("compiling, or its cache", 1_000, CompiledFold(first).advance),
                _timed("compiled fold", events, CompiledFold(trace).advance),
                _timed("plain fold", min(events, PLAIN), plain),
            ]
