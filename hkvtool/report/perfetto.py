"""A trace for the Perfetto viewer (ui.perfetto.dev) and chrome://tracing.

A track a lane with what it did, slices for steps and transfers, counters for held, cached,
recovering and free blocks of each pool and for the two ratios, and an arrow from the check over
what changed to the use of each finding. The records are Chrome's trace events; how they are
written is the encoding's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from hkvtool.analyzers import check
from hkvtool.analyzers.context import Context
from hkvtool.analyzers.lifetimes import Lifetimes
from hkvtool.model.event import Event
from hkvtool.model.events import DECLARATIONS, FORMAT
from hkvtool.model.findings import Finding, Report
from hkvtool.model.text import event_line

LANES, STEPS, TRANSFERS, POOLS, FINDINGS = range(1, 6)
"""Processes of the viewer: groups of tracks."""

_TITLES = {
    LANES: "lanes", STEPS: "steps", TRANSFERS: "transfers", POOLS: "blocks and ratios",
    FINDINGS: "findings",
}  # fmt: skip
_STATES = ("held", "cached", "recovering")
_MOST_ARGS = 400
_TICK = 0.001
"""Microseconds that an event is drawn for; traces say when one happened, not how long."""

Record = dict[str, Any]


class Encoding(Protocol):
    """A file that records are written to, in their order."""

    def put(self, record: Record) -> None: ...

    def end(self, about: Record) -> None:
        """The last call: what is to be known of the whole."""


class Clock:
    """Microseconds of an event: its own time, or that of the last one that had some, and never
    back. Without any time a position is a microsecond."""

    def __init__(self) -> None:
        self.start: int | None = None
        self.now = 0.0
        self.last_pos = 0

    def at(self, event: Event) -> float:
        ts = event.get("ts")
        if isinstance(ts, int):
            self.start = ts if self.start is None else self.start
            self.now = max(self.now, (ts - self.start) / 1000)
        elif self.start is None:
            self.now = float(event.pos)
        self.last_pos = event.pos
        return self.now


class Timeline(Lifetimes):
    """Writes tracks and counters while a check goes on."""

    def __init__(self, ctx: Context, write: Callable[[Record], None]) -> None:
        super().__init__(ctx)
        self.write = write
        self.clock = Clock()
        self.times: dict[int, tuple[float, int]] = {}
        """By position of an event that a finding may name: when, and on which lane."""
        self.counts: dict[str, dict[str, int]] = {}
        self._lanes: dict[str, int] = {}
        self._ends: dict[int, float] = {}
        self._steps: dict[int, float] = {}
        self._transfers: dict[str, list[tuple[str, float]]] = {}
        self._pool_of: dict[int, str] = {}
        self._changed: set[str] = set()

    def before(self, event: Event) -> None:
        super().before(event)
        at = self.clock.at(event)
        if event.ev in DECLARATIONS:
            return
        lane = self._lane(event.actor)
        # A lane is sequential: what it did at one reading of the clock stands side by side.
        start = max(at, self._ends.get(lane, 0.0))
        self._ends[lane] = round(start + _TICK, 3)
        self.times[event.pos] = (start, lane)
        self.write({
            "ph": "X", "pid": LANES, "tid": lane, "ts": start, "dur": _TICK, "name": event.ev,
            "args": {"pos": event.pos, "event": event_line(event)[:_MOST_ARGS]},
        })  # fmt: skip
        self._step(event, at)
        self._transfer(event, at)

    def after(self, event: Event) -> None:
        super().after(event)
        for pool in self._changed:
            found = self.ctx.fold.declared.pools.get(pool)
            counts = self.counts[pool]
            free = (found.blocks - sum(counts.values())) if found else 0
            self.write({
                "ph": "C", "pid": POOLS, "tid": 0, "ts": self.clock.now, "name": f"{pool} blocks",
                "args": {**counts, "free": free},
            })  # fmt: skip
        self._changed = set()

    def _see(self, slot: int, event: Event) -> None:
        before = self._state.get(slot)
        super()._see(slot, event)
        now = self._state.get(slot)
        if now == before:
            return
        pool = self.ctx.fold.pool_of(slot).name
        counts = self.counts.setdefault(pool, dict.fromkeys(_STATES, 0))
        for state, by in ((before, -1), (now, 1)):
            if state is not None:
                counts[state[1]] += by
        self._changed.add(pool)

    def _lane(self, name: str) -> int:
        number = self._lanes.get(name)
        if number is None:
            number = self._lanes[name] = len(self._lanes) + 1
            self.write(_named("thread_name", LANES, number, name))
        return number

    def _step(self, event: Event, at: float) -> None:
        step = event.step
        if step is None:
            return
        if event.ev == "dispatch":
            self._steps[step] = at
            self.write(_span("b", STEPS, "step", f"step {step}", str(step), at, event))
        elif event.ev == "retire" and self._steps.pop(step, None) is not None:
            self.write(_span("e", STEPS, "step", f"step {step}", str(step), at, event))

    def _transfer(self, event: Event, at: float) -> None:
        if event.ev in ("store_begin", "load_begin"):
            kind, handle = event.ev.removesuffix("_begin"), str(event["handle"])
            opened = self._transfers.setdefault(handle, [])
            opened.append((f"{kind}:{handle}:{event.pos}", at))
            self.write(_span("b", TRANSFERS, kind, f"{kind} {handle}", opened[-1][0], at, event))
        elif event.ev in ("store_end", "load_end"):
            kind, handle = event.ev.removesuffix("_end"), str(event["handle"])
            for ident, _ in self._transfers.pop(handle, ()):
                self.write(_span("e", TRANSFERS, kind, f"{kind} {handle}", ident, at, event))


def export_perfetto(events: Iterable[Event], out: Encoding, *, most: int) -> tuple[Report, int]:
    """Write a trace; returns its check, and how many records were left out beyond `most`.

    Findings and their arrows are always written.
    """
    written = left_out = 0

    def write(record: Record) -> None:
        nonlocal written, left_out
        if written >= most and record["ph"] != "M":
            left_out += 1
        else:
            written += 1
            out.put(record)

    for pid, title in _TITLES.items():
        write(_named("process_name", pid, 0, title))
        write({
            "ph": "M", "pid": pid, "tid": 0, "name": "process_sort_index",
            "args": {"sort_index": pid},
        })  # fmt: skip
    seen: list[Timeline] = []

    def observer(ctx: Context) -> Timeline:
        seen.append(Timeline(ctx, write))
        return seen[0]

    report = check(events, observers=[observer])
    timeline = seen[0]
    for record in (*_ratios(report, timeline), *_findings(report, timeline)):
        out.put(record)
    out.end({"format": FORMAT, "events": report.trace.get("events"), "left_out": left_out})
    return report, left_out


def _named(what: str, pid: int, tid: int, name: str) -> Record:
    return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": {"name": name}}


def _span(
    phase: str, pid: int, category: str, name: str, ident: str, at: float, event: Event
) -> Record:
    """One end of a slice that may overlap others of its track."""
    return {
        "ph": phase, "pid": pid, "tid": 0, "cat": category, "name": name, "id": ident, "ts": at,
        "args": {"pos": event.pos, "event": event_line(event)[:_MOST_ARGS]},
    }  # fmt: skip


def _ratios(report: Report, timeline: Timeline) -> Iterator[Record]:
    """Match and resumable ratio of the lookups so far, in per cent."""
    rows = report.ratios.lookups
    asked = matched = resumable = 0
    for at in range(0, len(rows), 4):
        pos, more, hit, good = rows[at : at + 4]
        asked, matched, resumable = asked + more, matched + hit, resumable + good
        when = timeline.times.get(pos)
        if when is not None and asked:
            yield {
                "ph": "C", "pid": POOLS, "tid": 0, "ts": when[0], "name": "ratios, %",
                "args": {
                    "match": round(100 * matched / asked, 2),
                    "resumable": round(100 * resumable / asked, 2),
                },
            }  # fmt: skip


def _findings(report: Report, timeline: Timeline) -> Iterator[Record]:
    for finding in report.findings:
        moments = [pos for pos in _moments(finding) if pos in timeline.times]
        if not moments:
            continue
        start, end = timeline.times[moments[0]][0], timeline.times[moments[-1]][0]
        name = f"{finding.id} {finding.code}"
        args = {"message": finding.message, "fix": finding.fix, "cause": finding.cause}
        span = {"pid": FINDINGS, "tid": 0, "cat": "finding", "name": name, "id": finding.id}
        yield {"ph": "b", "ts": start, "args": args, **span}
        yield {"ph": "e", "ts": end + _TICK, **span}
        if finding.cause or len(moments) < 2:
            continue
        for phase, pos in zip(_arrow(len(moments)), moments, strict=True):
            at, lane = timeline.times[pos]
            record = {
                "ph": phase, "pid": LANES, "tid": lane, "ts": at, "cat": "finding", "name": name,
                "id": finding.id,
            }  # fmt: skip
            yield record | ({"bp": "e"} if phase == "f" else {})


def _moments(finding: Finding) -> list[int]:
    """Check, what changed between, use: in the order of the trace."""
    named = {*finding.events, finding.check, finding.use} - {None}
    return sorted(pos for pos in named if pos)


def _arrow(count: int) -> list[str]:
    return ["s", *["t"] * (count - 2), "f"]
