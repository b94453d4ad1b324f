"""The synthetic trace is a right one, at any size."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from hkvtool.analyzers import check
from hkvtool.bench.synthetic import PHASES, synthetic_trace
from hkvtool.store import open_trace


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace in which every block is allocated several times."""
    path = tmp_path_factory.mktemp("synthetic") / "t.duckdb"
    synthetic_trace(path, 6000, 3, pool_blocks=10)
    return path


def test_every_event_is_right(path: Path) -> None:
    with open_trace(path) as trace:
        report = check(trace.events())
    assert report.findings == []
    assert report.ratios.matched == report.ratios.resumable > 0


def test_its_length_is_what_was_asked_for(path: Path) -> None:
    with open_trace(path) as trace:
        assert trace.count == pytest.approx(6000, rel=0.03)
        assert trace.count == sum(batch.n for batch in trace.batches())
        assert trace.meta["evidence_source"] == "declared"


def test_each_pair_goes_through_every_phase(path: Path) -> None:
    with open_trace(path) as trace:
        kinds = trace.kinds
    pairs = kinds["alloc"]
    expected = Counter(PHASES)
    assert {kind: kinds[kind] / n for kind, n in expected.items() if kind != "unpublish"} == {
        kind: pairs for kind in expected if kind != "unpublish"
    }
    assert 0 < kinds["unpublish"] < pairs


def test_blocks_are_reused_and_all_free_at_the_end(path: Path) -> None:
    with open_trace(path) as trace:
        generations: Counter[int] = Counter()
        held: Counter[int] = Counter()
        for event in trace.events(kinds={"alloc", "touch", "free"}):
            held.update(dict.fromkeys(event["blocks"], -1 if event.ev == "free" else 1))
            if event.ev == "alloc":
                generations.update(event["blocks"])
    assert 0 not in generations and min(generations.values()) >= 2
    assert set(held.values()) == {0}


def test_chunks_make_no_difference(path: Path, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr("hkvtool.bench.synthetic._TICKS_A_CHUNK", 17)
    other = tmp_path / "t.duckdb"
    assert synthetic_trace(other, 6000, 3, pool_blocks=10) > 0
    with open_trace(path) as one, open_trace(other) as two:
        assert all(a == b for a, b in zip(one.events(), two.events(), strict=True))


def test_lists_are_as_long_as_asked_for(tmp_path: Path) -> None:
    told: list[int] = []
    count = synthetic_trace(tmp_path / "t.duckdb", 500, 9, progress=told.append)
    assert told[-1] == count
    with open_trace(tmp_path / "t.duckdb") as trace:
        (batch,) = trace.batches()
    lengths = np.diff(batch.blocks.offsets)
    assert set(lengths.tolist()) == {0, 9}
