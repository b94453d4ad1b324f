"""A lower tier: published blocks are stored there and loaded back, with every edge in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING

from .jobs import Job, Loading, Part, Storing
from .options import Options
from .paging import Pool
from .requests import Request, Step
from .tables import State, Table
from .tape import Event, Tape, make

if TYPE_CHECKING:
    from .admission import Admission

BLOCK_BYTES = 4096


class Tier:
    """One lower tier, with a group of its own for each group of the device."""

    def __init__(self, tape: Tape, rng: Random, options: Options, pool: Pool) -> None:
        self.tape = tape
        self.rng = rng
        self.options = options
        self.pool = pool
        self.jobs: list[Job] = []
        self.leaving: set[tuple[str, str]] = set()
        self.handles = 0
        self.edges = 0
        self.block_cap = 12
        self.byte_cap = 24 * BLOCK_BYTES
        self.lane = "nic" if pool.medium == "remote" else "dma"

    def name_of(self, group: str) -> str:
        return f"{group}.{self.pool.name}"

    def declarations(self, tables: Sequence[Table]) -> Iterator[Event]:
        yield make("pool", **self.pool.declared)
        for table in tables:
            for group in table.groups:
                keys = {k: v for k, v in group.declared.items() if k not in ("table", "layout")}
                if "serves" in keys:
                    keys["serves"] = self.name_of(keys["serves"])
                yield make(
                    "group", group=self.name_of(group.name), form=group.form, pool=self.pool.name,
                    block_tokens=table.bt, participates=False, **keys,
                )  # fmt: skip
        if self.options.limits:
            yield make(
                "limits", recovering_blocks=self.block_cap, recovering_bytes=self.byte_cap,
                stall_steps=40,
            )  # fmt: skip

    def has(self, table: Table, name: str) -> bool:
        return all(self.pool.find(self.name_of(g), name) is not None for g in table.names)

    def reset(self, tables: Sequence[Table]) -> None:
        self.pool.reset(self.name_of(g) for t in tables for g in t.names)

    # Edges

    def _edge(self, before: str | None, after: str | None) -> None:
        """What lane `before` did comes before what `after` does next."""
        if self.options.streams:
            self.edges += 1
            self.tape.emit("signal", event=f"e{self.edges}", actor=before)
            self.tape.emit("wait", event=f"e{self.edges}", actor=after)

    def _actor(self, kind: str) -> str | None:
        return f"{self.lane}:{kind}" if self.options.streams else None

    def _handle(self, kind: str) -> str:
        self.handles += 1
        return f"{kind}-{self.handles}"

    def _bytes(self, job: Job, part: Part) -> int | None:
        if not self.options.limits:
            return None
        layers = job.layers if isinstance(job, Loading) else 0
        return BLOCK_BYTES * len(part.blocks) // max(1, layers)

    def _within_caps(self, job: Job) -> bool:
        if not self.options.limits:
            return True
        flight = [j for j in self.jobs if j.begun]
        loading = sum(j.blocks for j in flight if j.kind == "load")
        moving = sum(j.blocks for j in flight) * BLOCK_BYTES
        return (
            job.kind == "store" or loading + job.blocks <= self.block_cap
        ) and moving + job.blocks * BLOCK_BYTES <= self.byte_cap

    def fits(self, blocks: int) -> bool:
        """Whether a transfer of so many blocks can ever begin."""
        return not self.options.limits or blocks <= self.block_cap

    # Progress

    def progress(self, engine: Admission) -> None:
        """Begin what may begin, end what is due."""
        for job in list(self.jobs):
            if isinstance(job, Loading) and job.layers:
                continue  # its lines belong to the step that reads it
            if not job.begun:
                if job.after <= engine.retired and self._within_caps(job):
                    self._begin(engine, job)
            elif job.due > 0:
                job.due -= 1
                if self.options.lease and job.kind == "load" and self.rng.random() < 0.5:
                    self._lease("grant", job)
            else:
                self.jobs.remove(job)
                if isinstance(job, Storing):
                    self._end_store(job)
                elif isinstance(job, Loading):
                    self._end_load(engine, job)
        if self.options.abort and self.rng.random() < 0.3:
            loads = [j for j in self.jobs if isinstance(j, Loading) and not j.layers]
            for job in loads[:1]:
                if job.row.state == "loading":
                    job.row.state = "over"
                    self.tape.emit("abort", req=job.row.name, reason="client gone")

    def _lease(self, op: str, job: Job) -> None:
        self._edge(None, "master")
        for part in job.parts:
            self.tape.emit(
                "lease", op=op, handle=part.handle, pool=self.pool.name, blocks=part.peers,
                actor="master",
            )  # fmt: skip

    def _begin(self, engine: Admission, job: Job) -> None:
        job.begun = True
        actor = self._actor(job.kind)
        if self.options.lease and job.kind == "load":
            self._lease("grant", job)
            self._edge("master", actor)
        else:
            self._edge(None, actor)
        for part in job.parts:
            far = {"to": self.pool.name} if job.kind == "store" else {"from": self.pool.name}
            self.tape.emit(
                f"{job.kind}_begin", handle=part.handle, group=part.group, blocks=part.blocks,
                peer=part.peers, part=part.layer, bytes=self._bytes(job, part), req=job.row.name,
                actor=actor, **far,
            )  # fmt: skip
            for table in engine.tables if job.kind == "load" else ():
                if part.group in table.names:
                    # Old bytes and new ones, until it is seen to have ended well: also where its
                    # request is gone before a step of it is scheduled.
                    table.pool.kind.update(dict.fromkeys(part.blocks, ""))
        early = not (self.options.load_failures or self.options.abort)
        if isinstance(job, Loading) and not job.layers and early and self.rng.random() < 0.3:
            self._resume(engine, job)

    def _finish_parts(self, job: Job, **keys: object) -> None:
        actor = self._actor(job.kind)
        for part in job.parts:
            self.tape.emit(f"{job.kind}_end", handle=part.handle, actor=actor, **keys)
        if self.options.lease and job.kind == "load":
            self._edge(actor, "master")
            self._lease("release", job)
        self._edge(actor, None)

    # Stores

    def store(self, engine: Admission, row: Request) -> None:
        """Send out what `row` has complete and published, and the tier has not."""
        if len([j for j in self.jobs if j.kind == "store"]) >= 3 or self.rng.random() < 0.4:
            return
        for table in engine.tables:
            pairs = []
            mine = set(row.held[table.name].blocks.values())
            for i in range(row.done // table.bt):
                name = row.hash((i + 1) * table.bt, table.name)
                block = table.pool.find(table.lead, name)
                gone = (table.name, name) in self.leaving or self.has(table, name)
                if block is not None and block in mine and not gone:
                    pairs.append((name, block))
            if pairs:
                self._store(table, row, pairs[-6:])

    def _store(self, table: Table, row: Request, pairs: list[tuple[str, int]]) -> None:
        if self.pool.available < len(pairs) * len(table.groups):
            return
        names = [name for name, _ in pairs]
        blocks = [block for _, block in pairs]
        table.pool.touch(blocks, group=table.lead, owner="offload")
        parts = []
        for group in table.names:
            peers = self.pool.take(len(blocks), [self.name_of(group)], req=row.name)
            parts.append(Part(self._handle("st"), group, blocks, peers))
        self.leaving.update((table.name, name) for name in names)
        self.jobs.append(
            Storing("store", parts, row, 0, self.rng.randint(0, 2), table=table, names=names)
        )

    def _end_store(self, job: Storing) -> None:
        assert job.table is not None
        self._finish_parts(job, ok=True)
        for part in job.parts:
            name = self.name_of(part.group)
            self.pool.publish(name, part.peers, job.names)
            self.pool.release(part.peers, group=name, req=job.row.name)
        self.leaving.difference_update((job.table.name, name) for name in job.names)
        job.table.pool.release(job.parts[0].blocks, group=job.table.lead, owner="offload")

    # Loads

    def load(self, engine: Admission, row: Request, t: int) -> None:
        """Bring what `row` needs at `t` and the device lacks."""
        wanted: dict[str, dict[int, str]] = {}
        found: dict[str, dict[int, int]] = {}
        for table in engine.tables:
            cached = {}
            missing = {}
            for i in table.needed(t):
                name = row.hash((i + 1) * table.bt, table.name)
                block = table.pool.find(table.lead, name)
                if block is None:
                    missing[i] = name
                else:
                    cached[i] = block
            wanted[table.name] = missing
            found[table.name] = cached
        after = engine.step - 1
        layers = 0
        # What goes layer by layer begins at once, and so fits under a cap only by itself.
        alone = not self.options.limits or not any(job.begun for job in self.jobs)
        at_once = self.options.layerwise and after <= engine.retired and alone
        if at_once and self.rng.random() < 0.6:
            layers = self.rng.randint(2, 3)
        job = Loading("load", [], row, after, self.rng.randint(0, 3), at=t, found=found)
        for table in engine.tables:
            table.pool.touch(list(found[table.name].values()), group=table.lead, req=row.name)
        for table in engine.tables:
            self._prepare(table, row, job, wanted[table.name], layers)
        row.state = "loading"
        self.jobs.append(job)
        if layers:
            self._begin_layers(engine, job, layers)

    def _prepare(
        self, table: Table, row: Request, job: Loading, missing: dict[int, str], layers: int
    ) -> None:
        """Allocate for the missing blocks of one table and hold their sources."""
        mine: dict[int, int] = {}
        for run in _runs(sorted(missing)):
            tokens = (
                None if isinstance(table, State) else [run[0] * table.bt, (run[-1] + 1) * table.bt]
            )
            taken = table.pool.take(len(run), table.names, req=row.name, tokens=tokens)
            mine.update(zip(run, taken, strict=True))
        job.loaded[table.name] = mine
        if not mine:
            return
        for group in table.names:
            peers = [self.pool.find(self.name_of(group), missing[i]) for i in mine]
            sources = [p for p in peers if p is not None]
            if self.options.pins:
                self.pool.pin(sources, owner=row.name)
            else:
                self.pool.touch(sources, group=self.name_of(group), req=row.name)
            for layer in range(layers) if layers else (None,):
                job.parts.append(
                    Part(self._handle("ld"), group, list(mine.values()), sources, layer)
                )

    def _let_sources_go(self, job: Loading) -> None:
        seen = set()
        for part in job.parts:
            if part.group not in seen:
                seen.add(part.group)
                if self.options.pins:
                    self.pool.unpin(part.peers, owner=job.row.name)
                else:
                    name = self.name_of(part.group)
                    self.pool.release(part.peers, group=name, req=job.row.name)

    def _resume(self, engine: Admission, job: Loading) -> None:
        job.resumed = True
        routes = {x.name: "load" if job.loaded[x.name] else "reuse" for x in engine.tables}
        brought = {x.name: self._all(job, x) for x in engine.tables}
        engine.emit_resume(job.row, job.at, routes, brought)

    def _overwritten(self, job: Loading, table: Table) -> None:
        """Whatever form the blocks had before, the load has filled them."""
        table.pool.kind.update(dict.fromkeys(job.loaded[table.name].values(), table.name))

    def _all(self, job: Loading, table: Table) -> dict[int, int]:
        both = {**job.found[table.name], **job.loaded[table.name]}
        return dict(sorted(both.items()))

    def _publish(self, engine: Admission, job: Loading) -> None:
        for table in engine.tables:
            for run in _runs(sorted(job.loaded[table.name])):
                table.pool.publish(
                    table.lead,
                    [job.loaded[table.name][i] for i in run],
                    [job.row.hash((i + 1) * table.bt, table.name) for i in run],
                    tokens=[run[0] * table.bt, (run[-1] + 1) * table.bt],
                    req=job.row.name, key=job.row.key,
                )  # fmt: skip

    def _end_load(self, engine: Admission, job: Loading) -> None:
        row = job.row
        fails = self.options.load_failures and self.rng.random() < 0.4
        if fails:
            actor = self._actor("load")
            for part in job.parts:
                some = part.blocks[-self.rng.randint(1, len(part.blocks)) :]
                self.tape.emit("load_end", handle=part.handle, ok=False, failed=some, actor=actor)
            if self.options.lease:
                self._edge(actor, "master")
                self._lease("release", job)
            self._edge(actor, None)
        else:
            self._finish_parts(job, ok=True)
        self._let_sources_go(job)
        if row.state == "over" or fails:
            for table in engine.tables:
                blocks = list(self._all(job, table).values())
                table.pool.release(blocks[::-1], group=table.lead, req=row.name)
            if fails and row.state != "over":
                row.state = "waiting"
                row.avoids_tier = True
                engine.waiting.insert(0, row)
            return
        self._publish(engine, job)
        for table in engine.tables:
            self._overwritten(job, table)
            table.adopt(row, job.at, self._all(job, table))
        if not job.resumed:
            self._resume(engine, job)
        engine.start(row, job.at)

    # Layer by layer

    def _begin_layers(self, engine: Admission, job: Loading, layers: int) -> None:
        job.layers = layers
        for table in engine.tables:
            self._overwritten(job, table)
            table.adopt(job.row, job.at, self._all(job, table))
            loaded = list(job.loaded[table.name].values())
            table.pool.touch(loaded, group=table.lead, owner="connector")
        self._begin(engine, job)
        self._resume(engine, job)
        job.row.loading = job
        job.row.state = "running"

    def layer_lines(self, engine: Admission, row: Request, uses: list[Event]) -> Iterator[Event]:
        """The reads of `row` in its first step: those of a layer wait for that layer's load."""
        job = row.loading
        assert job is not None
        row.loading = None
        job.step = engine.step - 1
        compute = engine.lane.actor or "device"
        actor = self._actor("load")
        for layer in range(job.layers):
            for part in job.parts:
                if part.layer == layer:
                    yield make("load_end", handle=part.handle, ok=True, actor=actor)
            self.edges += 1
            yield make("signal", event=f"e{self.edges}", actor=actor)
            yield make("wait", event=f"e{self.edges}", actor=compute)
            for use in uses:
                yield {**use, "part": layer}

    def retired(self, engine: Admission, step: Step) -> None:
        """Layered loads of this step have ended, and the host knows it now."""
        for job in list(self.jobs):
            if isinstance(job, Loading) and job.layers and job.step == step.number:
                self.jobs.remove(job)
                self._let_sources_go(job)
                self._publish(engine, job)
                for table in engine.tables:
                    loaded = list(job.loaded[table.name].values())
                    table.pool.release(loaded, group=table.lead, owner="connector")


def _runs(indices: Sequence[int]) -> Iterator[list[int]]:
    """Stretches of consecutive indices."""
    run: list[int] = []
    for i in indices:
        if run and i != run[-1] + 1:
            yield run
            run = []
        run.append(i)
    if run:
        yield run
