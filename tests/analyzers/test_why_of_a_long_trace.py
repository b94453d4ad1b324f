"""Where nothing is wrong, a request is answered for without what comes behind it."""

from __future__ import annotations

from pathlib import Path

from hkvtool.analyzers.verdict import why
from hkvtool.bench.synthetic import synthetic_trace
from hkvtool.store import open_trace


def test_the_events_up_to_its_last_one_will_do(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    synthetic_trace(path, 12_000, pool_blocks=1 << 9)
    with open_trace(str(path)) as trace:
        for name in ("r1", "r400", "r401"):
            last = max(event.pos for event in trace.events(req=name))
            assert last < trace.count
            whole = why(trace.events(), name).as_json()
            assert why(trace.events(until=last), name, ended=False).as_json() == whole
