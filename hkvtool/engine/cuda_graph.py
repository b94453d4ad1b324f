"""A decode batch's gather as a real CUDA graph: addresses baked in, contents read at replay."""

from __future__ import annotations

from typing import Any

import torch


class GatherGraph:
    """Gathers the pages that a block-table buffer names, captured once over both their addresses.

    `pages`: (blocks, rows, 2) int64 on a CUDA device. `table`: (batch,) int64 on the same.
    """

    def __init__(self, pages: Any, table: Any) -> None:
        self.table = table
        self.found = torch.empty((len(table), *pages.shape[1:]), dtype=pages.dtype, device="cuda")
        # The first run of a kernel may allocate, which a capture must not.
        cuda: Any = torch.cuda
        aside = cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            torch.index_select(pages, 0, table, out=self.found)
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            torch.index_select(pages, 0, table, out=self.found)

    def replay(self, pages: Any) -> Any:
        """Run the graph; whether it read anything but what `pages`, where they are now, hold."""
        self.graph.replay()
        return (self.found != pages.index_select(0, self.table)).any()
