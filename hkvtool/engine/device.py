"""What a step does on the device for one request: the accesses, as events and as bytes."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from hkvtool.engine.allocator import HybridAllocator
from hkvtool.engine.geometry import Group, Table, Work
from hkvtool.engine.memory import Memory
from hkvtool.engine.workload import Request
from hkvtool.model.forms import Form

_SELECT_EVERY, _SELECTED = 16, 8
"""Sparse routing picks thousands of entries a token; a recorder samples a few, now and then."""


class Device:
    """Runs the kernels of steps, one after the other, on the lane `device`.

    Each access is emitted where it happens and done on real bytes at once, so the order of the
    trace is the order in which the bytes changed.
    """

    def __init__(self, allocator: HybridAllocator, memory: Memory) -> None:
        self.allocator = allocator
        self.memory = memory
        self.emit = allocator.emit
        self.indexed = {g.serves for g in allocator.preset.groups if g.form is Form.INDEXER}
        """Groups whose rows an indexer routes to, and which therefore state their version."""
        self._selects = 0

    def prepare(self, step: int, copies: list[tuple[str, str, int, int]]) -> None:
        """Clear blocks that come in another form than they had, and run copies on write."""
        if self.allocator.reformed:
            blocks = list(self.allocator.reformed)
            self.allocator.reformed = {}
            self.memory.zero(blocks)
            self.emit("zero", step=step, pool="gpu", blocks=blocks)
        for req, name, source, target in copies:
            for group in self.allocator.table_of[name].groups:
                self.emit("copy", step=step, req=req, group=group.name, src=[source], dst=[target])
            self.memory.copy(source, target)

    def run(self, step: int, request: Request, work: Work) -> None:
        """All layers of the model over the tokens of one request's work."""
        for table in self.allocator.preset.tables:
            blocks = self.allocator.held[request.id][table.name]
            for group in table.groups:
                if group.form in (Form.TAIL, Form.RECURRENT):
                    self.use(step, request, group, blocks, *group.reads(work))
            for group in table.groups:
                self.write(step, request, table, group, blocks, work)
            # The indexer, last of its table, chooses what the history is read for.
            for group in reversed(table.groups):
                if group.form not in (Form.TAIL, Form.RECURRENT):
                    self.use(step, request, group, blocks, *group.reads(work))
                if group.form is Form.INDEXER and work.decode:
                    self._select(step, request, group, work)

    def write(
        self, step: int, request: Request, table: Table, group: Group, blocks: dict[int, int],
        work: Work,
    ) -> None:  # fmt: skip
        start, end = group.writes(work)
        span = group.span(start, end)
        if not span:
            return
        pool, ids = self.allocator.gpu, [blocks[index] for index in span]
        versions = pool.versions[table.groups.index(group)]
        marks: list[tuple[int, int]] = []
        for block in ids:
            versions[block] += 1
            marks.append((versions[block], pool.generation[block]))
        self.memory.write(group, request, ids, span.start, start, end, marks)
        if group.form is not Form.INDEXER and group.ratio == 1 and group.name not in self.indexed:
            self.emit(
                "write", step=step, req=request.id, group=group.name, blocks=ids,
                tokens=[start, end],
            )  # fmt: skip
            return
        size, at = group.block_tokens, 0
        for version, same in groupby(marks, key=lambda mark: mark[0]):
            count = len(list(same))
            part, first = ids[at : at + count], span.start + at
            tokens = [max(start, first * size), min(end, (first + count) * size)]
            at += count
            self._versioned(step, request, group, part, tokens, version, work)

    def _versioned(
        self, step: int, request: Request, group: Group, blocks: list[int], tokens: list[int],
        version: int, work: Work,
    ) -> None:  # fmt: skip
        keys: dict[str, Any] = {"version": version}
        ev = "write" if group.ratio == 1 else "seal"
        if group.form is Form.INDEXER:
            ev = "index"
            keys["kv_version"] = self._served(group, blocks[0])
        elif ev == "seal" and work.decode:
            # In decode every token went through the compressor's state; a chunk of a prompt is
            # compressed straight from the activations.
            keys["from"] = next(
                g.name for g in self.allocator.preset.groups
                if g.serves == group.name and g.form is Form.TAIL
            )  # fmt: skip
        self.emit(
            ev, step=step, req=request.id, group=group.name, blocks=blocks, tokens=tokens, **keys
        )

    def _served(self, index: Group, block: int) -> int:
        """The version of the history that indexer rows are written for."""
        pool = self.allocator.gpu
        groups = self.allocator.table_of[str(pool.table[block])].groups
        place = next(i for i, group in enumerate(groups) if group.name == index.serves)
        return pool.versions[place][block]

    def use(
        self, step: int, request: Request, group: Group, blocks: dict[int, int], start: int,
        end: int,
    ) -> None:  # fmt: skip
        span = group.span(start, end)
        if not span:
            return
        ids = [blocks[index] for index in span]
        tokens = {} if group.form is Form.RECURRENT else {"tokens": [start, end]}
        self.emit("use", step=step, req=request.id, group=group.name, blocks=ids, **tokens)
        self.memory.read(group, request, ids, span.start, start, end, step)
        if group.form is Form.INDEXER:
            served = self.allocator.preset.by_name[str(group.serves)]
            self.memory.read_versions(group, served, request, ids, end // group.ratio, step)

    def _select(self, step: int, request: Request, group: Group, work: Work) -> None:
        self._selects += 1
        entries = group.reads(work)[1] // group.ratio
        if self._selects % _SELECT_EVERY or entries == 0:
            return
        chosen = sorted({entries * (2 * i + 1) // (2 * _SELECTED) for i in range(_SELECTED)})
        self.emit("select", step=step, req=request.id, group=group.name, entries=chosen)
