"""The figures of `bench explore` are of real searches."""

from __future__ import annotations

from hkvtool.bench.explore import hunts, planted, reduction
from hkvtool.bench.explore_cases import race_windows


def test_every_way_hunts_the_same_window() -> None:
    (hunt,) = hunts({"planted": planted(2, 8, 1)}, 3)
    assert set(hunt.runs) >= {"random walk", "hypothesis", "PCT 2", "POS", "directed"}
    assert all(len(runs) == 3 for runs in hunt.runs.values())
    assert all(run is not None and run <= 3 for run in hunt.runs["directed"])
    assert any(hunt.runs["POS"])


def test_what_was_saved_is_counted_with_blocked_runs() -> None:
    saved = reduction(3, 3, 2, 0, 10_000)
    assert saved.complete and saved.interleavings == 1680
    assert 1 <= saved.orders <= saved.interleavings and saved.blocked >= 0
    assert not reduction(3, 4, 2, 0, 1).complete


def test_the_cases_have_races_to_hunt() -> None:
    found = race_windows()
    assert len(found) >= 6 and all(window.races for window in found.values())
