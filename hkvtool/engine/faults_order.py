"""Faults of time: what was checked changes before it is used, or two do at once what may not be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hkvtool.engine.engine import Engine
from hkvtool.engine.faults import EchoFault, Fault, wrap
from hkvtool.engine.geometry import Group, Work
from hkvtool.engine.live import Live, Stage
from hkvtool.engine.lookup import Hit
from hkvtool.engine.memory import GARBLE
from hkvtool.engine.tiers import Transfer
from hkvtool.engine.workload import Request
from hkvtool.model.errors import HkvError


class CheckUseChanged(EchoFault):
    """The hit takes no reference on one block; another request is given it before the use."""

    code = "HKV701"

    def install(self, engine: Engine) -> None:
        if len(next(t for t in engine.config.preset.tables if t.history).groups) > 1:
            # Where components share the block, the one that misses its own content is at fault.
            raise HkvError(f"{self.code} needs a preset whose history is one group")
        super().install(engine)

    def put(self, engine: Engine) -> None:
        super().put(engine)
        self.loose = -1
        wrap(engine.allocator, "hold", self._hold)
        wrap(engine.allocator, "drop", self._drop)
        wrap(engine.allocator.gpu, "take", self._take)
        wrap(engine.scheduler, "launch", self._launch)

    def spoil(self, live: Live, hit: Hit) -> bool:
        found = hit.sources[self.history().name]
        _, _, block = found[len(found) // 2]
        if self.engine.allocator.gpu.refs[block] or hit.at == live.known:
            return False
        self.loose, self.generation = block, self.engine.allocator.gpu.generation[block]
        return True

    def _hold(self, inner: Callable[..., None], request: Request, hit: Hit) -> None:
        if request.id != self.echo or self.loose < 0:
            return inner(request, hit)
        name = self.history().name
        found = hit.sources[name]
        index = next(i for i, _, block in found if block == self.loose)
        hit.sources[name] = [entry for entry in found if entry[2] != self.loose]
        inner(request, hit)
        held = {**self.engine.allocator.held[request.id][name], index: self.loose}
        self.engine.allocator.held[request.id][name] = dict(sorted(held.items()))

    def _launch(self, inner: Callable[..., Work | None], live: Live, budget: int) -> Work | None:
        if live.request.id == self.echo and self.loose in self.engine.allocator.gpu.free:
            # It waits for its turn, which is when others are served.
            return None
        return inner(live, budget)

    def _take(self, inner: Callable[..., Any], table: str, starts: Any) -> Any:
        pool = self.engine.allocator.gpu
        if table == self.history().name and len(starts) and self.loose in pool.free:
            if pool.generation[self.loose] == self.generation:
                pool.free.move_to_end(self.loose, last=False)
        return inner(table, starts)

    def _drop(self, inner: Callable[..., None], req: str, name: str, blocks: list[int]) -> None:
        if req == self.echo and self.loose in blocks:
            blocks = [block for block in blocks if block != self.loose]
        if blocks:
            inner(req, name, blocks)


class OverwriteUnderReader(Fault):
    """A preemption gives blocks back without waiting for the store that still reads them."""

    code = "HKV702"

    def put(self, engine: Engine) -> None:
        self.late: Transfer | None = None
        self.victim: Live | None = None
        self.steps = 0
        wrap(engine.tiers, "store", self._store)
        wrap(engine.scheduler, "plan", self._plan)
        wrap(engine, "dispatch", self._dispatch)

    def _store(
        self, inner: Callable[..., None], request: Request, published: Any, done: int
    ) -> None:
        tiers, scheduler, pool = self.engine.tiers, self.engine.scheduler, self.engine.allocator.gpu
        live = next((x for x in scheduler.running if x.request is request), None)
        name, before = self.history().name, len(tiers.under_way)
        if live is None or name not in published or not scheduler.waiting or not self.due():
            return inner(request, published, done)
        # No reference is taken for the store, and none given back.
        touch, emit = pool.touch, tiers.emit
        pool.touch = lambda blocks: None  # type: ignore[method-assign]
        tiers.emit = lambda ev, /, **keys: None if ev == "touch" else emit(ev, **keys)
        inner(request, published, done)
        pool.touch, tiers.emit = touch, emit  # type: ignore[method-assign]
        if len(tiers.under_way) == before:
            self.placed = None
            return
        self.late, self.victim = self.withhold(), live

    def _plan(self, inner: Callable[[], Any]) -> Any:
        if self.victim is not None and self.late is not None:
            scheduler, pool = self.engine.scheduler, self.engine.allocator.gpu
            if self.victim in scheduler.running:
                scheduler.give_back(self.victim)
                scheduler.waiting.rotate(-1)
            lead = self.history().lead
            for block in (b for move in self.late.moves if move.group is lead for b in move.near):
                if block in pool.free:
                    pool.free.move_to_end(block, last=False)
            self.victim = None
        return inner()

    def _dispatch(self, inner: Callable[..., None], works: list[tuple[Live, Work]]) -> None:
        inner(works)
        if self.late is None:
            return
        self.steps += 1
        if self.steps == 2:
            transfer, self.late = self.late, None
            tiers, pool = self.engine.tiers, self.engine.allocator.gpu
            release, emit = pool.release, tiers.emit
            pool.release = lambda blocks: []  # type: ignore[method-assign]
            tiers.emit = lambda ev, /, **keys: None if "owner" in keys else emit(ev, **keys)
            tiers.end(transfer)
            pool.release, tiers.emit = release, emit  # type: ignore[method-assign]


class ReallocUnderWriter(EchoFault):
    """An abort gives the blocks of a running load back at once."""

    code = "HKV703"
    from_tier = True

    def put(self, engine: Engine) -> None:
        super().put(engine)
        self.late: Transfer | None = None
        self.steps = 0
        wrap(engine.tiers, "load", self._load)
        wrap(engine, "dispatch", self._dispatch)
        wrap(engine, "run", self._run)

    def _load(
        self, inner: Callable[..., None], request: Request, hit: Hit, ready: Callable[[], None]
    ) -> None:
        inner(request, hit, ready)
        if request.id != self.echo or self.placed is None or self.late is not None:
            return
        allocator = self.engine.allocator
        self.late = self.withhold()
        self.engine.emit("abort", req=request.id, reason="client disconnected")
        for table in self.preset.tables:
            near = [b for m in self.late.moves if m.group is table.lead for b in m.near]
            if near:
                allocator.gpu.recovering.difference_update(near)
                allocator.drop(request.id, table.name, near[::-1])
        allocator.release(request.id)
        self.late.finish = lambda: self._release(request, hit)
        self.live.stage, self.live.aborted = Stage.OVER, True
        self.engine.scheduler.recovering -= 1

    def spoil(self, live: Live, hit: Hit) -> bool:
        self.live = live
        return bool(self.engine.scheduler.waiting)

    def _release(self, request: Request, hit: Hit) -> None:
        """What the far side lent is given back; nothing was resumed from."""
        for name, found in hit.sources.items():
            for tier in sorted({t for _, t, _ in found if t}):
                pool = self.engine.allocator.pools[tier]
                far = [block for _, t, block in found if t == tier]
                self.engine.tiers.release(pool, name, far, request.id)

    def _dispatch(self, inner: Callable[..., None], works: list[tuple[Live, Work]]) -> None:
        inner(works)
        if self.late is not None:
            pool = self.engine.allocator.gpu
            near = [block for move in self.late.moves for block in move.near]
            self.steps += any(pool.refs[block] for block in near)
            if self.steps == 2:
                self._end()

    def _run(self, inner: Callable[..., None], *args: Any) -> None:
        inner(*args)
        if self.late is not None:
            self._end()

    def _end(self) -> None:
        assert self.late is not None
        transfer, self.late = self.late, None
        self.engine.tiers.end(transfer)


class Refcount(Fault):
    """A block is released twice."""

    code = "HKV704"

    def put(self, engine: Engine) -> None:
        wrap(engine.scheduler, "finish", self._finish)

    def _finish(self, inner: Callable[[Live], None], live: Live) -> None:
        held = list(self.engine.allocator.held[live.request.id][self.history().name].values())
        inner(live)
        loose = [block for block in held if self.engine.allocator.gpu.refs[block] == 0]
        if loose and self.due():
            self.engine.emit(
                "free", req=live.request.id, group=self.history().name, blocks=loose[-1:]
            )


class LeaseExpired(EchoFault):
    """The far side's promise runs out before the load has ended, and nobody looks."""

    code = "HKV705"
    from_tier = True

    def put(self, engine: Engine) -> None:
        super().put(engine)
        engine.extra_evidence.append("lease")
        self.leased: Transfer | None = None
        wrap(engine.tiers, "begin", self._begin)
        wrap(engine.tiers, "end", self._end)

    def _begin(self, inner: Callable[[Transfer], None], transfer: Transfer) -> None:
        if transfer.load and transfer.req == self.echo and self.leased is None:
            self.leased = transfer
            self._lease("grant")
        inner(transfer)

    def _end(self, inner: Callable[[Transfer], None], transfer: Transfer) -> None:
        if transfer is self.leased:
            self._lease("expire")
            for move in transfer.moves:
                self.engine.memory.garble(move.tier.name, move.group, move.far[:1], GARBLE)
        inner(transfer)
        if transfer is self.leased:
            for move in transfer.moves:
                self.engine.memory.garble(move.tier.name, move.group, move.far[:1], GARBLE)

    def _lease(self, op: str) -> None:
        assert self.leased is not None
        for move in self.leased.moves:
            self.engine.emit(
                "lease", op=op, handle=move.handle, pool=move.tier.name, blocks=move.far
            )


