"""Lanes at work: a thread each (on a GPU, a stream each), turn by turn in a given order.

The order is total, so a run is the same every time; which orders are possible the edges have
said. On a GPU a lane's work is queued on its own stream, and each turn waits on the device for
the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hkvtool.replay.memory import Memory
from hkvtool.replay.ops import Account
from hkvtool.replay.program import Step

MOST = 64
"""Threads at once; lanes beyond share the last."""


class Lanes:
    """The lanes of a program, for any number of runs of it."""

    def __init__(self, names: Sequence[str], memory: Memory) -> None:
        self.memory = memory
        self._number = {name: min(i, MOST - 1) for i, name in enumerate(names)}
        count = max(self._number.values(), default=0) + 1
        self._threads = [ThreadPoolExecutor(1) for _ in range(count)]
        self._streams: list[Any] = []
        if memory.device != "cpu":
            import torch

            self._streams = [torch.cuda.Stream(memory.device)  # type: ignore[no-untyped-call]
                             for _ in range(count)]  # fmt: skip
            self._turn = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def run(self, steps: Sequence[Step], own: frozenset[tuple[str, int]] | None = None) -> Account:
        """Run steps in this order on fresh memory. With `own` they are part of a trace: what
        other blocks held before counts as right."""
        account = Account(own=own)
        self._fresh()
        at = 0
        while at < len(steps):
            lane = self._number[steps[at].lane]
            until = at
            while until < len(steps) and self._number[steps[until].lane] == lane:
                until += 1
            self._threads[lane].submit(self._work, lane, steps[at:until], account).result()
            at = until
        return account

    def _fresh(self) -> None:
        """Clear the memory behind all that was queued and before all that will be: lanes' streams
        do not wait for the one it is cleared on."""
        if not self._streams:
            self.memory.reset()
            return
        import torch

        torch.cuda.synchronize(self.memory.device)
        self.memory.reset()
        self._turn.record()

    def _work(self, lane: int, steps: Sequence[Step], account: Account) -> None:
        if self._streams:
            import torch

            with torch.cuda.stream(self._streams[lane]):
                self._turn.wait()
                self._all(steps, account)
                self._turn.record()
            return
        self._all(steps, account)

    def _all(self, steps: Sequence[Step], account: Account) -> None:
        for step in steps:
            for op in step.ops:
                op.run(self.memory, account)

    def close(self) -> None:
        for thread in self._threads:
            thread.shutdown()
        if self._streams:
            import torch

            # The memory goes back when the lanes are closed; nothing queued may still use it.
            torch.cuda.synchronize(self.memory.device)
