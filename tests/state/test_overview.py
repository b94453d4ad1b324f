"""Every block at once is every block one by one."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hkvtool.model.event import Event
from hkvtool.state.compiled import CompiledFold
from hkvtool.state.copying import copied
from hkvtool.state.fold import Fold
from hkvtool.state.overview import (
    CODES,
    FILLED,
    HASHED,
    HELD,
    KNOWN,
    LOADING,
    NAMED,
    PINNED,
    blocks_of,
    overview,
)
from hkvtool.state.view import block_state
from hkvtool.store import open_trace
from tests.state.fold_facts import Facts
from tests.state.fold_facts import facts as facts_of
from tests.state.hostile import hostile
from tests.state.traces import Data, imported, valid

BLOCKS = range(-1, 40)


def facts(fold: Fold) -> Facts:
    return facts_of(fold, BLOCKS)


FORMS = ("compressed", "tail", "swa", "indexer", "recurrent", "on_disk")
SEEDS = st.integers(0, 1 << 30)


def agree(fold: Fold) -> int:
    """Compare the columns with the records, for every group and as a whole; how many blocks."""
    compared = 0
    for pool in fold.declared.pools.values():
        if pool.blocks > 4096:
            continue
        ids = blocks_of(pool)
        groups = [g for g in fold.declared.groups.values() if g.pool is pool]
        for group in groups:
            seen = overview(fold, pool, ids, group)
            for i, block in enumerate(ids.tolist()):
                state = block_state(fold, group, block)
                flags = int(seen.flags[i])
                assert bool(flags & NAMED) == (state is not None), (pool.name, block)
                if state is None:
                    continue
                compared += 1
                assert CODES[seen.code[i]] == (state.why_not or "")
                assert bool(seen.recoverable()[i]) == state.recoverable
                assert bool(flags & KNOWN) == (not state.uncertain)
                assert bool(flags & HELD) == (state.ref_count > 0)
                assert bool(flags & PINNED) == (state.pins > 0)
                assert bool(flags & LOADING) == (state.residency == "recovering")
                assert bool(flags & HASHED) == (state.published is not None)
                assert FORMS[seen.form[i]] == str(state.form)
        agree_as_a_whole(fold, pool, ids, groups)
    return compared


def agree_as_a_whole(fold: Fold, pool, ids, groups) -> None:  # type: ignore[no-untyped-def]
    """A block is seen as the groups of the table that it was allocated for see it."""
    seen = overview(fold, pool, ids)
    tables = {g.table_id for g in groups}
    for i, block in enumerate(ids.tolist()):
        slot = fold.find(pool, block)
        if slot is None:
            assert seen.flags[i] == 0
            continue
        table = int(fold.st.table[slot])
        own = [g for g in groups if g.table_id == table or (len(tables) == 1 and table < 0)]
        states = [block_state(fold, g, block) for g in own]
        if not own:
            assert seen.group[i] == -1
            continue
        codes = [s.why_not for s in states if s is not None and s.why_not]
        assert CODES[seen.code[i]] == (codes[0] if codes else "")
        assert bool(seen.recoverable()[i]) == all(s is not None and s.recoverable for s in states)


def stops(lines: list[Data], seed: int) -> set[int]:
    return {Random(seed).randrange(len(lines)) for _ in range(4)}


@pytest.mark.parametrize("stream", [valid, hostile])
@settings(max_examples=40)
@given(SEEDS)
def test_the_overview_is_every_record(stream, seed: int) -> None:  # type: ignore[no-untyped-def]
    lines, fold = stream(seed), Fold()
    wanted = stops(lines, seed)
    for number, line in enumerate(lines):
        fold.apply(Event.of(number + 1, line))
        if number in wanted:
            agree(fold)


def test_the_overview_of_the_cases(cases, read_events) -> None:  # type: ignore[no-untyped-def]
    compared = 0
    for case in cases.values():
        events, fold = read_events(case.bad), Fold()
        for event in events:
            fold.apply(event)
            if event.pos % 9 == 0:
                compared += agree(fold)
    assert compared > 2_000


def test_the_compiled_fold_has_the_same_overview(tmp_path: Path) -> None:
    for seed in range(6):
        lines = valid(seed)
        with open_trace(imported(tmp_path, lines)) as trace:
            fold = CompiledFold(trace)
            if fold.fits:
                fold.advance(until=trace.meta["last_pos"] // 2)
                agree(fold)
                fold.advance(since=trace.meta["last_pos"] // 2 + 1)
                agree(fold)


@settings(max_examples=40)
@given(SEEDS)
def test_a_copy_goes_its_own_way(seed: int) -> None:
    lines, fold = hostile(seed), Fold()
    half = len(lines) // 2
    events = [Event.of(i + 1, line) for i, line in enumerate(lines)]
    for event in events[:half]:
        fold.apply(event)
    other = copied(fold)
    assert facts(other) == facts(fold)
    for event in events[half:]:
        other.apply(event)
    # What was copied from is where it was, and a copy of it comes to the same.
    again = copied(fold)
    for event in events[half:]:
        again.apply(event)
    assert facts(again) == facts(other)


def test_nothing_is_filled_of_a_pool_that_nothing_has_touched() -> None:
    fold = Fold()
    pool = {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 9}
    fold.apply(Event.of(1, pool))
    seen = overview(fold, fold.declared.pools["gpu"], blocks_of(fold.declared.pools["gpu"]))
    assert len(seen.blocks) == 9
    assert not (seen.flags & (FILLED | NAMED)).any()
