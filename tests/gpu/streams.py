"""Races on two streams, each without its edge and with it; a spin holds up what must come late.

And a graph that is really captured, launched with memory that has moved since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hkvtool.kernels import Rows, pack, plain_page, reference
from hkvtool.kernels import triton_kernels as k

RUNS = 20
HOLD = 3_000_000
"""Rounds of a spin that outlast whatever the other stream does."""

ENTRIES = 64
PAGE = plain_page(ENTRIES, 656)
ROWS = PAGE.at(torch.zeros(ENTRIES, dtype=torch.int64), torch.arange(ENTRIES))
CARE = torch.tensor([[-1, -1, 0, 0]]).expand(ENTRIES, 4)
OWN, OTHER = (pack(sequence, 1, torch.arange(ENTRIES), 1, 1) for sequence in (1, 2))


class Bench:
    """A block, what a reader made of it, host memory, and two streams."""

    def __init__(self) -> None:
        self.block = torch.zeros(PAGE.bytes, dtype=torch.uint8, device="cuda")
        self.seen = torch.zeros_like(self.block)
        self.host = torch.zeros(PAGE.bytes, dtype=torch.uint8).pin_memory()
        self.rows: Rows = ROWS.on("cuda")
        self.own, self.other = OWN.cuda(), OTHER.cuda()
        self.first, self.second = torch.cuda.Stream(), torch.cuda.Stream()

    def reset(self, stamps: torch.Tensor | None = None) -> None:
        """Nothing is written, or a block is; no stream has anything to do."""
        torch.cuda.synchronize()
        for memory in (self.block, self.seen, self.host):
            memory.zero_()
        if stamps is not None:
            k.stamp(self.block, self.rows, stamps)
        torch.cuda.synchronize()

    def both(self, late: Callable[[], Any], early: Callable[[], Any], edge: bool) -> None:
        """`late`, held up, on the first stream and `early` on the second: with an edge it waits."""
        with torch.cuda.stream(self.first):
            k.spin(HOLD, "cuda")
            late()
            done = self.first.record_event()
        with torch.cuda.stream(self.second):
            if edge:
                self.second.wait_event(done)
            early()
        torch.cuda.synchronize()

    def wrong(self, memory: torch.Tensor) -> bool:
        """Whether some row is not the block's own."""
        return bool(reference.verify(memory.cpu(), ROWS, OWN, CARE)[0].any())


def store_before_write(b: Bench, edge: bool) -> bool:
    """A store takes a block to the host before the kernel that writes it is done."""
    b.reset()
    b.both(lambda: k.stamp(b.block, b.rows, b.own),
           lambda: b.host.copy_(b.block, non_blocking=True), edge)  # fmt: skip
    return b.wrong(b.host)


def load_over_reader(b: Bench, edge: bool) -> bool:
    """A load lays another request's rows over a block that a kernel is still to read."""
    b.reset(b.own)
    reference.stamp(b.host, ROWS, OTHER)
    b.both(lambda: b.seen.copy_(k.gather(b.block, b.rows).view(-1)),
           lambda: b.block.copy_(b.host, non_blocking=True), edge)  # fmt: skip
    return b.wrong(b.seen)


def late_writer(b: Bench, edge: bool) -> bool:
    """The old owner of a block writes it once more, behind the new one."""
    b.reset()
    b.both(lambda: k.stamp(b.block, b.rows, b.other),
           lambda: k.stamp(b.block, b.rows, b.own), edge)  # fmt: skip
    return b.wrong(b.block)


def zero_after_load(b: Bench, edge: bool) -> bool:
    """A new block is cleared behind the load that filled it."""
    b.reset()
    reference.stamp(b.host, ROWS, OWN)
    b.both(lambda: k.zero(b.block, b.rows),
           lambda: b.block.copy_(b.host, non_blocking=True), edge)  # fmt: skip
    return b.wrong(b.block)


def staging_reuse(b: Bench, edge: bool) -> bool:
    """The host fills its staging memory anew while a copy out of it is under way."""
    b.reset()
    reference.stamp(b.host, ROWS, OWN)
    with torch.cuda.stream(b.first):
        k.spin(HOLD, "cuda")
        b.block.copy_(b.host, non_blocking=True)
        done = b.first.record_event()
    if edge:
        done.synchronize()
    reference.stamp(b.host, ROWS, OTHER)
    torch.cuda.synchronize()
    return b.wrong(b.block)


class Captured:
    """A graph whose kernels were given one block's memory, and a block that has moved since."""

    def __init__(self, b: Bench) -> None:
        self.b = b
        self.moved = torch.zeros_like(b.block)
        self.stale = self.capture(b.block)
        self.again = self.capture(self.moved)

    def capture(self, block: torch.Tensor) -> torch.cuda.CUDAGraph:
        """What reads a block, as a graph."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            # Once outside: kernels are loaded, and what they keep on the device is there.
            self._read(block)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._read(block)
        return graph

    def _read(self, block: torch.Tensor) -> None:
        self.b.seen.copy_(k.gather(block, self.b.rows).view(-1))

    def stale_pointer(self, edge: bool) -> bool:
        """The block is elsewhere now; the graph reads where it was, unless captured again."""
        self.b.reset(self.b.other)
        k.stamp(self.moved, self.b.rows, self.b.own)
        torch.cuda.synchronize()
        (self.again if edge else self.stale).replay()
        torch.cuda.synchronize()
        return self.b.wrong(self.b.seen)


def run() -> dict[str, Any]:
    """Of so many runs of each arm, how many read wrong bytes."""
    b = Bench()
    captured = Captured(b)
    races: dict[str, Callable[[bool], bool]] = {
        "store before write": lambda edge: store_before_write(b, edge),
        "load over reader": lambda edge: load_over_reader(b, edge),
        "late writer": lambda edge: late_writer(b, edge),
        "zero after load": lambda edge: zero_after_load(b, edge),
        "staging reuse": lambda edge: staging_reuse(b, edge),
        "stale pointer in a captured graph": captured.stale_pointer,
    }
    found: dict[str, Any] = {"runs": RUNS}
    for name, race in races.items():
        # The first run compiles kernels, which takes longer than any spin.
        race(True)
        found[name] = {
            "fault": sum(race(False) for _ in range(RUNS)),
            "control": sum(race(True) for _ in range(RUNS)),
        }
        print(name, found[name], flush=True)
    return found
