"""Cells that stand for many blocks."""

from __future__ import annotations

import numpy as np
import pytest

from hkvtool.state import overview as o
from hkvtool.tui import cells as c


def some(count: int, seed: int) -> o.Overview:
    rng = np.random.default_rng(seed)
    columns = {
        "blocks": np.arange(count), "flags": rng.integers(0, 64, count).astype(np.uint8),
        "form": rng.integers(0, 5, count).astype(np.uint8),
        "code": rng.integers(0, len(o.CODES), count).astype(np.uint8),
    }  # fmt: skip
    return o.Overview(*(columns.get(f, rng.integers(-1, 50, count)) for f in o.Overview._fields))


@pytest.mark.parametrize("count", [1, 4, 63, 64, 65, 1000])
@pytest.mark.parametrize("colouring", c.COLOURINGS)
def test_many_blocks_are_counted_in_one_step_or_two(count: int, colouring: str) -> None:
    seen = some(count, count)
    inside = np.arange(count) % 3 > 0
    for mask in (None, inside):
        fine = c.counted(seen, 4, colouring=colouring, inside=mask)
        for times in (1, 4, 16):
            coarse = c.counted(seen, 4 * times, colouring=colouring, inside=mask)
            again = fine.fewer(times)
            assert all(np.array_equal(a, b) for a, b in zip(coarse, again, strict=True))
            for one, other in zip(c.of_stretches(coarse), c.of_stretches(again), strict=True):
                assert np.array_equal(one, other)
            part = coarse.part(1, 3)
            assert part.size.tolist() == coarse.size[1:3].tolist()


def test_a_cell_says_what_most_of_its_blocks_are() -> None:
    flags = np.array([o.NAMED | o.KNOWN | o.FILLED | o.HELD] * 3 + [0], np.uint8)
    zeros = np.zeros(4, np.int64)
    values = {"blocks": np.arange(4), "flags": flags, "form": np.array([2, 2, 1, 0], np.uint8)}
    seen = o.Overview(*(values.get(f, zeros.astype(np.uint8)) for f in o.Overview._fields))
    counts = c.counted(seen, 4)
    assert counts.hues[:, 0].tolist()[:3] == [0, 1, 2] and counts.size.tolist() == [4]
    cells = c.of_stretches(counts)
    assert chr(cells.chars[0]) == "S" and cells.styles[0] < c.HOLLOW
    assert c.of_stretches(counts, np.array([True])).styles[0] == c.FAULT
