"""The rules asked of some events of a long trace, with all that matters to them: what they say of
the whole trace, where they have nothing to say of the other events.

The compiled fold goes through all of it, so that state is what it is. What the rules keep beside
it (who holds which blocks, who touches which bytes, what is ordered how) they are told as far as it
bears on the events they are asked of; `narrowed_rows` says of which events that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from hkvtool.analyzers import narrowed_rows as n
from hkvtool.analyzers.check import DESCRIBES, FORGET_EVERY
from hkvtool.analyzers.kinds import table
from hkvtool.analyzers.narrowed_check import AT_END, NarrowedCheck, NarrowedContext
from hkvtool.analyzers.narrowed_fold import NarrowedFold
from hkvtool.analyzers.ratios import costs_tokens
from hkvtool.analyzers.recount import Row
from hkvtool.analyzers.screen_fold import Suspicious
from hkvtool.analyzers.shares import Shares, family_of
from hkvtool.model.event import Event
from hkvtool.model.events import EVENTS
from hkvtool.model.evidence import evidence_of
from hkvtool.model.findings import Finding, Ratios, Report, ranked
from hkvtool.model.rows import BYPASS, MISSING
from hkvtool.state.batch import Batch
from hkvtool.state.codes import DISPATCH, LAUNCH, RETIRE
from hkvtool.state.reading import request_number

_DESCRIBED = table(EVENTS[kind].code for kind in DESCRIBES)

_BOUNDS = table([DISPATCH, RETIRE])

SIZE = 1 << 14


@dataclass
class Doubts:
    """What a screen leaves to the rules, and what it has told already."""

    asked: Any
    """Positions of the events that the rules are asked of, in order."""
    concerned: Any
    """By number, whether a request is one of theirs."""
    since: Any
    """By slot, by two more than its position, where what was done to it begins to matter; 0 where
    it does not."""
    written: Any
    """By slot, whether one of the events writes it."""
    floor: int
    """The position from which the order of lanes matters; -1 where it does not."""
    buffers: frozenset[str]
    printed: bool
    """Whether bytes are among what they are asked of."""
    homes: Any
    """By the number of a group's name, the first slot of its pool."""
    bases: Any
    """By the number of a pool's name, its first slot."""
    found_at: list[int]
    """Where each finding of the screen's report was found."""
    losses: dict[tuple[str, str | None], int]
    unended: list[str]
    """Transfers that the rule tells of at the end of the trace."""
    told: Any
    """Positions of events that the rules are told of whatever they are, in order."""


def narrowed(
    trace: Any, doubts: Doubts, seen: Report, shares: Shares | None = None
) -> Report:  # fmt: skip
    """The report of a whole trace: what was `seen` by the screen, and what the rules say of what
    it left to them. Raises Suspicious where they must look at all of it. What takes how long is put
    into `shares`."""
    while True:
        narrowing = _Narrowing(trace, doubts)
        if shares:
            narrowing.measure(shares)
        narrowing.run()
        others = narrowing.others()
        if not others:
            return narrowing.joined(seen)
        # What a lookup of theirs came to hangs on what was found.
        doubts.concerned[others] = True


