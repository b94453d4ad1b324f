"""Captured steps: decode batches run as graphs whose addresses and sizes are baked in.

A graph reads its block tables from a buffer that existed when it was captured. So each step in
flight has a buffer of its own, a graph belongs to one buffer and one batch size, and whenever the
topology is not at rest (a graph just being captured, blocks under way to or from another tier)
the step runs without one. On a CUDA device the graphs are real ones; elsewhere the recorded
pointers stand for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from hkvtool.engine.allocator import Emit
from hkvtool.engine.cuda_graph import GatherGraph
from hkvtool.engine.memory import Memory

BUFFERS = 2
"""One for each step that can be in flight."""


class StepTables:
    """The block-table buffers of steps, and the graphs captured over them."""

    def __init__(self, emit: Emit, memory: Memory, largest: int) -> None:
        self.emit = emit
        self.memory = memory
        self.sizes = [1 << i for i in range(largest.bit_length())]
        self.buffers = [
            torch.zeros(self.sizes[-1], dtype=torch.int64, device=memory.device)
            for _ in range(BUFFERS)
        ]
        self.captured: dict[str, Mapping[str, str]] = {}
        self._real: dict[str, GatherGraph] = {}
        self._stale: list[Any] = []
        self.launches = self.bypasses = 0

    def fill(self, step: int, firsts: list[int]) -> None:
        """Write the step's rows (here the first block of each request) before its dispatch."""
        buffer = self.buffers[step % BUFFERS]
        buffer[: len(firsts)] = torch.tensor(firsts, dtype=torch.int64)
        self.emit("buffer", name=self._name(step), op="write", version=step, valid=len(firsts))

    def read(self, step: int, rows: int) -> None:
        """The device takes the rows, first thing in the step."""
        self.emit("buffer", name=self._name(step), op="read", version=step, step=step, extent=rows)

    def launch(self, step: int, rows: int, *, moving: bool) -> None:
        """Run a decode batch as a graph, or without one where it cannot be trusted to."""
        size = next(size for size in self.sizes if size >= rows)
        graph = f"decode-{size}.{step % BUFFERS}"
        bypass = moving
        if graph not in self.captured:
            self.captured[graph] = self._pointers(step)
            if self.memory.device != "cpu":
                table = self.buffers[step % BUFFERS][:size]
                self._real[graph] = GatherGraph(self.memory.pages["gpu"].rows, table)
            self.emit("capture", graph=graph, pointers=self.captured[graph])
            bypass = True
        elif not bypass and graph in self._real:
            self._stale.append(self._real[graph].replay(self.memory.pages["gpu"].rows))
        keys = {"bypass": True} if bypass else {}
        self.bypasses += bypass
        self.launches += not bypass
        self.emit(
            "launch", actor="device", step=step, graph=graph, pointers=self._pointers(step), **keys
        )

    def stale_replays(self) -> int:
        """Real graphs that read other bytes than the live pages hold; waits for the device."""
        return sum(bool(wrong) for wrong in self._stale)

    def _pointers(self, step: int) -> dict[str, str]:
        """What is live now: the addresses a graph of this buffer depends on."""
        return {
            "kv": hex(self.memory.pages["gpu"].rows.data_ptr()),
            self._name(step): hex(self.buffers[step % BUFFERS].data_ptr()),
        }

    def _name(self, step: int) -> str:
        return f"tables#{step % BUFFERS}"
