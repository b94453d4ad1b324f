"""What a slice did not see written may have been written before."""

from __future__ import annotations

import torch

from hkvtool.kernels.stamps import BYTES, NEVER
from hkvtool.replay.cells import Cells
from hkvtool.replay.ops import About, Account


def wrong(own: frozenset[tuple[str, int]] | None, fill: int) -> list[int]:
    """Blocks of wrong rows where blocks 5 and 6 hold rows of one byte."""
    account = Account(own=own)
    rows = torch.full((4, BYTES), fill, dtype=torch.uint8).view(torch.int64)
    cells = Cells((5, 6), (0, 2), (2, 4), 1, 2)
    about = About(7, "r1", 1, "kv", "gpu", "read")
    account.judge(
        about, cells, torch.ones(4, dtype=torch.bool), torch.zeros_like(rows), rows, "a row"
    )
    return [w.block for w in account.wrong]


def test_in_a_whole_trace_every_row_must_be_written() -> None:
    assert wrong(None, NEVER) == [5, 5, 6, 6]


def test_in_a_slice_only_the_findings_own_blocks_must_be() -> None:
    assert wrong(frozenset({("gpu", 6)}), NEVER) == [6, 6]
    assert wrong(frozenset(), NEVER) == []


def test_other_bytes_are_wrong_anywhere() -> None:
    assert wrong(frozenset(), 0) == [5, 5, 6, 6]
