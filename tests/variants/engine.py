"""A small engine that does what it should: chunked prefill, decode, prefix hits, preemption.

It decides as real schedulers do and writes down every decision and access as `hkv/1` events.
Nothing here judges a trace: the checker must find nothing in what it writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from .admission import Admission
from .options import Options
from .paging import Pool
from .requests import Item, Request, Step
from .tables import Table
from .tape import Event, Tape, make
from .tiers import Tier

STEP_TOKENS = 96


class Engine(Admission):
    """Runs `requests` to their ends over `tables`; the first pool of a kind is the device's."""

    def __init__(
        self,
        tape: Tape,
        rng: Random,
        options: Options,
        pools: Sequence[Pool],
        tables: Sequence[Table],
        requests: Sequence[Request],
        tier: Tier | None = None,
        first_step: int = 1,
    ) -> None:
        super().__init__(tape, rng, options, pools, tables, tier)
        self.coming = list(requests)
        self.flight: list[Step] = []
        self.step = first_step
        self.retired = first_step - 1
        self.weights = 1
        self.remaps = 0
        self.deferred: list[tuple[int, Table, list[int]]] = []
        self.rests: list[int] = []
        """Positions in the tape where nothing is in flight."""
        self.budget = STEP_TOKENS
        self.publishes = True

    def run(self) -> None:
        """Until every request and every transfer has ended."""
        idle = 0
        while self.coming or self.waiting or self.running or self.flight or self.transfers:
            self._arrivals()
            if self.tier:
                self.tier.progress(self)
            self._happenings()
            step = self._schedule()
            if step is not None:
                self._dispatch(step)
                self.flight.append(step)
            keep = 1 if self.options.async_steps and step is not None else 0
            while len(self.flight) > keep:
                self._retire(self.flight.pop(0))
            self.tape.deliver(self.rng)
            if not self.flight and not self.transfers:
                self.rests.append(len(self.tape.events))
            idle = 0 if step or self.transfers else idle + 1
            if idle > 200:
                raise RuntimeError("the engine makes no progress")
        self.tape.deliver(self.rng, everything=True)

    @property
    def transfers(self) -> bool:
        return self.tier is not None and bool(self.tier.jobs)

    def _arrivals(self) -> None:
        while self.coming and (self.rng.random() < 0.5 or not (self.waiting or self.running)):
            self.waiting.append(self.coming.pop(0))

    def _happenings(self) -> None:
        """What comes from outside: clients that leave, swaps of places, new weights."""
        rng, options = self.rng, self.options
        if options.abort and self.running and rng.random() < 0.12:
            self.end(rng.choice(self.running), "abort")
        if options.preempt and len(self.running) > 1 and rng.random() < 0.15:
            self._preempt(self.running[-1])
        quiet = not self.flight and not self.transfers
        if options.remap and quiet and rng.random() < 0.4:
            pool = rng.choice(self.pools)
            if len(pool.free) >= 2:
                self.remaps += 1
                a, b = rng.sample(list(pool.free), 2)
                pool.swap(a, b, self.remaps)
        if self.tier and quiet and rng.random() < 0.15:
            self._reset()
        if options.weights and quiet and self.weights == 1 and rng.random() < 0.3:
            self._new_weights()

    def _reset(self) -> None:
        """The device forgets its hashes; what a tier holds is found again by loading."""
        for pool in self.pools:
            pool.reset(t.lead for t in self.tables if t.pool is pool)

    def _new_weights(self) -> None:
        for row in list(self.running):
            self._preempt(row, "weights")
        self._reset()
        if self.tier:
            self.tier.reset(self.tables)
        self.weights += 1
        for row in [*self.coming, *self.waiting]:
            row.weights = self.weights
        self.tape.emit("weights", version=self.weights)

    # Scheduling

    def _schedule(self) -> Step | None:
        items: list[Item] = []
        budget = self.budget
        for row in list(self.running):
            if row.state != "running":
                continue
            item = self._next_item(row, budget)
            if item is None or not self._make_room(row, item.q):
                continue
            items.append(item)
            budget -= item.q - item.p
            self._schedule_item(item)
        while self.waiting and budget > 0 and len(self.running) < 5:
            row = self.waiting[0]
            if not self._admit(row):
                break
            self.waiting.pop(0)
            if row.state != "running":
                continue
            item = self._next_item(row, budget)
            if item is None:
                break
            items.append(item)
            budget -= item.q - item.p
            self._schedule_item(item)
        items = [i for i in items if i.row.epoch == i.epoch and i.row.state == "running"]
        if not items:
            return None
        step = Step(self.step, items)
        self.step += 1
        return step

    def _next_item(self, row: Request, budget: int) -> Item | None:
        known = len(row.tokens)
        todo = known - row.next
        if todo == 0 and self.flight and row.next >= row.prompt:
            todo = 1  # the token that the step in flight is about to sample
        if todo <= 0 or budget <= 0:
            return None
        p = row.next
        n = min(todo, budget, self.chunk)
        for table in self.tables:
            if table.groups[0].form == "recurrent":
                n = min(n, table.bt - p % table.bt)
        q = sure = p + n
        if self.options.drafts and n == 1 and q == known and p >= row.prompt:
            q += self.options.drafts
        return Item(row, row.epoch, p, q, sure)

    def _short(self, row: Request, q: int) -> dict[str, int]:
        short: dict[str, int] = {}
        for table in self.tables:
            name = table.pool.name
            short[name] = short.get(name, 0) + table.blocks_short(row, q)
        return short

    def _make_room(self, row: Request, q: int) -> bool:
        """Let windows slide, then preempt until `row` can grow to `q`; false if it fell itself."""
        for table in self.tables:
            table.begin(row, row.next)
        while any(pool.available < self._short(row, q).get(pool.name, 0) for pool in self.pools):
            victim = self._victim()
            if victim is None:
                return False  # a transfer must end first
            if victim is not row or self.rng.random() < 0.5:
                self._refuse(row, q)
            self._preempt(victim)
            if victim is row:
                return False
        return True

    def _victim(self) -> Request | None:
        """The last request whose blocks would be free; a preemption that yields nothing is none."""
        for row in reversed(self.running):
            for table in self.tables:
                held = row.held[table.name].blocks.values()
                if any(table.pool.refs[b] == 1 for b in held):
                    return row
        return None

    def _refuse(self, row: Request, q: int) -> None:
        short = self._short(row, q)
        pool = next(p for p in self.pools if p.available < short.get(p.name, 0))
        self.tape.emit(
            "refuse", req=row.name, reason="out-of-blocks", needs=short[pool.name],
            free=pool.available, pool=pool.name,
        )  # fmt: skip

    def _schedule_item(self, item: Item) -> None:
        tables = list(self.tables)
        self.rng.shuffle(tables)
        for table in tables:
            table.grow(item.row, item.q)
        item.row.next = item.q
        if self.options.same_step:
            # Writes of a step precede its reads, so what it fills can be hit at once. The
            # versions and sealed positions that publishing asks for are known after `writes`.
            item.lines = self._writes(item)
            self._settle(item.row, min(item.sure, item.row.prompt))

    # Steps

    def _writes(self, item: Item) -> list[Event]:
        lines: list[Event] = []
        for table in self.tables:
            lines += table.opening(item.row)
        for table in self.tables:
            lines += table.writes(item.row, item.p, item.q, item.sure)
        return lines

    def _dispatch(self, step: Step) -> None:
        lines: list[Event] = []
        for item in step.items:
            lines += item.lines or self._writes(item)
        for item in step.items:
            lines += self._uses(item)
        if self.options.early_publish:
            for item in step.items:
                self._settle(item.row, min(item.sure, item.row.prompt))
        if self.options.graphs:
            lines = self._captured(step, lines)
        if self.options.buffers:
            lines = self._table_buffer(step, lines)
        reqs = [item.row.name for item in step.items]
        self.tape.emit("dispatch", step=step.number, reqs=reqs)
        self.lane.put(step.number, lines)
        for item in step.items:
            for table in self.tables:
                table.drop_borrowed(item.row)
        if not self.options.late_device:
            self.lane.run()
        else:
            self.lane.run(count=self.rng.randint(0, len(self.lane)))

    def _uses(self, item: Item) -> Iterator[Event]:
        uses = [use for t in self.tables for use in t.uses(item.row, item.p, item.q)]
        if item.row.loading is not None and self.tier is not None:
            yield from self.tier.layer_lines(self, item.row, uses)
        else:
            yield from uses

    def _captured(self, step: Step, lines: list[Event]) -> list[Event]:
        """Decode steps replay a graph; its padding rows write the null block."""
        if any(item.q - item.p > 1 + self.options.drafts for item in step.items):
            return lines
        lead = self.tables[0].lead
        pool = self.tables[0].pool.name
        pad = [
            make("zero", pool=pool, blocks=[0]),
            make("use", group=lead, blocks=[0], pad=True),
            make("write", group=lead, blocks=[0], tokens=[0, 1], pad=True),
        ]
        launch = make("launch", graph="decode", pointers={"kv": "0x7f00", "table": "0x7e00"})
        return [launch, *lines, *pad]

    def _table_buffer(self, step: Step, lines: list[Event]) -> list[Event]:
        """Two block-table buffers in turn: each is free again when its step is retired."""
        name = f"block_table#{step.number % 2}"
        n = len(step.items)
        self.tape.emit("buffer", name=name, op="write", version=step.number, valid=n)
        read = make("buffer", name=name, op="read", version=step.number, extent=n)
        return [read, *lines]

    def _settle(self, row: Request, upto: int) -> None:
        for table in self.tables if self.publishes else ():
            table.settle(row, upto)

    def _retire(self, step: Step) -> None:
        self.lane.run(upto=step.number)
        reqs = [item.row.name for item in step.items] if self.rng.random() < 0.5 else None
        self.tape.emit("retire", step=step.number, reqs=reqs)
        self.retired = step.number
        self._release_deferred()
        if self.tier:
            self.tier.retired(self, step)
        for item in step.items:
            row = item.row
            if row.epoch == item.epoch and row.state == "running":
                self._advance(row, item)

    def _advance(self, row: Request, item: Item) -> None:
        rng = self.rng
        row.done = item.q
        if item.q > item.sure:
            accepted = rng.randint(0, item.q - item.sure)
            row.tokens += [rng.randrange(1 << 20) for _ in range(accepted)]
            row.done = row.next = item.sure + accepted
            if row.done < item.q:
                self.tape.emit("rollback", req=row.name, to=row.done)
        if row.done == len(row.tokens):
            row.tokens.append(rng.randrange(1 << 20))
        self._settle(row, row.done)
        if self.options.fingerprints:
            self._fingerprint(row, row.done, "publish")
        open_end = self.options.promote or (self.options.cow and row.done <= row.prompt)
        if open_end and rng.random() < 0.7:
            self.tables[0].publish_partial(row, row.done)
        if self.tier:
            self.tier.store(self, row)
        if len(row.tokens) >= row.target:
            self.end(row, "finish")

    # Ends

    def end(self, row: Request, how: str) -> None:
        """Finish or abort: everything that the request holds goes."""
        if how == "finish" and self.options.cow:
            self.tables[0].publish_partial(row, row.done)
        self.tape.emit(how, req=row.name, reason="client gone" if how == "abort" else None)
        self.running.remove(row)
        row.state = "over"
        self._give_back(row)

    def _preempt(self, row: Request, reason: str = "out-of-blocks") -> None:
        self.tape.emit("preempt", req=row.name, reason=reason)
        self.running.remove(row)
        self._give_back(row)
        row.state = "waiting"
        row.epoch += 1
        row.next = row.done = 0
        self.waiting.insert(0, row)

    def _give_back(self, row: Request) -> None:
        tables = list(self.tables)
        self.rng.shuffle(tables)
        for table in tables:
            if self.options.deferred and self.flight and row.state == "over":
                blocks = list(row.held[table.name].blocks.values())
                table.pool.touch(blocks, group=table.lead, owner="deferred")
                self.deferred.append((self.step - 1, table, blocks))
            table.release(row)

    def _release_deferred(self) -> None:
        due = [d for d in self.deferred if d[0] <= self.retired]
        self.deferred = [d for d in self.deferred if d[0] > self.retired]
        for _, table, blocks in due:
            table.pool.release(blocks, group=table.lead, owner="deferred")