class StaleMap(Fault):
    """A block has moved to another place; one kernel's offsets still hold the old one."""

    code = "HKV707"

    def put(self, engine: Engine) -> None:
        engine.extra_evidence.append("map")
        self.old: list[int] | None = None
        wrap(engine.device, "use", self._use)
        wrap(engine, "sink", self._sink)

    def _use(
        self, inner: Callable[..., None], step: int, request: Request, group: Group,
        blocks: dict[int, int], start: int, end: int,
    ) -> None:  # fmt: skip
        pool, memory, emit = self.engine.allocator.gpu, self.engine.memory, self.engine.emit
        spare = next((b for b in pool.free if not pool.cached(b)), None)
        decode = group is self.history().lead and end > request.prompt
        if spare is None or not decode or not self.due():
            return inner(step, request, group, blocks, start, end)
        span = group.span(start, end)
        block = blocks[span.start]
        emit("remap", pool="gpu", map={str(block): spare})
        memory.copy(block, spare)
        memory.zero([block])
        self.old = [blocks[index] for index in span]
        inner(step, request, group, blocks, start, end)
        self.old = None
        memory.copy(spare, block)
        emit("remap", pool="gpu", map={str(block): block})

    def _sink(self, inner: Callable[[dict[str, Any]], None], event: dict[str, Any]) -> None:
        if event["ev"] == "use" and self.old is not None:
            event["index"] = self.old
        inner(event)


