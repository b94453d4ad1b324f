"""A serving engine without a model: requests in, steps on a device lane, `hkv/1` events out."""

from __future__ import annotations

import heapq
import random
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hkvtool.engine.allocator import HybridAllocator
from hkvtool.engine.config import Config
from hkvtool.engine.declare import declare
from hkvtool.engine.device import Device
from hkvtool.engine.geometry import Work
from hkvtool.engine.graphs import StepTables
from hkvtool.engine.live import Live
from hkvtool.engine.memory import Memory
from hkvtool.engine.pool import BlockPool
from hkvtool.engine.scheduler import Scheduler
from hkvtool.engine.tiers import Tiers
from hkvtool.engine.wire import Wire
from hkvtool.engine.workload import Request
from hkvtool.model.errors import HkvError
from hkvtool.model.forms import Form

Sink = Callable[[dict[str, Any]], None]
"""Takes one `hkv/1` event after the other."""

_ABORT_AFTER = 4e9
"""Mean nanoseconds until a client that gives up does."""


@dataclass
class Step:
    """A dispatched step: who computes what, and when the device is done with it."""

    number: int
    works: list[tuple[Live, int, Work]]
    end: int


class Engine:
    """Runs a workload through the hybrid allocator and tells everything to a sink."""

    def __init__(self, config: Config, sink: Sink) -> None:
        self.config = config
        self.sink = sink
        self.now = 0
        self.events = self.steps = self.requests = 0
        self.wire = Wire(self.emit) if config.wire else None
        self.extra_evidence: list[str] = []
        self._stack = ExitStack()
        self._random = random.Random(config.seed)
        lower = [
            BlockPool(name, name, count, places=config.preset.places)
            for name, count in (("cpu", config.cpu_blocks), ("disk", config.disk_blocks)) if count
        ]  # fmt: skip
        self.allocator = HybridAllocator(config.preset, config.blocks, self.emit, lower)
        self.memory = Memory(config.preset, config.device, all_layers=config.all_layers)
        self.tiers = Tiers(self.allocator, self.memory, config, lambda: self.now)
        self.device = Device(self.allocator, self.memory)
        self.scheduler = Scheduler(config, self.allocator, self.tiers)
        self.tables = StepTables(self.emit, self.memory, config.running)
        self.in_flight: deque[Step] = deque()
        self._device_free = 0
        self._aborts: list[tuple[int, int, Live]] = []

    def emit(self, ev: str, /, **keys: Any) -> None:
        """Hand one event to the sink, with the time."""
        self.events += 1
        self.sink({"ev": ev, **keys, "ts": self.now})
        if self.wire is not None:
            self.wire.follow(ev, keys)

    def __enter__(self) -> Engine:
        # The kernels are many and small: waking threads for each costs more than it gives.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self._stack.callback(torch.set_num_threads, threads)
        # A file that is mapped needs no name any more: an engine that is killed leaves none behind.
        with tempfile.TemporaryDirectory(prefix="hkvtool-") as folder:
            for pool in self.allocator.pools:
                file = Path(folder) / f"{pool.name}.pages" if pool.medium == "disk" else None
                self.memory.add(pool.name, pool.blocks, file)
        return self

    def __exit__(self, *exc: object) -> None:
        self.memory.pages.clear()
        self._stack.close()

    def declare(self, note: str = "") -> None:
        """Emit the head of the trace."""
        declare(self.emit, self.config, self.allocator.pools, note, self.extra_evidence)

    def run(self, requests: Iterable[Request], note: str = "") -> None:
        """Run requests, given in order of arrival, until all have ended and nothing moves."""
        for _ in self.turns(requests, note):
            pass

    def turns(self, requests: Iterable[Request], note: str = "") -> Iterator[int]:
        """The same a turn at a time, with what the clock says behind each: whoever runs several
        engines of one place may let them take turns, and set their clocks forward between."""
        self.declare(note)
        arrivals = iter(requests)
        coming = next(arrivals, None)
        while True:
            coming = self._arrive(coming, arrivals)
            while self._aborts and self._aborts[0][0] <= self.now:
                live = heapq.heappop(self._aborts)[2]
                self.scheduler.abort(live)
                self.memory.forget(live.request.id)
            self.tiers.poll()
            self.tiers.spill()
            works = self.scheduler.plan()
            if works:
                self.dispatch(works)
            if len(self.in_flight) > (1 if self.config.asynchronous and works else 0):
                self.retire(self.in_flight.popleft())
            elif not works and not self._wait(coming):
                break
            yield self.now
        if self.scheduler.waiting:
            raise HkvError(
                f"request {self.scheduler.waiting[0].request.id} can never be admitted: "
                f"{self.allocator.gpu.available:,} of {self.config.blocks:,} blocks are free, and "
                "nothing is left that could give any back",
                hint="give the pool more with --blocks",
            )

    def submit(self, request: Request, *, front: bool = False) -> Live:
        """A request arrives now, at the end of the queue or before everybody else."""
        self.requests += 1
        return self.scheduler.submit(request, front=front)

    def compute(self, live: Live, budget: int) -> None:
        """One step for one request alone, from its plan to its end."""
        work = self.scheduler.launch(live, budget)
        if work is None:
            raise HkvError(
                f"request {live.request.id} finds no room in {self.config.blocks:,} blocks",
                hint="give the pool more, or --blocks unlimited",
            )
        self.dispatch([(live, work)])
        self.retire(self.in_flight.popleft())

    def _arrive(self, coming: Request | None, arrivals: Iterator[Request]) -> Request | None:
        while coming is not None and coming.arrival <= self.now:
            live = self.submit(coming)
            if self._random.random() < self.config.abort_rate:
                at = coming.arrival + int(self._random.expovariate(1 / _ABORT_AFTER))
                heapq.heappush(self._aborts, (at, self.requests, live))
            coming = next(arrivals, None)
        return coming

    def _wait(self, coming: Request | None) -> bool:
        """Let time pass until something can happen; False where nothing will."""
        moments = [] if coming is None else [coming.arrival]
        if self.tiers.next_end is not None:
            moments.append(self.tiers.next_end)
        if self._aborts and self.scheduler.waiting:
            moments.append(self._aborts[0][0])
        if not moments:
            return False
        self.now = max(self.now, min(moments))
        return True

    def dispatch(self, works: list[tuple[Live, Work]]) -> None:
        """Hand a step to the device, which runs it behind whatever it still has to do."""
        number = self.steps
        self.steps += 1
        tokens = sum(work.end + work.draft - work.start for _, work in works)
        table = self.config.preset.tables[-1].name
        self.tables.fill(number, [self._first(live, table) for live, _ in works])
        self.emit("dispatch", step=number, reqs=[live.request.id for live, _ in works])
        self.tables.read(number, len(works))
        copies, self.scheduler.copies = self.scheduler.copies, []
        self.device.prepare(number, copies)
        if all(work.decode for _, work in works):
            self.tables.launch(number, len(works), moving=self.tiers.next_end is not None)
        for live, work in works:
            self.device.run(number, live.request, work)
        start = max(self.now, self._device_free)
        self._device_free = start + self.config.step_ns + tokens * self.config.token_ns
        entries = [(live, live.epoch, work) for live, work in works]
        self.in_flight.append(Step(number, entries, self._device_free))

    def _first(self, live: Live, table: str) -> int:
        return next(iter(self.allocator.held[live.request.id][table].values()), 0)

    def retire(self, step: Step) -> None:
        """Learn that a step is done, and what its reads found."""
        self.now = max(self.now, step.end)
        self.memory.settle()
        self.emit("retire", step=step.number, reqs=[live.request.id for live, _, _ in step.works])
        for live, epoch, work in step.works:
            if epoch == live.epoch:
                self.complete(live, work)

    def complete(self, live: Live, work: Work) -> None:
        """What the host does when it knows a request's part of a step to be done."""
        allocator, request, preset = self.allocator, live.request, self.config.preset
        accepted = self._random.randint(0, work.draft) if work.draft else 0
        live.in_flight -= 1
        live.done, live.firm = work.end + accepted, work.end
        if work.draft:
            live.ahead = live.done
            if accepted < work.draft:
                self.emit("rollback", req=request.id, to=live.done)
        live.known = max(live.known, live.done)
        allocator.copied(request.id)
        for table in preset.tables:
            start, end = table.lead.writes(work)
            if work.decode and table.lead.form is not Form.RECURRENT:
                # Drafts of the last step that were accepted count from now on.
                start = min(start, work.firm)
            if min(end, work.end) > start:
                allocator.written(request.id, table.name, start, min(end, work.end))
        published = allocator.publish(request, live.firm)
        if preset.partial and live.firm == request.prompt:
            allocator.publish_partial(request)
        if not work.decode:
            self.tiers.store(request, published, live.firm)
        if live.done >= live.target:
            self.scheduler.finish(live)
            self.memory.forget(request.id)
        else:
            allocator.slide(request.id, live.firm)
