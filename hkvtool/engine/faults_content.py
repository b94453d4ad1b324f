"""Faults of the first and third layer: content that is not what a hash or a resume promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hkvtool.engine.engine import Engine
from hkvtool.engine.faults import ECHO, EchoFault, Fault, wrap
from hkvtool.engine.geometry import Group, Table, Work
from hkvtool.engine.live import Live
from hkvtool.engine.lookup import Hit, lookup
from hkvtool.engine.memory import GARBLE
from hkvtool.engine.pool import NO_KEY, Evicted, Reformed
from hkvtool.engine.tiers import Transfer
from hkvtool.engine.workload import Request
from hkvtool.model.forms import Form


class IncompleteBlock(Fault):
    """A chunk's last entry is never written, and the block counts as full."""

    code = "HKV101"

    def put(self, engine: Engine) -> None:
        wrap(engine.device, "write", self._write)

    def _write(
        self, inner: Callable[..., None], step: int, request: Request, table: Table, group: Group,
        blocks: dict[int, int], work: Work,
    ) -> None:  # fmt: skip
        fits = table.history and group is table.lead and not work.decode
        if fits and work.end % group.block_tokens == 0 and work.end < request.prompt and self.due():
            work = replace(work, end=work.end - group.ratio)
        inner(step, request, table, group, blocks, work)


class FracturedPrefix(EchoFault):
    """One block in the middle of the prefix is that of another sequence."""

    code = "HKV102"

    def spoil(self, live: Live, hit: Hit) -> bool:
        name, pool = self.history().name, self.engine.allocator.gpu
        found = hit.sources[name]
        mine = {block for _, _, block in found}
        index = len(found) // 2
        _, _, right = found[index]
        for block in pool.hashes[name].values():
            if pool.start[block] == pool.start[right] and block not in mine:
                found[index] = (found[index][0], 0, block)
                return True
        return False


class PublishedBeforeWritten(Fault):
    """Hashes are published when blocks are taken; the request is aborted before it writes."""

    code = "HKV103"

    def put(self, engine: Engine) -> None:
        wrap(engine.scheduler, "plan", self._plan)

    def _plan(self, inner: Callable[[], Any]) -> Any:
        scheduler, allocator = self.engine.scheduler, self.engine.allocator
        grain = self.preset.grain
        if self.placed is None and scheduler.waiting:
            live = scheduler.waiting[0]
            request, hit = live.request, scheduler.match(live)
            end = hit.at + grain
            fits = allocator.gpu.available > 2 * self.preset.blocks_for(end)
            if fits and end < request.prompt and not hit.loads() and self.due():
                self._publish(live, hit, end)
        return inner()

    def _publish(self, live: Live, hit: Hit, end: int) -> None:
        scheduler, allocator, request = self.engine.scheduler, self.engine.allocator, live.request
        scheduler.waiting.popleft()
        scheduler.announce(live, hit)
        allocator.hold(request, hit)
        self.engine.emit("admit", req=request.id)
        ranges = {t.name: t.lead.writes(Work(hit.at, end)) for t in self.preset.tables}
        allocator.extend(request.id, ranges)
        for name, (start, stop) in ranges.items():
            allocator.written(request.id, name, start, stop)
        allocator.publish(request, end)
        self.engine.emit("abort", req=request.id, reason="client disconnected")
        allocator.release(request.id)
        self.engine.submit(replace(request, id=request.id + ECHO), front=True)


class _Unsalted(Request):
    """A request whose tokens depend on a salt that its keys leave out."""

    __slots__ = ()

    def keys(self, indices: Any, size: int) -> list[int]:
        return replace(self, salt=0).plain_keys(indices, size)

    def key(self, end: int) -> int:
        return replace(self, salt=0).plain_keys([end - 1], 1)[0]

    def plain_keys(self, indices: Any, size: int) -> list[int]:
        return Request.keys(self, indices, size)