class _Narrowing:
    """One pass over one trace."""

    def __init__(self, trace: Any, doubts: Doubts) -> None:
        self.trace, self.doubts = trace, doubts
        self.fold = NarrowedFold(trace)
        self.ctx = NarrowedContext(evidence_of(trace.control), self.fold, doubts)
        self.check = NarrowedCheck(self.ctx)
        self.slice = n.Slice(trace, doubts)
        self.control: dict[int, Event] = {event.pos: event for event in trace.control}
        self.done = 0
        self.row = 0
        """Rows before it are noted: which steps were sent, and what evidence holds."""
        self.steps: list[tuple[int, int, int, int]] = []
        self.waited: Callable[[Iterator[Any]], Iterator[Any]] = iter

    def measure(self, shares: Shares) -> None:
        """Have it said what takes how long; the rules' share is that of each family."""
        self.check.wrap = lambda look: shares.timed(f"second pass: {family_of(look)}", look)
        shares.measure(self, {"run": "second pass: the rest"})
        shares.measure(self.slice, {"what": "second pass: what bears on the doubts"})
        shares.measure(self.ctx, {"meet": "second pass: order", "follow": "second pass: state"})
        shares.measure(self.fold, {"to": "second pass: state"})
        self.waited = partial(shares.waited, "second pass: waiting for what is read")

    def run(self) -> None:
        """Go through all of it."""
        last = self.slice.last()
        with closing(self.slice.batches(SIZE)) as batches:
            for batch, chunk in self.waited(batches):
                self._batch(batch, chunk)
                self.done += batch.n
                waits = self.check.waiting or self.doubts.unended
                if batch.pos[-1] >= last and not waits:
                    # Nothing that follows bears on what was asked.
                    break
        self.check.finish()

    def others(self) -> list[int]:
        """Requests that findings name, of which the rules were not told all."""
        named = {f.request for f in self.ctx.findings if costs_tokens(f)} - {None}
        numbers = (request_number(self.trace.names, str(name)) for name in named)
        return [n for n in numbers if n >= 0 and not self.doubts.concerned[n]]

    # --- rows ------------------------------------------------------------------------------

    def _batch(self, batch: Batch, chunk: Any) -> None:
        what = self.slice.what(batch, chunk, capturing=bool(self.ctx.capturing))
        self.fold.begin(batch)
        self.row = 0
        self.steps = list(reversed(list(_steps(batch))))
        over = -(self.done + 1) % FORGET_EVERY
        for row in np.flatnonzero(what).tolist():
            while over < row:
                self._forget(batch, over)
                over += FORGET_EVERY
            self._one(batch, chunk, row, int(what[row]))
        while over < batch.n:
            self._forget(batch, over)
            over += FORGET_EVERY
        self._note(batch, batch.n)
        self.fold.to(batch.n)

    def _one(self, batch: Batch, chunk: Any, row: int, what: int) -> None:
        pos = int(batch.pos[row])
        self.ctx.window = 0 <= self.doubts.floor <= pos
        if what & (n.ASK | n.KEEP):
            self._note(batch, row)
            self.fold.to(row)
            event = self.control.get(pos) or n.event(self.trace, batch, chunk, row)
            if what & n.ASK:
                self.check.event(event)
            else:
                self.check.passed(event)
            return
        if what == n.ORDER:
            self.ctx.order.feed(n.stub(self.trace, batch, chunk, row))
            return
        event = n.event(self.trace, batch, chunk, row)
        if what & n.ORDER:
            self.ctx.order.feed(event)
        if what & n.NOTE:
            self._note(batch, row)
            self.check.note(event)
        if what & n.BOOK:
            self.check.booked(event)

    def _note(self, batch: Batch, end: int) -> None:
        """Take a note of steps, and of what evidence holds, up to a row."""
        ctx, integrity = self.ctx, self.check.integrity
        while self.steps and self.steps[-1][0] < end:
            _, kind, step, pos = self.steps.pop()
            if kind == DISPATCH:
                ctx.dispatched[step] = integrity.dispatched[step] = pos
            elif kind == RETIRE:
                ctx.retired[step] = pos
                integrity.dispatched.pop(step, None)
            else:
                ctx.launched[step] = pos
        if self.check.coming is not None and self.row < end:
            told = ~_DESCRIBED[batch.ev[self.row : end]]
            if not self.check.coming:
                # Behind the end of a recording a step that was under way may still be told of.
                stepless = batch.step[self.row : end] == MISSING
                told &= stepless | (batch.ev[self.row : end] == DISPATCH)
            if told.any():
                self.check.go_on()
        self.row = max(self.row, end)

    def _forget(self, batch: Batch, row: int) -> None:
        """Let go of what is over, where a check of the whole trace does."""
        self._note(batch, row + 1)
        self.ctx.here = int(batch.pos[row])
        self.check.forget()

    # --- the report ------------------------------------------------------------------------

    def joined(self, seen: Report) -> Report:
        """What the screen has seen, and what was found besides."""
        told = list(zip(self.doubts.found_at, seen.findings, strict=True))
        told += zip(self.ctx.found_at, self.ctx.findings, strict=True)
        told.sort(key=lambda one: one[0])
        for finding in self.ctx.findings:
            plain_numbers(finding)
        seen.findings = [finding for _, finding in told]
        _number(self.ctx.findings, seen.findings)
        seen.ratios = recounted(seen.ratios, self.doubts.losses, self.check.recount.rows)
        return seen


def _steps(batch: Batch) -> Iterator[tuple[int, int, int, int]]:
    """Steps that are sent, launched and done: row, kind, number and position."""
    sent = _BOUNDS[batch.ev]
    sent |= (batch.ev == LAUNCH) & (batch.step != MISSING) & (batch.flags & BYPASS == 0)
    rows = np.flatnonzero(sent)
    columns = (rows, batch.ev[rows], batch.step[rows], batch.pos[rows])
    return zip(*(column.tolist() for column in columns), strict=True)


def plain_numbers(finding: Finding) -> None:
    """Turn what the compiled fold counts into Python's integers."""
    for one in fields(finding):
        setattr(finding, one.name, _plain(getattr(finding, one.name)))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    return value


def _number(narrowed: list[Finding], found: list[Finding]) -> None:
    """Number findings in the order in which they were found; causes are those of `narrowed`, which
    have the numbers that they were given when they were found."""
    old = {finding.id: finding for finding in narrowed}
    caused = [(f, old.get(f.cause or ""), [old[c] for c in f.caused]) for f in narrowed]
    for number, finding in enumerate(found, 1):
        finding.id = f"F{number}"
    for finding, cause, followers in caused:
        finding.cause = None if cause is None else cause.id
        finding.caused = [one.id for one in followers]


def recounted(ratios: Ratios, losses: dict[tuple[str, str | None], int], rows: list[Row]) -> Ratios:
    """Ratios with some lookups as the rules settle them."""
    table = np.frombuffer(ratios.lookups, np.int64).reshape(-1, 4).copy()
    losses, new = dict(losses), []
    for row in rows:
        at = int(np.searchsorted(table[:, 0], row.pos))
        if at < len(table) and table[at, 0] == row.pos:
            _, asked, best, good = table[at].tolist()
            ratios.asked -= asked
            ratios.matched -= best
            ratios.resumable -= good
            if row.limiting is not None and good < best:
                losses["HKV308", row.limiting] -= best - good
            table[at] = row.pos, row.asked, row.matched, row.resumable
        else:
            new.append((row.pos, row.asked, row.matched, row.resumable))
        ratios.asked += row.asked
        ratios.matched += row.matched
        ratios.resumable += row.resumable
        for key, tokens in row.lost.items():
            losses[key] = losses.get(key, 0) + tokens
    if new:
        table = np.concatenate([table, np.array(new, np.int64)])
        table = table[np.argsort(table[:, 0], kind="stable")]
    del ratios.lookups[:]
    ratios.lookups.frombytes(table.tobytes())
    ratios.lost_by = ranked({key: tokens for key, tokens in losses.items() if tokens})
    return ratios


__all__ = ["AT_END", "Doubts", "Suspicious", "narrowed", "plain_numbers"]
