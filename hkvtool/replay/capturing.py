"""Graphs captured for real: on a GPU a launch's reads are a replay of what was captured before.

A graph has its memory's address baked in; which rows it gathers it learns from a buffer that is
filled before each launch, as an engine fills its block tables. Which life of the memory a graph
was captured on is as the trace says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from hkvtool.kernels import operations as kernels
from hkvtool.kernels.rows import Rows, sent

Key = tuple[str, str, int, tuple[int, ...], tuple[int, ...]]
"""A graph, the storage it reads, and the shape of what it gathers there."""


@dataclass(frozen=True)
class Gathering:
    """A captured graph, where it is told which rows to gather, and where it leaves them."""

    graph: Any
    starts: torch.Tensor
    packed: torch.Tensor

    def launch(self, rows: Rows) -> torch.Tensor:
        """Replay it on the current stream; what it leaves lies there until the next launch."""
        self.starts.copy_(sent(rows.starts, self.starts.device))
        self.graph.replay()
        return self.packed


@dataclass
class Captures:
    """The graphs of one memory, captured when they are first launched."""

    made: dict[Key, Gathering] = field(default_factory=dict)

    def gather(self, graph: str, storage: str, buffer: torch.Tensor, rows: Rows) -> torch.Tensor:
        """The rows, packed, as the graph reads them."""
        key = (graph, storage, len(rows), rows.lengths, rows.words)
        found = self.made.get(key)
        if found is None:
            found = self.made[key] = captured(buffer, rows)
        return found.launch(rows)


def captured(buffer: torch.Tensor, rows: Rows) -> Gathering:
    """A graph that gathers as many rows of such a shape from this buffer."""
    there = rows.on(buffer.device)
    # Once outside: kernels are loaded, and what they keep on the device is there.
    packed = kernels.gather(buffer, there)
    torch.cuda.current_stream(buffer.device).synchronize()
    graph = torch.cuda.CUDAGraph()
    # Other lanes' threads may not be there for what one of them captures.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        packed.copy_(kernels.gather(buffer, there))
    return Gathering(graph, there.starts, packed)
