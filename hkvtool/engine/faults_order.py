"""Faults of time: what was checked changes before it is used, or two do at once what may not be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hkvtool.engine.engine import Engine
from hkvtool.engine.faults import EchoFault, Fault, wrap
from hkvtool.engine.faults_content import NotMigrated
from hkvtool.engine.geometry import Work
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


class StaleCapture(Fault):
    """A buffer moves, and the graphs captured over it are not captured again."""

    code = "HKV801"

    def put(self, engine: Engine) -> None:
        wrap(engine, "sink", self._sink)

    def _sink(self, inner: Callable[[dict[str, Any]], None], event: dict[str, Any]) -> None:
        if event["ev"] == "launch" and "bypass" not in event and self.due():
            moved = {name: hex(int(at, 16) + 4096) for name, at in event["pointers"].items()}
            event["pointers"] = moved
        inner(event)


class NullRow(Fault):
    """The padding rows of a graph's batch still point at a block of an earlier batch."""

    code = "HKV802"

    def put(self, engine: Engine) -> None:
        wrap(engine.device, "run", self._run)

    def _run(self, inner: Callable[..., None], step: int, request: Request, work: Work) -> None:
        inner(step, request, work)
        lead, allocator = self.history().lead, self.engine.allocator
        blocks = allocator.held[request.id][self.history().name]
        if work.decode and 0 in blocks and allocator.gpu.refs[blocks[0]] == 1 and self.due():
            self.engine.emit(
                "write", step=step, group=lead.name, blocks=[blocks[0]], tokens=[0, lead.ratio],
                pad=True,
            )  # fmt: skip
            self.engine.memory.garble("gpu", lead, [blocks[0]], GARBLE)


class MigrationInCapture(NotMigrated):
    """A captured graph runs over blocks that a load is filling."""

    code = "HKV803"
    states = True

    def put(self, engine: Engine) -> None:
        super().put(engine)
        wrap(engine.device, "prepare", self._prepare)

    def spoil(self, live: Live, hit: Hit) -> bool:
        return super().spoil(live, hit) and bool(self.engine.tables.captured)

    def _prepare(self, inner: Callable[..., None], step: int, copies: Any) -> None:
        inner(step, copies)
        running = self.engine.scheduler.running
        if self.held_back is not None and any(live.request.id == self.echo for live in running):
            graph, pointers = next(iter(self.engine.tables.captured.items()))
            self.engine.emit(
                "launch", actor="device", step=step, graph=graph, pointers=dict(pointers)
            )


class TopologyChanged(Fault):
    """The engine sleeps and wakes elsewhere while a store still copies from the old addresses."""

    code = "HKV804"

    def put(self, engine: Engine) -> None:
        wrap(engine.tiers, "begin", self._begin)

    def _begin(self, inner: Callable[[Transfer], None], transfer: Transfer) -> None:
        inner(transfer)
        if not transfer.load and transfer.source == "gpu" and self.due():
            live = {"kv": hex(self.engine.memory.pages["gpu"].rows.data_ptr())}
            self.engine.emit("rebase", pool="gpu", reason="sleep", pointers={"kv": "0x0"})
            self.engine.emit("rebase", pool="gpu", reason="wake", pointers=live)


FAULTS: tuple[type[Fault], ...] = (
    CheckUseChanged, OverwriteUnderReader, ReallocUnderWriter, Refcount, BufferMutated,
    SharedWrite, UnorderedWriters, StaleCapture, NullRow, MigrationInCapture, TopologyChanged,
)  # fmt: skip
