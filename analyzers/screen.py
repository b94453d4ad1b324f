"""A long trace looked at by compiled code, which finds most of it right in one pass.

Where everything is right, the rules have only been asked about the rare events: declarations,
captures, and lookups and resumes that the screen (`screen_loop`) is not sure of. Where some events
are not surely right, it takes a note of them and goes on: the rules are asked of those, with all
that matters to them, in a second pass (`narrowed`). What cannot be narrowed down so, the rules look
at: the whole trace from its start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np

from hkvtool.analyzers import screen_arrays as s
from hkvtool.analyzers.blame import Blame
from hkvtool.analyzers.check import DESCRIBES, Check
from hkvtool.analyzers.context import Context
from hkvtool.analyzers.group_intersection import GroupIntersection
from hkvtool.analyzers.kinds import table
from hkvtool.analyzers.narrowed import AT_END, Doubts, narrowed, plain_numbers
from hkvtool.analyzers.progress import Progress
from hkvtool.analyzers.recount import Unbroken
from hkvtool.analyzers.screen_asked import Asked, taken_apart
from hkvtool.analyzers.screen_declared import take_in
from hkvtool.analyzers.screen_end import (
    events_at,
    held_by_others,
    in_order,
    never_ending,
    settle_lookups,
)
from hkvtool.analyzers.screen_fold import ScreenedFold, Suspicious, TakenIn
from hkvtool.analyzers.screen_lookups import close, drop
from hkvtool.analyzers.screen_loop import lane_of
from hkvtool.analyzers.screen_losses import Losses
from hkvtool.analyzers.screen_rebase import moves_under_nobody
from hkvtool.analyzers.screen_rows import Rows
from hkvtool.analyzers.screen_sql import never_signalled, plain_enough, sizes, too_long
from hkvtool.analyzers.shares import Shares
from hkvtool.analyzers.transfers import Transfers
from hkvtool.analyzers.unended import Unended
from hkvtool.analyzers.wire import Wire
from hkvtool.model.collector import uncollected
from hkvtool.model.event import Event
from hkvtool.model.events import BY_CODE, DEFAULT_ACTOR, DEVICE_ACTOR, EVENTS
from hkvtool.model.evidence import evidence_of
from hkvtool.model.findings import Report
from hkvtool.model.rows import MISSING
from hkvtool.state import arrays as a
from hkvtool.state.batch import Batch
from hkvtool.state.codes import (
    BUFFER,
    COPY,
    DISPATCH,
    INDEX,
    LOAD_BEGIN,
    LOAD_END,
    RETIRE,
    SEAL,
    SELECT,
    STORE_BEGIN,
    STORE_END,
    USE,
    WRITE,
    ZERO,
)
from hkvtool.state.requests import Request
from hkvtool.state.snapshot import fault

_DESCRIBED = table(EVENTS[kind].code for kind in DESCRIBES)

_OWN_LANE = table([WRITE, SEAL, INDEX, ZERO, COPY, USE, BUFFER, SELECT])
"""Events that run on the lane of the device where they have a step and name no lane."""

_TOUCHING = table([
    WRITE, SEAL, INDEX, ZERO, COPY, USE, STORE_BEGIN, LOAD_BEGIN, STORE_END, LOAD_END,
])  # fmt: skip
"""Events that say when blocks are touched."""

_BY_ITSELF = frozenset({"HKV308", "HKV903"})
"""What a lookup threw away, and events that were lost: nothing follows from that."""

STEPS_NOTED = 4096

_BATCH = 1 << 14


def screened(
    trace: Any, told: Callable[[int], None] | None = None, *, right: bool = False,
    shares: Shares | None = None,
) -> Report | None:  # fmt: skip
    """The report of a trace; None where the rules must look at all of it. With `right`, the report
    of a trace in which nothing is wrong, None of any other.

    `trace` is one in a DuckDB file. `told` is told how many events were looked at; what takes how
    long is put into `shares`.
    """
    try:
        with uncollected():
            if right:
                return looked_through(trace, told)
            return narrowed_down(trace, told, shares=shares)
    except (Suspicious, LookupError, ValueError, TypeError):
        # A file altered by hand may hold anything: whoever reads its events says what is wrong.
        return None


def looked_through(trace: Any, told: Callable[[int], None] | None = None) -> Report:
    """The report of a trace in which nothing is wrong; raises Suspicious of any other."""
    return _looking(trace).run(told)


def narrowed_down(
    trace: Any, told: Callable[[int], None] | None = None, size: int = _BATCH,
    shares: Shares | None = None,
) -> Report:  # fmt: skip
    """The report of a trace, the rules asked of what is not surely right; raises Suspicious where
    they must look at all of it. `size` is how many events are read at once."""
    making = shares.timed("screen: making ready", _looking) if shares else _looking
    looking = making(trace, further=True, size=size)
    if shares:
        looking.measure(shares)
    report = looking.run(told)
    doubts = looking.doubts()
    if doubts is None:
        return report
    del looking
    return narrowed(trace, doubts, report, shares)


def _looking(trace: Any, *, further: bool = False, size: int = _BATCH) -> _Looking:
    evidence = evidence_of(trace.control)
    if not plain_enough(trace) or evidence.source != "declared":
        raise Suspicious("what the trace holds", 0)
    fold = ScreenedFold(trace)
    if not fold.fits:
        raise Suspicious("too large to lay out", 0)
    check = Check(Context(evidence, fold, TakenIn(fold)))
    return _Looking(trace, fold, check, further=further, size=size)


class _Looking:
    """One pass over one trace; without `further`, up to what is not surely right."""

    def __init__(
        self, trace: Any, fold: ScreenedFold, check: Check, *, further: bool, size: int
    ) -> None:
        self.further, self.size = further, size
        self.waited: Callable[[Iterator[Any]], Iterator[Any]] = iter
        self.asked: list[Any] = []
        self.at_end = self.printed = False
        self.found_at: list[int] = []
        tally = Unbroken(check.ctx)
        check.seeing[check.seeing.index(check.tally)] = tally
        check.tally = tally
        self.unended = Unended(check.ctx)
        for seeing in (check.families, check.seeing):
            at = next(i for i, one in enumerate(seeing) if isinstance(one, Transfers))
            seeing[at] = self.unended
        self.accessing = np.zeros(int(fold.sc.h[s.LANES]), bool)
        self.trace, self.fold, self.check = trace, fold, check
        self.ctx, self.sc = check.ctx, fold.sc
        self.rows = Rows(trace, fold)
        self.sent: tuple[Any, Any] = (np.zeros(0, np.int64),) * 2
        self.prints = bool(trace.kinds.get("fingerprint"))
        self.under_way: deque[tuple[int, int, bool]] = deque()
        """Steps that are handed out and done, behind which no bytes were looked at yet."""
        self.lanes = self._lanes()
        self.resumes = next(f for f in check.families if isinstance(f, GroupIntersection))
        self.progress = next(f for f in check.families if isinstance(f, Progress))
        self.wire = next(f for f in check.families if isinstance(f, Wire))
        self.numbers: dict[str, int] = {}
        self.sc.h[s.STREAM] = int("stream" in self.ctx.evidence)
        self.losses = Losses(trace, fold, check)
        self.maybe_stuck = -1
        self.freed_seen = 0
        self.sizes = sizes(trace)

    def _lanes(self) -> Any:
        """Lanes by the number of their name; the last two are those of events that name none."""
        names = [str(self.trace.names.name("actor", i))
                 for i in range(self.trace.names.count("actor"))]  # fmt: skip
        lanes = list(range(len(names)))
        for default in (DEFAULT_ACTOR, DEVICE_ACTOR):
            at = names.index(default) if default in names else len(lanes)
            lanes.append(at)
        if lanes[-2] == lanes[-1]:
            lanes[-1] += 1
        return np.array(lanes, np.int64)

    def measure(self, shares: Shares) -> None:
        """Have it said what takes how long."""
        shares.measure(self, {"run": "screen: the rest", "_loud": "screen: rules asked at once",
                              "_settle": "screen: rules asked at once"})  # fmt: skip
        shares.measure(self.fold, {"watch": "screen: compiled", "begin": "screen: making room"})
        shares.measure(self.rows, {"take": "screen: columns"})
        self.waited = partial(shares.waited, "screen: waiting for what is read")

    def run(self, told: Callable[[int], None] | None) -> Report:
        batches = taken_apart(self.trace, self.size)
        # Who reads ahead stops where the screen does, and not only once the error is forgotten.
        with closing(batches):
            for batch, chunk, lookups in self.waited(batches):
                self._batch(batch, chunk, lookups)
                self.check.count += batch.n
                if told:
                    told(self.check.count)
        self._ended()
        waiting = [name for name, _ in self.resumes.pending]
        report = self.check.report()
        self._found_at_end(waiting)
        report.findings = list(self.ctx.findings)
        for finding in report.findings:
            plain_numbers(finding)
        in_order(report.ratios.lookups)
        return report

    # --- what is not surely right ----------------------------------------------------------

    def doubts(self) -> Doubts | None:
        """What the rules are still to be asked of; None where there is nothing."""
        if not self.asked and not self.at_end:
            return None
        fold, sc = self.fold, self.sc
        groups, pools = fold.declared.groups, fold.declared.pools
        buffers = np.flatnonzero(sc.b_doubt)
        names = {number: name for name, number in self.rows.buffers.items()}
        return Doubts(
            asked=np.unique(np.concatenate([np.zeros(0, np.int64), *self.asked])),
            concerned=(sc.named & s.CONCERNED) != 0,
            since=sc.since,
            written=(sc.doubt & s.WRITTEN) != 0,
            floor=0 if len(buffers) else int(sc.h[s.FLOOR]),
            buffers=frozenset(names[number] for number in buffers.tolist()),
            printed=self.printed,
            homes=_bases_of(fold, "group", {n: g.pool.name for n, g in groups.items()}),
            bases=_bases_of(fold, "pool", {name: name for name in pools}),
            found_at=self.found_at,
            losses=self.check.tally.losses,
            unended=self.unended.names,
            told=np.unique(np.array(self.losses.told, np.int64)),
        )

    def _found_at_end(self, waiting: list[str]) -> None:
        """What the end of the trace shows: the rules are asked of it again where it may follow
        from what they are still to be asked of."""
        ctx, known = self.ctx, len(self.found_at)
        found = ctx.findings[known:]
        if found:
            self._stop(0)
        codes = {finding.code for finding in found} - Progress.codes
        if codes & Wire.codes:
            raise Suspicious("the wire", 0)
        if codes - Unended.codes or (codes and self.asked):
            self.at_end = True
            ctx.findings[known:] = [f for f in found if f.code in Progress.codes]
            for name in waiting:
                self.sc.named[self.numbers[name]] |= s.CONCERNED
        # Whoever waits is the last that is told of.
        self.found_at += [AT_END + 1] * (len(ctx.findings) - known)

    def _ask(self, pos: int, who: int) -> None:
        """The rules are to be asked of an event once everything has been looked at."""
        self.asked.append(np.array([pos], np.int64))
        if who >= 0:
            self.sc.named[who] |= s.CONCERNED
        self._stop(pos)

    def _stop(self, pos: int) -> None:
        if not self.further:
            raise Suspicious("not surely right", pos)

    def _found(self, pos: int) -> bool:
        """Whether the rules, asked of an event, found more than what stands by itself: that is not
        told, as they will be asked of it again."""
        ctx, known = self.ctx, len(self.found_at)
        if any(finding.code not in _BY_ITSELF for finding in ctx.findings[known:]):
            del ctx.findings[known:]
            ctx.blame = Blame(self.fold)
            return True
        self.found_at += [pos] * (len(ctx.findings) - known)
        return False

    def _noted(self, batch: Batch) -> None:
        """Which lanes touched blocks so far."""
        lane = np.where(_OWN_LANE[batch.ev] & (batch.step != MISSING),
                        self.lanes[-1], self.lanes[-2])  # fmt: skip
        lane = np.where(batch.actor >= 0, self.lanes[np.maximum(batch.actor, 0)], lane)
        self.accessing[lane[_TOUCHING[batch.ev]]] = True

    def _snapshot(self, pos: int) -> None:
        """How far each lane that touched blocks is."""
        sc, lanes = self.sc, len(self.accessing)
        k = int(sc.h[s.SNAPS]) % s.SNAPSHOTS
        sc.snap_pos[k] = pos
        sc.snap_index[k * lanes : (k + 1) * lanes] = np.where(self.accessing, sc.idx, 0)
        sc.h[s.SNAPS] += 1

    # --- rows ------------------------------------------------------------------------------

    def _batch(self, batch: Batch, chunk: Any, lookups: Asked) -> None:
        fold = self.fold
        fold.begin(batch, lookups)
        stops, said = self.rows.take(batch, chunk)
        dispatched = batch.ev == DISPATCH
        self.sent = batch.pos[dispatched], batch.step[dispatched]
        if self.prints:
            bounds = dispatched | (batch.ev == RETIRE)
            self.under_way = deque(
                zip(batch.pos[bounds].tolist(), batch.step[bounds].tolist(),
                    dispatched[bounds].tolist(), strict=True)
            )  # fmt: skip
        self.sc = fold.sc
        self._snapshot(int(batch.pos[0]))
        if self.sc.h[s.BLIND]:
            self.losses.met(batch, stops, 0)
        row = 0
        regained, lane = fold.regained_at(batch, row)
        while True:
            first, row = row, fold.watch(self.lanes, said, stops, row, regained)
            if self.check.coming is not None:
                self._went_on(batch, first, row)
            if row == regained:
                if lane is None:
                    break
                self._regained(batch, row, lane)
                regained, lane = fold.regained_at(batch, row)
                continue
            fold.row = row
            self._sent_by(int(batch.pos[row]))
            if stops[row] == s.STOP or self.sc.h[s.ASK]:
                self.sc.h[s.ASK] = 0
                event = self.rows.event(batch, row)
                self._loud(event, row)
                row += 1
                if event.ev == "dropped":
                    self._lost(event.pos)
                    self.losses.met(batch, stops, row)
                    regained, lane = fold.regained_at(batch, row)
            else:
                self._settle(row, int(batch.pos[row]))
                self.sc.h[s.JUDGED] = batch.pos[row]
        self._sent_by(int(batch.pos[-1]) + 1)
        self._noted(batch)
        count = int(self.sc.h[s.ASKED])
        if count:
            self.asked.append(self.sc.asked[:count].copy())
            self._stop(int(self.sc.asked[0]))
        settled = 4 * int(self.sc.h[s.SETTLED])
        self.check.tally.total.lookups.frombytes(self.sc.outcome[:settled].tobytes())

    def _lost(self, pos: int) -> None:
        """Events were lost: nothing that is remembered of lanes and waits holds any more."""
        self._stop(pos)
        self.losses.forget()
        self.maybe_stuck = -1
        self.rows.forget_captures()
        self.sc.h[s.WAITED] = int(bool(self.progress.waiting or self.progress.victims))

    def _regained(self, batch: Batch, row: int, lane: str) -> None:
        """A lane is seen again that has lost events."""
        self.losses.regained(batch, row, lane)
        self._lost(int(batch.pos[row]))

    def _went_on(self, batch: Batch, first: int, end: int) -> None:
        """Whether anything was told in some rows that brings stated evidence into force."""
        told = ~_DESCRIBED[batch.ev[first:end]]
        if not self.check.coming:
            # Behind the end of a recording a step that was under way may still be told of.
            told &= (batch.step[first:end] == MISSING) | (batch.ev[first:end] == DISPATCH)
        if told.any():
            self.check.go_on()

    # --- rare events -----------------------------------------------------------------------

    def _sent_by(self, pos: int) -> None:
        """Take a note of the steps that were dispatched before a position."""
        places, steps = self.sent
        n = int(np.searchsorted(places, pos))
        noted = self.ctx.dispatched
        noted.update(zip(steps[:n].tolist(), places[:n].tolist(), strict=True))
        self.sent = places[n:], steps[n:]
        under_way, known_of = self.under_way, self.check.integrity.dispatched
        while under_way and under_way[0][0] < pos:
            place, step, sent = under_way.popleft()
            if sent:
                known_of[step] = place
            else:
                known_of.pop(step, None)
        for known in (noted, self.ctx.launched):
            if len(known) > 2 * STEPS_NOTED:
                for step in list(known)[:-STEPS_NOTED]:
                    del known[step]

    def _loud(self, event: Event, row: int) -> None:
        """The rules are asked about an event, as the screen's state stands."""
        sc, batch, ev = self.sc, self.fold.batch, event.ev
        who = int(batch.req[row])
        if event.problem is not None:
            raise Suspicious("malformed", event.pos)
        name = event.req
        if event.ev == "admit" and "engine" in event:
            sc.h[s.ENGINES] = 1
        if ev == "fingerprint":
            self._printed(event, who)
            return
        if who >= 0 and sc.named[who] & s.DOUBTED:
            self._aside(event, who)
            return
        if name is not None:
            self._known(event, name, who)
        assert isinstance(self.ctx.order, TakenIn)
        self.ctx.order.lane = int(
            lane_of(int(batch.ev[row]), int(batch.actor[row]), int(batch.step[row]),
                                self.lanes)
        )  # fmt: skip
        if ev == "select" and name is not None:
            self._tables(event, name, who)
        if ev in ("refuse", "preempt"):
            self._waiting(event)
        if ev == "state":
            self._described(event)
        if ev == "rebase":
            self._moved(event)
        self.check.event(event)
        if self.check.integrity.malformed or self.check.integrity.midway:
            raise Suspicious("malformed", event.pos)
        if self._found(event.pos):
            if ev in ("refuse", "preempt", "wire"):
                raise Suspicious(f"a finding of {ev}", event.pos)
            self._ask(event.pos, who)
        if ev in ("state", "weights"):
            # What was found right may be so no more.
            sc.memo[:] = 0
        if ev == "lease" and event["op"] != "grant":
            sc.h[s.LEASED] = 1
        if ev in ("pool", "group", "limits"):
            self._declared(event)
        if who >= 0:
            sc.named[who] |= s.NAMED | s.REQUEST
            self._life(event, who)
        sc.h[s.STREAM] |= int("stream" in (self.check.coming or ()))
        sc.h[s.WAITED] = int(bool(self.progress.waiting or self.progress.victims))

    def _moved(self, event: Event) -> None:
        """Memory is about to move."""
        if self.fold.st.h[a.MOVING] or not moves_under_nobody(self.trace, event):
            raise Suspicious("memory moves", event.pos)

    def _described(self, event: Event) -> None:
        """Blocks are about to be described as they stand: what a check saw of them before says
        nothing of what it would see now."""
        pool = self.fold.declared.pools.get(str(event["pool"]))
        if pool is None or fault(event, pool):
            return
        slots = np.array([self.fold.slot(pool, b) for b in event["blocks"]], np.int64)
        stated = (event.get("gens") or [None] * len(slots), self.fold.st.gen[slots].tolist())
        if any(gen is not None and gen < known for gen, known in zip(*stated, strict=True)):
            # Who held a block is told by the generation that it was held in.
            raise Suspicious("an earlier generation", event.pos)
        self.sc.told_at[slots] = event.pos

    def _printed(self, event: Event, who: int) -> None:
        """Bytes are held against what was seen of the same content."""
        if self.fold.group(event["group"]) is None:
            raise Suspicious("malformed", event.pos)
        if who >= 0:
            self.sc.named[who] |= s.NAMED | s.REQUEST
        self.ctx.meet(event)
        self.check.integrity.before(event)
        if self._found(event.pos):
            self.printed = True
            self._ask(event.pos, who)

    def _aside(self, event: Event, who: int) -> None:
        """An event of a request that something was not right with: just what others may hang on
        is taken in."""
        sc, ev = self.sc, event.ev
        self._ask(event.pos, who)
        if ev in ("refuse", "preempt"):
            self._waiting(event)
        self.ctx.meet(event)
        self.progress.before(event)
        self.progress.after(event)
        if self._found(event.pos):
            raise Suspicious("a finding", event.pos)
        if ev in ("lookup", "abort", "finish"):
            close(sc, who)
        sc.named[who] |= s.NAMED | s.REQUEST
        self._life(event, who)
        sc.h[s.WAITED] = int(bool(self.progress.waiting or self.progress.victims))

    def _known(self, event: Event, name: str, who: int) -> None:
        """The rules find the request that earlier events named, as it is known to them, and keep
        account of it from here on."""
        if event.ev == "resume" and self.sc.lookup[who] == s.OVER:
            raise Suspicious("a resume of what was looked up before it ended", event.pos)
        if self.sc.named[who] & s.GONE:
            if event.ev != "admit":
                raise Suspicious("a request that had ended", event.pos)
            self.sc.named[who] &= ~s.GONE
        if self.sc.named[who]:
            request = self.ctx.requests.get(name, event.pos)
            alloc_pos = self.fold.st.alloc_pos
            request.seen = {
                slot: seen for slot, seen in request.seen.items() if alloc_pos[slot] <= seen.pos
            }
            if self.sc.lookup[who] >= 0:
                self._hand_over(request, who)
        self.sc.named[who] |= s.TOLD

    def _hand_over(self, request: Request, who: int) -> None:
        """The rules go on with a request whose last lookup the screen took in. What it saw of each
        block they are not told: a resume then needs hashes that are live."""
        sc, tally = self.sc, self.check.tally
        r = int(sc.lookup[who])
        request.lookup = self.rows.earlier(int(sc.k_pos[r]))
        limit = int(sc.k_limit[r])
        groups = list(self.fold.declared.groups)
        best, least = int(sc.k_best[r]), int(sc.k_least[r])
        # One that the rules were told of, of a request of this name that has ended, may be open.
        tally.close(request.name)
        tally.matched[request.name] = best, groups[limit] if limit >= 0 else None, least
        tally.begun[request.name] = int(sc.k_pos[r]), int(sc.k_asked[r])
        tally.total.asked += int(sc.k_asked[r])
        tally.total.matched += best
        if sc.k_at[r] != MISSING:
            request.resume = self.rows.earlier(int(sc.k_resume[r]))
            tally.resumed[request.name] = int(sc.k_at[r])
        drop(sc, who)

    def _declared(self, event: Event) -> None:
        fold, sc = self.fold, self.sc
        named = fold.declared.groups if event.ev == "group" else fold.declared.pools
        if event.ev != "limits" and named[str(event[event.ev])].pos != event.pos:
            raise Suspicious("declared again", event.pos)
        if event.ev == "group" and int(sc.h[s.MOVED]):
            raise Suspicious("declared late", event.pos)
        groups, pools = int(sc.h[s.GROUPS]), int(sc.h[s.POOLS])
        if not take_in(fold, sc, fold.bases, groups, pools):
            raise Suspicious("declarations", event.pos)
        for number, blocks, said in self.sizes if event.ev == "group" else ():
            if str(self.trace.names.name("group", number)) == str(event["group"]):
                if too_long(event.get("layout") or {}, blocks, said):
                    raise Suspicious("bytes of a transfer", event.pos)

    def _life(self, event: Event, who: int) -> None:
        """What becomes of a request."""
        sc, ev = self.sc, event.ev
        if ev in ("admit", "lookup"):
            sc.ended[who] = -1
        elif ev in ("abort", "finish"):
            sc.ended[who] = event.pos
        if ev == "lookup" or (ev == "resume" and sc.checked[who] < 0):
            sc.checked[who] = event.pos
        elif ev == "preempt":
            sc.checked[who] = -1
        self._put_off(event.req or "", who)
        sc.h[s.MOVED] = event.pos if ev in ("admit", "resume", "finish") else sc.h[s.MOVED]
        if ev in ("abort", "finish"):
            self.ctx.requests.by_name.pop(event.req or "", None)
            sc.named[who] = (sc.named[who] | s.GONE) & ~s.TOLD
            sc.lookup[who] = s.OVER
        elif ev == "lookup":
            sc.lookup[who] = -1

    def _put_off(self, name: str, who: int) -> None:
        pending = self.resumes.pending
        self.sc.due[who] = int(any(key[0] == name for key in pending))
        self.sc.h[s.DUE] = len(pending)
        self._due_since()
        self.numbers[name] = who
        if len(self.numbers) > 2 * STEPS_NOTED:
            waiting = {key[0] for key in pending}
            self.numbers = {n: i for n, i in self.numbers.items() if n in waiting}

    def _settle(self, row: int, pos: int) -> None:
        """A resume that was put off is judged before the event that shows what became of it."""
        batch = self.fold.batch
        waiting = [name for name, _ in self.resumes.pending]
        kind, step = BY_CODE[int(batch.ev[row])].name, int(batch.step[row])
        sent = step == MISSING or step in self.ctx.dispatched
        if not sent and not self.losses.unsent(step, pos):
            raise Suspicious("a step nobody dispatched", pos)
        if kind == "retire" or not sent:
            # Where its dispatch was lost, what it names is uncertain from here on.
            event = self.rows.event(batch, row)
        else:
            data: dict[str, Any] = {"ev": kind, "blocks": []}
            for key, number in (("req", batch.req[row]), ("group", batch.group[row])):
                data[key] = self.fold.names.name(key, int(number))
            if step != MISSING:
                data["step"] = step
            event = Event(pos, kind, data)
        self.ctx.meet(event)
        if kind == "retire":
            self.resumes.overdue(event)
        else:
            self.resumes.due(event)
        if self._found(pos):
            for name in waiting:
                self._ask(pos, self.numbers[name])
        self._recount()

    def _recount(self) -> None:
        self.sc.due[:] = 0
        for name, _ in self.resumes.pending:
            self.sc.due[self.numbers[name]] = 1
        self.sc.h[s.DUE] = len(self.resumes.pending)
        self._due_since()

    def _due_since(self) -> None:
        waiting = (resumed.event.pos for resumed in self.resumes.pending.values())
        self.sc.h[s.DUE_SINCE] = min(waiting, default=0)

    def _tables(self, event: Event, name: str, who: int) -> None:
        """The tables of a request, for a rule that goes through them."""
        request = self.ctx.requests.by_name.get(name)
        if request is None:
            return
        for number in range(self.fold.st.h[a.TABLES]):
            request.tables[number] = slots = self.fold.table(who, number)
            if len(set(self.fold.st.start[slots].tolist())) < len(slots):
                raise Suspicious("two blocks for the same tokens", event.pos)

    def _waiting(self, event: Event) -> None:
        """What has gone on since somebody last had to wait."""
        freed, moved = int(self.sc.h[s.FREED]), int(self.sc.h[s.MOVED])
        if freed > self.freed_seen:
            self.freed_seen = freed
            victims = self.progress.victims
            for name, events in victims.items():
                victims[name] = events[:1]
        if moved > self.maybe_stuck:
            self.maybe_stuck = -1
        needs, free = event.get("needs"), event.get("free")
        if event.ev == "refuse" and needs is not None and free is not None and needs > free:
            # What is on its way may bring somebody on.
            self.maybe_stuck = -1 if self.fold.st.h[a.MOVING] else event.pos

    # --- the end ---------------------------------------------------------------------------

    def _ended(self) -> None:
        st, sc = self.fold.st, self.sc
        settle_lookups(sc, self.check.tally, list(self.fold.declared.groups))
        if sc.h[s.UNSIGNALLED] and not (self.ctx.midway or self.ctx.lost):
            for wait in events_at(self.trace, never_signalled(self.trace)):
                self.progress.waits[str(wait["event"])] = wait
        if self.maybe_stuck > int(sc.h[s.MOVED]):
            raise Suspicious("everyone waits", self.maybe_stuck)
        requests = (sc.named & s.REQUEST) != 0
        over = bool((sc.ended[requests] >= 0).all())
        if requests.any() and over and not self.ctx.lost:
            if ((st.known == a.ALLOCATED) & (st.refs > 0) & (sc.reserved == 0)).any():
                raise Suspicious("a leak", 0)
            if held_by_others(sc, st):
                raise Suspicious("held under another name", 0)
        if st.h[a.MOVING]:
            begins = never_ending(self.trace, sc, st, over=over)
            self.unended.tell_of(e for e in begins if not self.ctx.lost_since(e.pos))
        self.progress.stuck = None
        # Every block was looked at: nothing is left for the rule that counts them.
        self.ctx.requests.by_name.clear()


def _bases_of(fold: ScreenedFold, domain: str, pools: dict[str, str]) -> Any:
    """The first slot of the pool that each name of a domain stands for; -1 where there is none."""
    names = (str(fold.names.name(domain, i)) for i in range(fold.names.count(domain)))
    found = (pools.get(name) for name in names)
    return np.array([-1 if pool is None else fold.bases[pool] for pool in found], np.int64)
