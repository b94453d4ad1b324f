"""Faults of routing: a block read as what it is not, or before it is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hkvtool.engine.engine import Engine
from hkvtool.engine.faults import Fault, wrap
from hkvtool.engine.faults_content import NotMigrated
from hkvtool.engine.geometry import Group
from hkvtool.engine.live import Live
from hkvtool.engine.tiers import Transfer
from hkvtool.engine.workload import Request
from hkvtool.model.forms import Form


class CrossForm(Fault):
    """The last row of the full table is filled with the id that was taken for the window."""

    code = "HKV601"
    needs = (Form.SWA,)

    def put(self, engine: Engine) -> None:
        wrap(engine.device, "use", self._use)

    def _use(
        self, inner: Callable[..., None], step: int, request: Request, group: Group,
        blocks: dict[int, int], start: int, end: int,
    ) -> None:  # fmt: skip
        history, window = self.history(), self.table(Form.SWA)
        if group is history.lead and end > request.prompt:
            others = self.engine.allocator.held[request.id][window.name]
            last = (end - 1) // group.block_tokens
            if others and last in blocks and self.due():
                blocks = {**blocks, last: next(reversed(others.values()))}
        inner(step, request, group, blocks, start, end)


class WrongRoute(Fault):
    """The recovery route is chosen by the codec of the pool: a window is to be decompressed."""

    code = "HKV602"
    needs = (Form.SWA,)

    def put(self, engine: Engine) -> None:
        wrap(engine.scheduler, "resume", self._resume)

    def _resume(self, inner: Callable[[Live], None], live: Live) -> None:
        name = self.table(Form.SWA).name
        if live.route.get(name) == "reuse" and self.due():
            live.route[name] = "decompress"
        inner(live)


class ReadUnreadable(NotMigrated):
    """A step reads blocks whose load has not ended, and nothing ever decided to resume."""

    code = "HKV603"
    resumes = False


class DirtyReuse(Fault):
    """A block that held another dtype is not cleared, and a kernel reads past what was written."""

    code = "HKV604"
    needs = (Form.TAIL,)

    def put(self, engine: Engine) -> None:
        self.dirty = -1
        wrap(engine.device, "prepare", self._prepare)
        wrap(engine.device, "use", self._use)

    def _prepare(self, inner: Callable[..., None], step: int, copies: Any) -> None:
        allocator, name = self.engine.allocator, self.history().name
        dtype = self.history().lead.dtype
        for block, before in allocator.reformed.items():
            mine = allocator.gpu.table[block] == name and allocator.gpu.refs[block] == 1
            other = allocator.table_of[before].lead.dtype != dtype
            if mine and other and self.dirty == -1 and self._dirty(block) and self.due():
                del allocator.reformed[block]
                self.dirty = block
                break
        inner(step, copies)

    def _dirty(self, block: int) -> bool:
        """Whether the step about to run leaves old bytes behind what it writes."""
        allocator, lead = self.engine.allocator, self.history().lead
        start = allocator.gpu.start[block]
        for live in self.engine.scheduler.running:
            if block in allocator.held[live.request.id][lead.name].values():
                row = (live.ahead - start) // lead.ratio
                return row < lead.rows and not self.engine.memory.clear(lead, block, row)
        return False

    def _use(
        self, inner: Callable[..., None], step: int, request: Request, group: Group,
        blocks: dict[int, int], start: int, end: int,
    ) -> None:  # fmt: skip
        inner(step, request, group, blocks, start, end)
        if group is self.history().lead and self.dirty in blocks.values():
            block, self.dirty = self.dirty, -2
            # The kernel multiplies the masked rest of the block instead of skipping it.
            self.engine.emit("use", step=step, req=request.id, group=group.name, blocks=[block])
            filled = (end - self.engine.allocator.gpu.start[block]) // group.ratio
            self.engine.memory.read_clear(group, request, block, filled, step)


class TransferUnresolved(Fault):
    """A store is cancelled, and nobody is told."""

    code = "HKV605"

    def put(self, engine: Engine) -> None:
        wrap(engine.tiers, "end", self._end)

    def _end(self, inner: Callable[[Transfer], None], transfer: Transfer) -> None:
        if not transfer.load and transfer.source == "gpu" and self.due():
            return
        inner(transfer)


FAULTS: tuple[type[Fault], ...] = (
    CrossForm, WrongRoute, ReadUnreadable, DirtyReuse, TransferUnresolved,
)  # fmt: skip
