"""What is on the map is what the fold says, at a thousand random moments of random traces."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from hkvtool.model.event import Event
from hkvtool.state import keyframes
from hkvtool.state.fold import Fold
from hkvtool.state.serving import foreign
from hkvtool.state.view import block_state
from hkvtool.store import seeking
from hkvtool.tui import palette as p
from hkvtool.tui.mosaic import DETAIL, Mosaic, Place, View
from hkvtool.tui.opening import opened
from tests.state.hostile import hostile
from tests.state.traces import Data, imported, valid, written

MOMENTS, OF_EACH = 1_000, 25
"""Moments of each kind of trace, and of one trace at most."""


MOST_BLOCKS = 128
"""Blocks of a pool that are compared."""


def cells_of(fold: Fold) -> dict[tuple[str, int], tuple[str, str]]:
    """Letter and glyph of each block that belongs to a group, from the record of each."""
    found: dict[tuple[str, int], tuple[str, str]] = {}
    for pool in fold.declared.pools.values():
        if pool.blocks > MOST_BLOCKS:
            continue
        groups = [g for g in fold.declared.groups.values() if g.pool is pool]
        tables = {g.table_id for g in groups}
        for block in range(pool.blocks):
            slot = fold.find(pool, block)
            if slot is None:
                found[pool.name, block] = (p.EMPTY, " ")
                continue
            table = int(fold.st.table[slot])
            own = [g for g in groups if g.table_id == table or (len(tables) == 1 and table < 0)]
            states = [block_state(fold, g, block) for g in own]
            if not states or any(s is None for s in states):
                continue
            assert not any(foreign(fold, g, slot) for g in own)
            found[pool.name, block] = cell(states)
    return found


def cell(states) -> tuple[str, str]:  # type: ignore[no-untyped-def]
    first = states[0]
    if first.uncertain:
        return p.UNSURE, p.UNSURE
    letter = p.LETTERS[[str(f) for f in p.FORMS].index(str(first.form))]
    loading = first.residency == "recovering"
    if all(s.recoverable for s in states):
        glyph = p.HELD if first.ref_count > 0 else p.FREE
    else:
        filled = all(s.written or s.version or s.recoverable for s in states)
        codes = [s.why_not for s in states if s.why_not]
        if not (filled or loading or first.ref_count > 0) and first.ref_count <= 0:
            return "", ""
        letter, glyph = letter.lower(), codes[0][3] if codes else p.EMPTY
    if loading:
        return letter, p.PENDING
    return letter, p.PINNED if first.pins > 0 else glyph


def compare(folder: Path, stream, wanted_moments: int, stored: bool) -> int:  # type: ignore[no-untyped-def]
    """Compare what is shown at random moments of random traces; how many blocks that was."""
    compared = moments = seed = 0
    while moments < wanted_moments:
        seed += 1
        lines: list[Data] = stream(seed)
        rng = Random(seed)
        wanted = {rng.randrange(1, len(lines) + 1) for _ in range(OF_EACH)}
        expected, fold = {}, Fold()
        for pos, data in enumerate(lines, 1):
            fold.apply(Event.of(pos, data))
            if pos in wanted:
                expected[pos] = cells_of(fold)
        path = imported(folder, lines) if stored else written(folder, lines)
        with opened(str(path)) as session:
            for pos in rng.sample(sorted(wanted), len(wanted)):
                look = session.look(pos)
                moments += 1
                mosaic = Mosaic(look.pools, pos, View(200, DETAIL))
                shown = {
                    (pool.name, int(block)): (number, at)
                    for number, pool in enumerate(look.pools)
                    for at, block in enumerate(pool.seen.blocks.tolist())
                }
                for place, (letter, glyph) in expected[pos].items():
                    if not letter:
                        continue
                    pool, at = shown[place]
                    cells = mosaic.cells(pool, at, at + 1)
                    got = chr(cells.chars[0]), chr(cells.glyphs[0])
                    if place[1] in look.pools[pool].reserved:
                        continue
                    assert got == (letter, glyph), (seed, pos, place)
                    assert mosaic.block_at(Place(pool, at)) == place
                    compared += 1
    return compared


@pytest.mark.parametrize("stream", [valid, hostile])
def test_the_map_is_the_fold(tmp_path: Path, stream) -> None:  # type: ignore[no-untyped-def]
    assert compare(tmp_path, stream, MOMENTS, stored=False) > 5_000


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every trace is long, and has many keyframes."""
    monkeypatch.setattr(keyframes, "EVERY", 37)
    monkeypatch.setattr(keyframes, "CHUNK", 16)
    monkeypatch.setattr(seeking, "GO_ON", 23)
    monkeypatch.setattr(seeking, "PLAIN_LIMIT", 0)
    monkeypatch.setattr("hkvtool.store.moments.PLAIN_LIMIT", 0)


@pytest.mark.parametrize("stream", [valid, hostile])
def test_the_map_of_a_long_trace_is_the_fold(tmp_path: Path, stream, long: None) -> None:  # type: ignore[no-untyped-def]
    assert compare(tmp_path, stream, OF_EACH, stored=True) > 200


@pytest.mark.soak
@pytest.mark.parametrize("stream", [valid, hostile])
def test_the_map_of_many_long_traces_is_the_fold(tmp_path: Path, stream, long: None) -> None:  # type: ignore[no-untyped-def]
    assert compare(tmp_path, stream, MOMENTS, stored=True) > 5_000
