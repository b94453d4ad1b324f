"""Wherever one goes in whatever order, the state is that of a fold from the start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hkvtool.state import keyframes
from hkvtool.state.excerpt import Excerpt
from hkvtool.state.fold import Fold
from hkvtool.state.overview import blocks_of, judged, overview
from hkvtool.store import open_trace, seeking
from hkvtool.store.seeking import Moments
from hkvtool.store.timeline import step_at, timeline
from tests.state.fold_facts import Facts, facts
from tests.state.hostile import hostile
from tests.state.traces import Plain, imported, named, parted, valid, written

SEEDS = st.integers(0, 1 << 30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("seeking")


def told(fold: Fold, there: Facts) -> Facts:
    """What a fold of some blocks says as a whole one does: of every block all that it is, and what
    is under way; not which blocks are free and owned beside those that it has."""
    if not isinstance(fold, Excerpt):
        return there
    left_out = {"requests", "hashes", "header"}
    return {k: v for k, v in there.items() if k not in left_out and k[0] != "free"}


def walk(path: Path, seed: int) -> list[str]:
    """Jump and step about, and compare with folds from the start; the kinds of folds there were."""
    kinds: list[str] = []
    rng = Random(seed)
    with open_trace(path) as trace:
        events = list(trace.events())
        moments = Moments(trace)
        pos = moments.last
        for _ in range(8):
            pos = rng.choice([pos + 1, pos - 1, pos - 2, rng.randrange(len(events) + 1)])
            pos = max(moments.first - 1, min(moments.last, pos))
            fold = moments.at(pos)
            kinds.append(type(fold).__name__)
            there, expected = told(fold, facts(fold, named(events))), Plain(events).until(pos)
            assert parted(there, told(fold, expected)) is None, (seed, pos)
            for pool in fold.declared.pools.values():
                ids = blocks_of(pool)
                for one, other in zip(
                    overview(fold, pool, ids), judged(fold, pool, ids), strict=True
                ):
                    assert (one == other).all(), (seed, pos)
    return kinds


@settings(max_examples=12)
@given(SEEDS)
def test_short_traces(folder: Path, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seeking, "COPY_EVERY", 5)
        walk(written(folder, valid(seed)), seed)
        walk(written(folder, hostile(seed)), seed)


@pytest.fixture
def long() -> Iterator[None]:
    """Everything is long, and a keyframe and an image are near."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyframes, "EVERY", 9)
        patch.setattr(keyframes, "CHUNK", 8)
        patch.setattr("hkvtool.store.moments.PLAIN_LIMIT", 0)
        patch.setattr(seeking, "PLAIN_LIMIT", 0)
        patch.setattr(seeking, "GO_ON", 11)
        yield


def test_long_traces(folder: Path, long: None) -> None:
    kinds: list[str] = []
    for seed in range(4):
        kinds += walk(imported(folder, valid(seed)), seed)
        kinds += walk(imported(folder, hostile(seed)), seed)
    assert kinds.count("Excerpt") > 30
    assert kinds.count("CompiledFold") > 0


def test_keyframes_that_do_not_say_what_every_block_was(
    folder: Path, long: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hkvtool.store.duck.SEEN_SINCE", 1 << 20)
    assert "CompiledFold" in walk(imported(folder, hostile(2, 300)), 2)


@pytest.mark.soak
def test_many_long_traces(folder: Path, long: None) -> None:
    for seed in range(4, 150):
        walk(imported(folder, hostile(seed, 300)), seed)
        if seed % 5 == 0:
            walk(imported(folder, valid(seed)[:1200]), seed)


def test_copies_stay_within_their_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeking, "COPY_EVERY", 2)
    monkeypatch.setattr(seeking, "COPIES_BYTES", 100_000)
    with open_trace(written(folder, valid(3))) as trace:
        moments = Moments(trace)
        moments.at(moments.last)
        assert sum(size for _, size, _ in moments._copies) <= 100_000 or len(moments._copies) == 1


@pytest.mark.parametrize("stored", [False, True])
def test_neighbours(folder: Path, stored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if stored:
        monkeypatch.setattr(seeking, "PLAIN_LIMIT", 0)
        monkeypatch.setattr(seeking, "_FIRST_SPAN", 2)
    lines = valid(7)
    with open_trace(imported(folder, lines) if stored else written(folder, lines)) as trace:
        moments, events = Moments(trace), list(trace.events())
        for event in events[:: max(1, len(events) // 25)]:
            for kinds in (None, {"write"}, {"alloc", "free"}):
                fits = [e.pos for e in events if kinds is None or e.ev in kinds]
                after, before = moments.after(event.pos, kinds), moments.before(event.pos, kinds)
                assert (after and after.pos) == min(
                    (p for p in fits if p > event.pos), default=None
                )
                assert (before and before.pos) == max(
                    (p for p in fits if p < event.pos), default=None
                )
            named = next((e for e in reversed(events) if e.pos < event.pos and e.req == "r1"), None)
            found = moments.before(event.pos, req="r1")
            assert (found and found.pos) == (named and named.pos)
        assert [e.pos for e in moments.span(3, 9)] == [e.pos for e in events if 3 <= e.pos <= 9]


@pytest.mark.parametrize("stretches", [1, 7, 512])
def test_a_timeline_counts_every_event_once(folder: Path, stretches: int) -> None:
    lines = hostile(11)
    with open_trace(written(folder, lines)) as plain, open_trace(imported(folder, lines)) as stored:
        one, other = timeline(plain, stretches), timeline(stored, stretches)
        assert (one.counts == other.counts).all()
        assert (one.ts == other.ts).all()
        assert one.counts.sum() == plain.count
        assert len(one.counts) <= stretches
        for event in plain.events():
            at = one.stretch(event.pos)
            assert one.edges[at] <= event.pos < one.edges[at + 1]
        assert (one.in_flight() >= 0).all()


def test_a_step_is_found_where_it_was_dispatched(folder: Path) -> None:
    lines = valid(5)
    with open_trace(written(folder, lines)) as plain, open_trace(imported(folder, lines)) as stored:
        first: dict[int, int] = {}
        for event in plain.events(kinds={"dispatch"}):
            first.setdefault(event["step"], event.pos)
        assert first
        for step, pos in first.items():
            assert step_at(plain, step) == step_at(stored, step) == pos
        for step in (-1, 1 << 62, 1 << 90):
            assert step_at(plain, step) is None
            assert step_at(stored, step) is None


def test_a_longer_reading_goes_on_where_the_last_one_was(folder: Path) -> None:
    lines = valid(9)
    half = len(lines) // 2
    with open_trace(written(folder, lines[:half])) as short:
        earlier = Moments(short)
        earlier.at(earlier.last)
    with open_trace(written(folder, lines)) as whole:
        moments, events = Moments(whole), list(whole.events())
        moments.go_on_from(earlier)
        for pos in (half + 1, len(events), 3, half):
            there = facts(moments.at(pos), named(events))
            assert parted(there, Plain(events).until(pos)) is None
    with open_trace(written(folder, [*lines[:3], *lines])) as other:
        moments, events = Moments(other), list(other.events())
        moments.go_on_from(Moments(whole))
        there = facts(moments.at(half), named(events))
        assert parted(there, Plain(events).until(half)) is None