class BufferMutated(Fault):
    """The host fills the one table buffer for the next step while the last may not have read it."""

    code = "HKV706"

    def put(self, engine: Engine) -> None:
        wrap(engine, "sink", self._sink)
        self.step = -1

    def _sink(self, inner: Callable[[dict[str, Any]], None], event: dict[str, Any]) -> None:
        if event["ev"] == "buffer":
            if event["op"] == "write" and self.engine.in_flight and self.due():
                self.step = event["version"]
            if event["version"] == self.step:
                event["name"] = f"tables#{(self.step - 1) % 2}"
        inner(event)


class SharedWrite(EchoFault):
    """A prompt that is cached whole is recomputed by one token into the shared block."""

    code = "HKV708"

    def put(self, engine: Engine) -> None:
        super().put(engine)
        self.shared = False
        wrap(engine.allocator, "copy_on_write", self._copy)
        wrap(engine.scheduler, "resume", self._resume)

    def spoil(self, live: Live, hit: Hit) -> bool:
        return hit.at == live.known

    def _copy(
        self, inner: Callable[..., tuple[int, int]], req: str, name: str, index: int
    ) -> tuple[int, int]:
        if req != self.echo or self.placed is None:
            return inner(req, name, index)
        self.shared = True
        block = self.engine.allocator.held[req][name][index]
        return block, block

    def _resume(self, inner: Callable[[Live], None], live: Live) -> None:
        inner(live)
        if self.shared:
            self.shared = False
            self.engine.scheduler.copies.pop()


class UnorderedWriters(EchoFault):
    """The list of blocks to clear holds blocks that a load is filling."""

    code = "HKV709"
    from_tier = True

    def put(self, engine: Engine) -> None:
        super().put(engine)
        self.early: Transfer | None = None
        self.landed = False
        wrap(engine.tiers, "load", self._load)
        wrap(engine.memory, "move", self._move)
        wrap(engine.device, "prepare", self._prepare)

    def _load(
        self, inner: Callable[..., None], request: Request, hit: Hit, ready: Callable[[], None]
    ) -> None:
        inner(request, hit, ready)
        if request.id == self.echo and self.placed is not None and self.early is None:
            self.early = self.withhold()
            # The link follows no stream and lands at once; the clearing comes behind the step.
            for move in self.early.moves:
                self.engine.memory.move(move.group, move.tier.name, "gpu", move.far, move.near)
            self.landed = True
            near = [block for move in self.early.moves for block in move.near]
            self.engine.allocator.reformed.update(dict.fromkeys(near, self.history().name))

    def _prepare(self, inner: Callable[..., None], step: int, copies: Any) -> None:
        late, self.early = (self.early, None) if self.landed else (None, self.early)
        if late is not None:
            self.engine.tiers.end(late)
            self.landed = False
        inner(step, copies)

    def _move(self, inner: Callable[..., None], *args: Any) -> None:
        if not self.landed:
            inner(*args)


FAULTS: tuple[type[Fault], ...] = (
    CheckUseChanged, OverwriteUnderReader, ReallocUnderWriter, Refcount, LeaseExpired, StaleMap,
    BufferMutated, SharedWrite, UnorderedWriters,
)  # fmt: skip
