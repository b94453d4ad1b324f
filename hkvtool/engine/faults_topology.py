"""Faults of static topology: what a captured graph or a moved engine takes for still true."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hkvtool.engine.engine import Engine
from hkvtool.engine.faults import Fault, wrap
from hkvtool.engine.faults_content import NotMigrated
from hkvtool.engine.geometry import Work
from hkvtool.engine.live import Live
from hkvtool.engine.lookup import Hit
from hkvtool.engine.memory import GARBLE
from hkvtool.engine.tiers import Transfer
from hkvtool.engine.workload import Request


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


FAULTS: tuple[type[Fault], ...] = (StaleCapture, NullRow, MigrationInCapture, TopologyChanged)