class KeyDomain(EchoFault):
    """Another tenant's request finds blocks by keys that leave the tenant's salt out."""

    code = "HKV104"

    def put(self, engine: Engine) -> None:
        super().put(engine)
        engine.extra_evidence.append("key")
        wrap(engine, "sink", self._sink)

    def _sink(self, inner: Callable[[dict[str, Any]], None], event: dict[str, Any]) -> None:
        if event["ev"] in ("publish", "lookup"):
            salt = "b" if event.get("req") == self.echo and self.echo else "a"
            event["key"] = [f"salt={salt}"]
        inner(event)

    def copy(self, request: Request) -> Request:
        return _Unsalted(
            request.id + ECHO, request.arrival, request.prompt, 40, request.nodes,
            request.unit, request.own, salt=1,
        )  # fmt: skip


class StaleGeneration(EchoFault):
    """A block is taken for another request, and the hash that led to it stays."""

    code = "HKV105"

    def put(self, engine: Engine) -> None:
        super().put(engine)
        self.request: Request | None = None
        self.stale: tuple[int, int] | None = None
        wrap(engine.allocator.gpu, "take", self._take)

    def again(self, request: Request) -> None:
        self.request = request

    def _take(
        self, inner: Callable[..., tuple[list[int], Reformed, Evicted]], table: str, starts: Any
    ) -> tuple[list[int], Reformed, Evicted]:
        pool, name = self.engine.allocator.gpu, self.history().name
        if self.request is None or table != name or len(starts) == 0:
            return inner(table, starts)
        request, self.request = self.request, None
        key = request.keys([1], self.history().lead.block_tokens)[0]
        block = pool.find(name, key)
        if block is None or pool.refs[block] or pool.key[block] != key:
            return inner(table, starts)
        pool.free.move_to_end(block, last=False)
        pool.key[block] = NO_KEY
        taken = inner(table, starts)
        self.stale = (key, block)
        EchoFault.again(self, request)
        return taken

    def find(self, inner: Callable[..., Hit], live: Live) -> Hit:
        assert self.stale is not None
        allocator = self.engine.allocator
        known = live.known
        hit = lookup(self.preset, live.request, known, allocator.pools[:1], known - 1)
        # From now on nobody else is led there.
        del allocator.gpu.hashes[self.history().name][self.stale[0]]
        return hit

    def spoil(self, live: Live, hit: Hit) -> bool:
        assert self.stale is not None
        return any(block == self.stale[1] for _, _, block in hit.sources[self.history().name])


class CodecMissing(EchoFault):
    """The tier was filled by an older codec of the same size, and a load brings its pages."""

    code = "HKV301"
    from_tier = True

    def put(self, engine: Engine) -> None:
        super().put(engine)
        self.garbled: list[int] = []
        wrap(engine, "sink", self._sink)
        wrap(engine.memory, "move", self._move)

    def _sink(self, inner: Callable[[dict[str, Any]], None], event: dict[str, Any]) -> None:
        lead = self.history().lead
        mine = event["ev"] == "load_begin" and event.get("req") == self.echo
        if mine and event["group"] == lead.name:
            event["codec"] = lead.codec.rpartition("/")[0] + "/0"
            self.garbled = event["blocks"]
        inner(event)

    def _move(
        self, inner: Callable[..., None], group: Group, source: str, target: str, here: Any,
        there: Any,
    ) -> None:  # fmt: skip
        inner(group, source, target, here, there)
        if group is self.history().lead and target == "gpu" and there is self.garbled:
            self.engine.memory.garble("gpu", group, there, GARBLE)


class _NotBrought(EchoFault):
    """A hit of the history counts as a hit, whatever this form has."""

    form = Form.SWA

    def spoil(self, live: Live, hit: Hit) -> bool:
        table = self.table(self.form)
        brought = bool(hit.sources[table.name])
        hit.sources[table.name] = []
        return brought


