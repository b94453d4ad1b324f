"""Clocks of several machines: by their wall clocks, then by the edges between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hkvtool.model.clocks import Edges, by_edges, by_wall
from hkvtool.model.recording import RecordingCount, Stage, read_recordings
from hkvtool.recorder import ring as ring_module
from hkvtool.recorder.recording import Recording
from hkvtool.store import open_trace
from hkvtool.store.ingesting import ingest

A, B = 11, 22


def clocks_of(sent: list[tuple[int, int, int, int]]) -> Any:
    """Clocks that agree by the wall, with messages (host, time, host, time) between them."""
    edges = Edges()
    for n, (source, cause, target, effect) in enumerate(sent):
        edges.see(source, cause, {"ev": "signal", "event": n})
        edges.see(target, effect, {"ev": "wait", "event": n})
    return by_edges(by_wall([(A, 100, 1000), (B, 50, 950)]), edges)


def test_wall_clocks_bring_them_together() -> None:
    clocks = by_wall([(A, 100, 1000), (B, 7, 1000), (A, 200, 1104)])
    assert (clocks[A].offset, clocks[A].pairs) == (0, 2)
    assert clocks[B].offset == 993 - 902


def test_edges_that_agree_change_nothing() -> None:
    clock = clocks_of([(A, 100, B, 150), (B, 200, A, 230)])[B]
    assert (clock.skew, clock.edges, clock.lowest, clock.highest) == (0, 2, -50, 30)
    assert clock.consistent


def test_effect_before_its_cause_moves_the_clock_as_little_as_it_must() -> None:
    assert clocks_of([(A, 100, B, 80), (B, 200, A, 260)])[B].skew == 20
    assert clocks_of([(B, 100, A, 60)])[B].skew == -40


def test_edges_that_exclude_each_other_are_said() -> None:
    clock = clocks_of([(A, 100, B, 50), (B, 200, A, 230)])[B]
    assert not clock.consistent and clock.skew == 40
    count = RecordingCount(Stage.COMPLETE, clocks={B: clock})
    assert "drifted" in count.problems()[0]


def test_names_that_several_machines_use_say_nothing() -> None:
    edges = Edges()
    for host in (A, B):
        edges.see(host, 10, {"ev": "load_begin", "handle": "h1"})
        edges.see(host, 5, {"ev": "load_end", "handle": "h1"})
    edges.see(A, 10, {"ev": "signal", "event": ["no name"]})
    edges.see(A, 10, {"ev": 7})
    assert list(edges.between()) == []


@given(
    st.integers(-(10**9), 10**9),
    st.lists(st.tuples(st.booleans(), st.integers(0, 10**9), st.integers(0, 10**6)), max_size=40),
)
def test_order_of_causes_is_kept_for_any_skew(
    skew: int, messages: list[tuple[bool, int, int]]
) -> None:
    sent = [
        (A, at, B, at + took + skew) if there else (B, at + skew, A, at + took)
        for there, at, took in messages
    ]
    clock = clocks_of(sent)[B]
    assert clock.consistent
    for source, cause, _, effect in sent:
        if source == A:
            assert cause <= effect + clock.skew
        else:
            assert cause + clock.skew <= effect


def test_two_machines_become_one_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0]
    # The compiled ring asks the machine for the time.
    monkeypatch.setattr(ring_module, "_COMPILED", False)
    monkeypatch.setattr(ring_module, "monotonic_ns", lambda: clock[0])
    for host, behind in ((A, 0), (B, 5_000)):
        monkeypatch.setattr(ring_module, "host_number", lambda host=host: host)
        # Its clock began at another time, and its wall clock is behind.
        started = 1_000_000 if host == A else 9_000_000
        monkeypatch.setattr(ring_module, "time_ns", lambda behind=behind: 10**15 - behind)
        clock[0] = started
        made = Recording.start(tmp_path / f"{host}.hkv", ring_bytes=1 << 14)
        assert isinstance(made, Recording)
        for n in range(3):
            clock[0] = started + 1000 * n + 500 * (host == B)
            ev = "signal" if host == A else "wait"
            made.emit(ev, event=f"e{n}", actor="a" if host == A else "b")
        made.close()
    folders = [tmp_path / "11.hkv", tmp_path / "22.hkv"]
    count = RecordingCount(Stage.COMPLETE)
    events = list(read_recordings(folders, count))
    assert [(e.actor, e["event"]) for e in events] == [
        (lane, f"e{n}") for n in range(3) for lane in "ab"
    ]
    found = count.clocks[B]
    assert (found.offset, found.skew, found.edges) == (-8_000_000 - 5_000, 4_500, 3)
    ingest(folders[0], tmp_path / "t.duckdb", folders[1])
    with open_trace(tmp_path / "t.duckdb") as trace:
        assert trace.meta["clocks"][1]["offset"] == found.offset
        assert trace.count == 6
