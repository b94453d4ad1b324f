"""Arrays that take memory only where they are written to."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from hkvtool.state.untouched import LEAST, cleared, give_back_code, untouched

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is for Linux")

SIZE = 3 * LEAST + 5


def resident_kib() -> int:
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(text.partition("VmRSS:")[2].split()[0])


@pytest.mark.parametrize("empty", [0, -1])
@pytest.mark.parametrize("kind", ["i4", "i8"])
def test_it_is_an_array_of_one_value(empty: int, kind: str) -> None:
    column = untouched(SIZE, empty, np.dtype(kind))
    assert column is not None and column.dtype == kind and len(column) == SIZE
    assert column.flags.c_contiguous and column.flags.writeable
    places = [0, 1, SIZE // 2, SIZE - 1]
    column[places] = [7, 8, 9, 10]
    other = untouched(SIZE, empty, np.dtype(kind))
    assert column[places].tolist() == [7, 8, 9, 10]
    assert (other == empty).all(), "what is written to one array is its own"
    column[places] = empty
    assert (column == empty).all()


@pytest.mark.parametrize("empty", [0, -1])
def test_cleared_it_is_as_before(empty: int) -> None:
    column = untouched(SIZE, empty, np.dtype("i4"))
    column[:] = 5
    part = column[10:20]
    assert cleared(column)
    assert (column == empty).all() and (part == empty).all()


@pytest.mark.parametrize("empty", [0, -1])
def test_it_takes_memory_where_it_is_written_to(empty: int) -> None:
    before = resident_kib()
    column = untouched(64 * LEAST, empty, np.dtype("i4"))
    column[::LEAST] = 1
    assert resident_kib() - before < 32 << 10
    column[: 32 * LEAST] = 1
    assert resident_kib() - before > 100 << 10
    assert cleared(column)
    assert resident_kib() - before < 32 << 10


def test_a_view_outlives_the_array() -> None:
    column = untouched(SIZE, -1, np.dtype("i4"))
    part = column[-3:]
    del column
    assert part.tolist() == [-1, -1, -1]


def test_where_it_is_no_gain_there_is_none() -> None:
    assert untouched(100, -1, np.dtype("i4")) is None
    assert untouched(SIZE, 7, np.dtype("i4")) is None
    assert not cleared(np.zeros(10, np.int64))
    assert not cleared(np.zeros((4, 4), np.int64)[1])


def test_code_that_was_given_back_still_runs() -> None:
    give_back_code("_multiarray_umath")
    assert np.arange(10).sum() == 45