class TailMissing(_NotBrought):
    """The compressor's state is not brought along with the history."""

    code, form, needs = "HKV302", Form.TAIL, (Form.TAIL,)


class WindowMissing(_NotBrought):
    """The sliding window is not brought along with the history."""

    code, form, needs = "HKV303", Form.SWA, (Form.SWA,)


class RecurrentMissing(_NotBrought):
    """The recurrent state is not brought along with the history."""

    code, form, needs = "HKV306", Form.RECURRENT, (Form.RECURRENT,)


class IndexOutOfSync(Fault):
    """A step writes the history and leaves its indexer rows out."""

    code = "HKV304"
    needs = (Form.INDEXER,)

    def put(self, engine: Engine) -> None:
        wrap(engine.device, "write", self._write)

    def _write(
        self, inner: Callable[..., None], step: int, request: Request, table: Table, group: Group,
        blocks: dict[int, int], work: Work,
    ) -> None:  # fmt: skip
        chunk = work.end - work.start >= 2 * group.block_tokens and not work.decode
        if group.form is Form.INDEXER and chunk and self.due():
            return
        inner(step, request, table, group, blocks, work)


class NotMigrated(EchoFault):
    """The tier reports blocks as there when their copy is queued; the request goes on at once."""

    code = "HKV305"
    from_tier = True
    resumes, states = True, False
    """Whether there is a decision to resume, and whether it states the route `load`."""

    def put(self, engine: Engine) -> None:
        super().put(engine)
        self.held_back: Transfer | None = None
        wrap(engine.tiers, "load", self._load)
        wrap(engine, "dispatch", self._dispatch)

    def _load(
        self, inner: Callable[..., None], request: Request, hit: Hit, ready: Callable[[], None]
    ) -> None:
        if request.id != self.echo or self.placed is None or self.held_back is not None:
            return inner(request, hit, ready)
        scheduler = self.engine.scheduler
        inner(request, hit, lambda: None)
        self.held_back = self.withhold()
        live = next(live for live in self.lives if live.request is request)
        held = self.engine.allocator.held[request.id]
        for move in self.held_back.moves:
            table = next(t for t in self.preset.tables if move.group in t.groups)
            if move.group is table.lead:
                tier = self.engine.allocator.pools.index(move.tier)
                indices = [i for i, t, _ in hit.sources[table.name] if t == tier]
                held[table.name].update(zip(indices, move.near, strict=True))
        scheduler.recovering -= 1
        if not self.states:
            live.route = {}
        if not self.resumes:
            live.hit = 0
        scheduler.enter(live)

    def spoil(self, live: Live, hit: Hit) -> bool:
        self.lives = [live]
        # Whoever is preempted before it reads shows nothing.
        room = 2 * self.preset.blocks_for(live.request.total)
        return self.engine.allocator.gpu.available > room

    def _dispatch(self, inner: Callable[..., None], works: list[tuple[Live, Work]]) -> None:
        inner(works)
        if self.held_back is not None and any(live.request.id == self.echo for live, _ in works):
            transfer, self.held_back = self.held_back, None
            self.engine.tiers.end(transfer)


class ComponentLeftBehind(EchoFault):
    """The connector moves the history and knows nothing of the indexer rows that serve it."""

    code = "HKV307"
    needs = (Form.INDEXER,)
    from_tier = True

    def put(self, engine: Engine) -> None:
        super().put(engine)
        wrap(engine.tiers, "begin", self._begin)

    def _begin(self, inner: Callable[[Transfer], None], transfer: Transfer) -> None:
        transfer.moves = [move for move in transfer.moves if move.group.form is not Form.INDEXER]
        inner(transfer)


FAULTS: tuple[type[Fault], ...] = (
    IncompleteBlock, FracturedPrefix, PublishedBeforeWritten, KeyDomain, StaleGeneration,
    CodecMissing, TailMissing, WindowMissing, RecurrentMissing, IndexOutOfSync, NotMigrated,
    ComponentLeftBehind,
)  # fmt: skip
