"""What a filter lets through, and what it refuses."""

from __future__ import annotations

import pytest

from hkvtool.model.errors import HkvError
from hkvtool.state.fold import Fold
from hkvtool.state.overview import blocks_of, overview
from hkvtool.tui.filters import inside, parsed


@pytest.fixture(scope="module")
def fold(cases, read_events) -> Fold:  # type: ignore[no-untyped-def]
    found = Fold()
    for event in read_events(cases["A01"].bad)[:38]:
        found.apply(event)
    return found


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("group=fa", {11, 12, 13, 14}), ("group=mb", {41, 42, 43}), ("form=recurrent", {41, 42, 43}),
        ("recurrent", {41, 42, 43}), ("req=c1", {13, 14, 43}), ("c1", {13, 14, 43}),
        ("request=c1 form=recurrent", {43}), ("hash=6e58b3ea", {11}), ("hash=nothing", set()),
        ("rule=101", {14}), ("HKV101", {14}), ("layer=1", {14}), ("group=nobody", set()),
        ("state=free group=mb", {41}), ("state=published group=fa", {11, 12, 13}),
        ("state=resumable", {11, 12, 13, 41, 42}), ("state=pinned", set()), ("req=99", set()),
    ],
)  # fmt: skip
def test_what_is_let_through(fold: Fold, text: str, blocks: set[int]) -> None:
    pool = fold.declared.pools["gpu"]
    seen = overview(fold, pool, blocks_of(pool))
    mask = inside(parsed(text), fold, seen)
    assert set(seen.blocks[mask].tolist()) == blocks


def test_nothing_typed_lets_everything_through(fold: Fold) -> None:
    pool = fold.declared.pools["gpu"]
    assert not parsed("  ")
    assert inside(parsed(""), fold, overview(fold, pool, blocks_of(pool))) is None


@pytest.mark.parametrize(
    ("text", "hint"),
    [("grup=fa", "group="), ("form=compresed", "compressed"), ("state=lost", "resumable"),
     ("rule=999", "hkvtool rules"), ("layer=0", "1, 2"), ("colour=red", "group, req")],
)  # fmt: skip
def test_what_means_nothing_is_refused(text: str, hint: str) -> None:
    with pytest.raises(HkvError) as e:
        parsed(text)
    assert hint in e.value.hint
