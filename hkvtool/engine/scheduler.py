"""The host side: who runs next, on what blocks, and who has to give some back."""

from __future__ import annotations

from collections import deque

from hkvtool.engine.allocator import HybridAllocator
from hkvtool.engine.config import Config
from hkvtool.engine.geometry import Work
from hkvtool.engine.live import Live, Stage
from hkvtool.engine.lookup import Hit, lookup, trusting
from hkvtool.engine.tiers import Tiers
from hkvtool.engine.validate import GOOD, Verdict, validate_resume
from hkvtool.engine.workload import Request
from hkvtool.model.block_state import CacheBlockState

Copy = tuple[str, str, int, int]
"""A copy on write to run: request, table, source block, destination block."""


class Scheduler:
    """Plans steps: first what runs, then what waits, in order of arrival.

    Where blocks run out, the request that was admitted last gives all of its back and starts
    over later from whatever of it is still cached.
    """

    def __init__(self, config: Config, allocator: HybridAllocator, tiers: Tiers) -> None:
        self.config = config
        self.allocator = allocator
        self.tiers = tiers
        self.emit = allocator.emit
        self.waiting: deque[Live] = deque()
        self.running: list[Live] = []
        self.recovering = 0
        self.copies: list[Copy] = []
        self.preemptions = self.resumes = self.vetoed = 0
        self.matched = self.resumed = self.asked = 0

    def submit(self, request: Request, *, front: bool = False) -> Live:
        """A request arrives."""
        live = Live(request, known=request.prompt, target=request.total)
        if front:
            self.waiting.appendleft(live)
        else:
            self.waiting.append(live)
        return live

    def plan(self) -> list[tuple[Live, Work]]:
        """The work of the next step; may be empty."""
        works: list[tuple[Live, Work]] = []
        budget, preempted = self.config.budget, self.preemptions
        for live in list(self.running):
            if live.stage is not Stage.RUNNING:
                continue
            work = self.launch(live, budget)
            if work is not None:
                works.append((live, work))
                budget -= work.end + work.draft - work.start
        if preempted == self.preemptions:
            self._admit(works, budget)
        return works

    def _extend(self, live: Live, work: Work) -> bool:
        """Blocks for the work, at the cost of those admitted after the request."""
        ranges = {t.name: t.lead.writes(work) for t in self.config.preset.tables}
        while not self.allocator.extend(live.request.id, ranges):
            victim = self.running[-1]
            if victim is live and self.recovering:
                # Blocks that recover belong to requests that will run and can be preempted then.
                return False
            self.give_back(victim)
            if victim is live:
                return False
        return True

    def give_back(self, live: Live) -> None:
        """Preempt a request: all its blocks, for those admitted before it."""
        self.preemptions += 1
        self.running.remove(live)
        self.emit("preempt", req=live.request.id, reason="out of blocks", pool="gpu")
        self.allocator.release(live.request.id)
        live.stage, live.in_flight = Stage.WAITING, 0
        live.epoch += 1
        live.known = max(live.known, live.done)
        live.refused = False
        self.waiting.appendleft(live)

    # --- admission ---------------------------------------------------------------------------

    def _admit(self, works: list[tuple[Live, Work]], budget: int) -> None:
        grain = self.config.preset.grain
        while self.waiting and budget >= grain:
            if len(self.running) + self.recovering >= self.config.running:
                return
            live = self.waiting[0]
            hit = self.match(live)
            if hit.loads() and not self.tiers.admits(hit):
                if self.tiers.recovering:
                    self.refuse(live, self.tiers.cost(hit), "cap on recovering blocks")
                    return
                hit = self.match(live, near=True)
            shared = hit.at == live.known
            start = hit.at - shared
            needs = self._needs(live, hit, start, budget)
            if needs > self.allocator.gpu.available:
                self.refuse(live, needs, "out of blocks")
                return
            self.waiting.popleft()
            self.announce(live, hit)
            self.allocator.hold(live.request, hit)
            live.restart(start)
            live.hit = hit.at
            live.route = {
                name: "load" if any(tier for _, tier, _ in found) else "reuse"
                for name, found in hit.sources.items()
            }
            if hit.loads():
                live.stage = Stage.RECOVERING
                self.recovering += 1
                self.tiers.load(live.request, hit, lambda live=live: self._recovered(live))  # type: ignore[misc]
                continue
            self.enter(live)
            work = self.launch(live, budget)
            if work is None:
                return
            works.append((live, work))
            budget -= work.end - work.start

    def match(self, live: Live, *, near: bool = False) -> Hit:
        """The hit of a request, checked against what the blocks are now."""
        pools = self.allocator.pools[:1] if near else self.allocator.pools
        preset, known = self.config.preset, live.known
        last = known if preset.partial else known - 1
        if self.config.trust_hash:
            return trusting(preset, live.request, known, pools, last)
        while True:
            hit = lookup(preset, live.request, known, pools, last)
            verdict = self.validate(hit)
            if verdict.ok:
                return hit
            # What fails any layer is no state to resume from: its hash goes, and we look again.
            self.vetoed += 1
            if not self._invalidate(hit, verdict):
                return Hit(asked=known)

    def validate(self, hit: Hit) -> Verdict:
        """The four layers over the blocks that a hit would rely on."""
        if hit.at == 0:
            return GOOD
        states: dict[str, list[CacheBlockState]] = {
            name: [self.allocator.state(b, self.allocator.pools[tier]) for _, tier, b in found]
            for name, found in hit.sources.items()
        }
        return validate_resume(self.config.preset, hit.at, states)

    def _invalidate(self, hit: Hit, verdict: Verdict) -> bool:
        """Drop the hashes of what failed; False where no block is to blame."""
        table = next(
            t for t in self.config.preset.tables
            if any(group.name == verdict.group for group in t.groups)
        )  # fmt: skip
        guilty = [e for e in hit.sources[table.name] if verdict.block in (-1, e[2])]
        for _, tier, block in guilty:
            pool = self.allocator.pools[tier]
            pool.forget(block)
            suffix = "" if tier == 0 else f"@{pool.name}"
            self.emit("unpublish", group=table.name + suffix, blocks=[block], reason="invalidate")
        return bool(guilty)

    def _needs(self, live: Live, hit: Hit, start: int, budget: int) -> int:
        """Free blocks the request takes now: cached ones it revives, loads, its first chunk."""
        gpu = self.allocator.gpu
        found = [entry for entries in hit.sources.values() for entry in entries]
        revived = sum(1 for _, tier, block in found if tier == 0 and gpu.refs[block] == 0)
        live.restart(start)
        work = live.next_work(self.config.preset, budget, self.config.stride)
        fresh = 0
        for table in self.config.preset.tables:
            have = {index for index, _, _ in hit.sources.get(table.name, ())}
            want = set(table.lead.span(*table.lead.needs(start)))
            if work is not None:
                want.update(table.lead.span(*table.lead.writes(work)))
            fresh += len(want - have)
        return revived + hit.loads() + fresh + (hit.at > start)

    def refuse(self, live: Live, needs: int, reason: str) -> None:
        """Say once that a request has to wait."""
        if not live.refused:
            live.refused = True
            self.emit(
                "refuse", req=live.request.id, reason=reason, needs=needs,
                free=self.allocator.gpu.available, pool="gpu",
            )  # fmt: skip

    def announce(self, live: Live, hit: Hit) -> None:
        """Tell what the lookup found, table by table, and count it."""
        self.asked += hit.asked
        self.matched += hit.matched
        self.emit(
            "lookup", req=live.request.id, tokens=hit.asked, hit=hit.own, blocks=hit.blocks,
            hashes=hit.keys,
        )  # fmt: skip
        if hit.at == 0 and hit.matched:
            route = {table.name: "recompute" for table in self.config.preset.tables}
            self.emit("resume", req=live.request.id, at=0, blocks={}, route=route)

    def _recovered(self, live: Live) -> None:
        """The load has arrived; an aborted request gives its blocks back only now."""
        self.recovering -= 1
        if live.aborted:
            self.allocator.release(live.request.id)
            live.stage = Stage.OVER
            return
        self.enter(live)

    def enter(self, live: Live) -> None:
        """Make the request a running one: the decision to resume.

        What was free when a load began may be taken by its end. Then the request, admitted
        last, is the one to give its blocks back; what it loaded stays cached.
        """
        live.stage, live.refused = Stage.RUNNING, False
        self.running.append(live)
        self.emit("admit", req=live.request.id)
        if not live.hit:
            return
        needs = {t.name: t.lead.needs(live.ahead) for t in self.config.preset.tables}
        lacks = sum(map(len, self.allocator.missing(live.request.id, needs).values()))
        if lacks + (live.hit > live.ahead) > self.allocator.gpu.available:
            self.give_back(live)
        else:
            self.resume(live)

    def launch(self, live: Live, budget: int) -> Work | None:
        """The request's next work within a budget of tokens, with the blocks it takes."""
        work = live.next_work(self.config.preset, budget, self.config.stride)
        if work is None or not self._extend(live, work):
            return None
        live.ahead = work.end
        live.in_flight += 1
        return work

    def resume(self, live: Live) -> None:
        """Tell from which blocks the request goes on, and by which route each table got there."""
        self.resumes += 1
        self.resumed += live.ahead
        req, held = live.request.id, self.allocator.held[live.request.id]
        blocks: dict[str, list[int]] = {}
        route: dict[str, str] = {}
        for table in self.config.preset.tables:
            span = table.lead.span(*table.lead.needs(live.ahead))
            found = [held[table.name][i] for i in span if i in held[table.name]]
            for group in table.groups:
                blocks[group.name] = found if len(found) == len(span) else []
                if blocks[group.name] and table.name in live.route:
                    route[group.name] = live.route[table.name]
        self.emit("resume", req=req, at=live.ahead, blocks=blocks, route=route)
        # What a trusting engine lacks it makes room for and reads as if it were there.
        self.allocator.extend(
            req, {t.name: t.lead.needs(live.ahead) for t in self.config.preset.tables}
        )
        if live.hit > live.ahead:
            (table,) = self.config.preset.tables
            index = live.ahead // table.lead.block_tokens
            source, copy = self.allocator.copy_on_write(req, table.name, index)
            self.copies.append((req, table.name, source, copy))

    # --- ends --------------------------------------------------------------------------------

    def abort(self, live: Live) -> None:
        """The client is gone. Blocks with a load under way are kept until it has ended."""
        if live.stage is Stage.OVER or live.aborted:
            return
        live.aborted = True
        self.emit("abort", req=live.request.id, reason="client disconnected")
        live.epoch += 1
        if live.stage is Stage.RECOVERING:
            return
        if live.stage is Stage.WAITING:
            self.waiting.remove(live)
        else:
            self.running.remove(live)
            self.allocator.release(live.request.id)
        live.stage = Stage.OVER

    def finish(self, live: Live) -> None:
        """The request has all its tokens."""
        self.running.remove(live)
        live.stage = Stage.OVER
        self.emit("finish", req=live.request.id)
        self.allocator.release(live.request.id)
