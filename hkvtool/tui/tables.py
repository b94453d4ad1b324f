"""Requests, transfers, ratios and events as lines.

Of a long trace what lies around the cursor is told: a table of a million rows tells nobody
anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hkvtool.model.event import Event
from hkvtool.model.findings import Finding, Report
from hkvtool.model.rules import RULES
from hkvtool.model.text import compact, event_line, shown
from hkvtool.tui.lines import Line, Span, fitted, heading, line, named, wrapped

AROUND = 20_000
"""Events on each side of the cursor that requests and transfers are told from."""

_FIGURES = 68
"""Columns of a request's line that are not its name."""

REQUEST_KINDS = frozenset(
    {"admit", "lookup", "resume", "refuse", "preempt", "abort", "finish", "dispatch"}
)
TRANSFER_KINDS = frozenset({"store_begin", "load_begin", "store_end", "load_end"})


@dataclass
class RequestRow:
    """One request, from the events around the cursor."""

    req: str
    first: int
    asked: int = 0
    matched: int = 0
    resumed: int | None = None
    resumable: int | None = None
    refused: int = 0
    preempted: int = 0
    steps: int = 0
    status: str = "waiting"
    check: int | None = None
    findings: list[Finding] = field(default_factory=list)


def request_rows(events: Iterable[Event], now: int, report: Report | None) -> list[RequestRow]:
    """Requests as they stand at a position."""
    rows: dict[str, RequestRow] = {}
    checks: dict[int, RequestRow] = {}
    for event in events:
        if event.problem is not None:
            continue
        if event.ev == "dispatch":
            for name in event.get("reqs") or ():
                row = rows.get(str(name))
                if row is not None and event.pos <= now:
                    row.steps += 1
                    row.status = "running"
            continue
        if event.req is None:
            continue
        row = rows.setdefault(event.req, RequestRow(event.req, event.pos))
        if event.ev == "lookup":
            hits = [int(v) for v in event["hit"].values()]
            row.matched = max(hits, default=0)
            row.asked = max(int(event.get("tokens") or 0), row.matched)
            row.check = event.pos
            checks[event.pos] = row
        elif event.ev == "resume":
            row.resumed, row.check = int(event["at"]), event.pos
        if event.pos > now:
            continue
        if event.ev in ("refuse", "preempt"):
            row.refused += event.ev == "refuse"
            row.preempted += event.ev == "preempt"
            row.status = "waiting"
        elif event.ev in ("finish", "abort"):
            row.status = "finished" if event.ev == "finish" else "aborted"
        elif event.ev in ("admit", "resume"):
            row.status = "running"
    if report is not None:
        table = report.ratios.lookups
        for at in range(0, len(table), 4):
            if table[at] in checks:
                checks[table[at]].resumable = table[at + 3]
        for f in report.findings:
            if f.request in rows:
                rows[f.request].findings.append(f)
    return sorted(rows.values(), key=lambda r: r.first)


def request_lines(rows: Sequence[RequestRow], now: int, width: int) -> Iterator[Line]:
    """A line a request; what it lost stands out."""
    room = max(12, width - _FIGURES)
    name = min(room, max([7, *(len(shown(r.req)) for r in rows)]))
    head = f"  {'request':<{name}} {'status':<9} {'asked':>8} {'matched':>8} {'resum.':>8}"
    yield line((f"{head} {'at':>8} {'steps':>6}  findings", "label"))
    for r in rows:
        lost = r.resumable is not None and r.resumable < r.matched
        role = "dim" if r.first > now else "bad" if any(_error(f) for f in r.findings) else ""
        codes = " ".join(dict.fromkeys(f.code[3:] for f in r.findings))
        waits = f" waited {r.refused}×" if r.refused else ""
        waits += f" preempted {r.preempted}×" if r.preempted else ""
        yield line(
            ("▸ " if r.status == "running" else "  ", "key"),
            (f"{named(shown(r.req), name):<{name}} ", role),
            (f"{'later' if r.first > now else r.status:<9} ", "dim"),
            (f"{_n(r.asked or None):>8} {_n(r.matched if r.asked else None):>8} ", ""),
            (f"{_n(r.resumable):>8} ", "bad" if lost else "good"),
            (f"{_n(r.resumed):>8} {r.steps:>6}  ", ""),
            (codes, "bad"), (waits, "warn"),
            key=("request", r.req),
        )  # fmt: skip
    if not rows:
        text = f"no request within {AROUND:,} events of the cursor"
        yield line((fitted(text, width), "dim"))


def why_lines(row: RequestRow | None, width: int) -> Iterator[Line]:
    """Why a request got what it got."""
    if row is None:
        return
    yield heading(f"why · {shown(row.req)}")
    if row.check is None:
        yield line(("it looked nothing up", "dim"))
    elif row.resumable is not None and row.resumable < row.matched:
        lost = row.matched - row.resumable
        yield line((f"{lost:,} of {row.matched:,} matched tokens could not be resumed", "bad"),
                   key=("check", row.check))  # fmt: skip
    elif row.matched:
        yield line((f"all {row.matched:,} matched tokens could be resumed", "good"),
                   key=("check", row.check))  # fmt: skip
    else:
        yield line(("nothing matched", "dim"), key=("check", row.check))
    for f in row.findings:
        if f.cause:
            continue
        yield line((f"{f.id} {f.code} {RULES[f.code].name}", "bad" if _error(f) else "warn"),
                   key=("finding", f.id))  # fmt: skip
        yield from wrapped(shown(f.message), width, indent=2)


def transfer_lines(events: Iterable[Event], now: int, width: int) -> Iterator[Line]:
    """Transfers, those under way first told apart by their mark."""
    begins: dict[str, Event] = {}
    ends: dict[int, Event] = {}
    order: list[Event] = []
    for event in events:
        if event.problem is not None:
            continue
        handle = str(event["handle"])
        if event.ev.endswith("_begin"):
            begins[handle] = event
            order.append(event)
        elif handle in begins:
            ends[begins[handle].pos] = event
    yield line(
        ("  dir   begin     end  state        group          request        blocks", "label")
    )
    for begin in order:
        yield _transfer(begin, ends.get(begin.pos), now, width)
    if not order:
        text = f"no load or store within {AROUND:,} events of the cursor"
        yield line((fitted(text, width), "dim"))


def _transfer(begin: Event, end: Event | None, now: int, width: int) -> Line:
    store = begin.ev == "store_begin"
    state, role = "done", "good"
    if begin.pos > now:
        state, role = "later", "dim"
    elif end is None:
        state, role = "never ends", "bad"
    elif end.pos > now:
        state, role = "under way", "warn"
    elif end.get("ok") is False or end.get("failed"):
        state, role = "failed", "bad"
    place = shown(begin.get("to" if store else "from") or "?")
    text = f"{compact(begin['blocks'])} {'→' if store else '←'} {place}"
    if "peer" in begin:
        text += f":{compact(begin['peer'])}"
    if "bytes" in begin:
        text += f"  {begin['bytes']:,} B" if isinstance(begin["bytes"], int) else ""
    return line(
        ("▸ " if state == "under way" else "  ", "key"),
        (f"{'store' if store else 'load':<6}", "hue:1" if store else "hue:0"),
        (f"{begin.pos:>5} {'' if end is None else end.pos:>7}  ", "label"),
        (f"{state:<12} ", role),
        (f"{named(shown(begin['group']), 14):<14} {named(shown(begin.req or ''), 14):<14} ", ""),
        (fitted(text, max(8, width - 66)), "dim"),
        key=("pos", begin.pos),
    )  # fmt: skip


def ratio_lines(report: Report | None, width: int) -> Iterator[Line]:
    """The two ratios, and where the difference went."""
    if report is None:
        yield from wrapped(
            "The ratios come with the check; r runs it over the whole trace.", width, "dim"
        )
        return
    ratios = report.ratios
    if not ratios.asked:
        yield line(("no lookup asked for tokens", "dim"))
        return
    room = max(10, min(60, width - 34))
    for name, got, role in (
        ("asked", ratios.asked, "dim"), ("matched", ratios.matched, "info"),
        ("resumable", ratios.resumable, "good"),
    ):  # fmt: skip
        full = round(room * got / ratios.asked)
        yield line(
            (f"{name:<10}", "label"), ("█" * full, role), ("░" * (room - full), "edge"),
            (f" {got:>12,} {100 * got / ratios.asked:5.1f} %", "bold"),
        )  # fmt: skip
    yield line("")
    yield heading("lost between matched and resumable")
    if not ratios.lost_by:
        yield line(("nothing", "good"))
    for loss in ratios.lost_by:
        full = max(1, round(room * loss.tokens / ratios.asked))
        where = f" group {shown(loss.group)}" if loss.group else ""
        yield line(
            (f"{loss.tokens:>12,} ", "bold"), ("█" * full, "bad"),
            f" {loss.code} {RULES[loss.code].name}", (where, "dim"),
            key=("loss", loss.code, loss.group),
        )  # fmt: skip


def event_lines(
    events: Iterable[Event],
    now: int,
    width: int,
    named: Mapping[int, Finding],
    first_ts: int | None,
) -> Iterator[Line]:
    """Events around the cursor."""
    for event in events:
        spans: list[Span] = [
            ("▶" if event.pos == now else " ", "key"),
            (f"{event.pos:>8} ", "cursor" if event.pos == now else "label"),
        ]
        ts = event.get("ts")
        if first_ts is not None:
            clock = f"{(ts - first_ts) / 1e6:>11.3f} " if isinstance(ts, int) else " " * 12
            spans.append((clock, "dim"))
        f = named.get(event.pos)
        spans.append((f"{f.id:<4} " if f else "     ", "bad"))
        used = sum(len(t) for t, _ in spans)
        role = "dim" if event.pos > now else "bad" if event.problem else ""
        spans.append((fitted(event_line(event), max(10, width - used)), role))
        yield line(*spans, key=("pos", event.pos))


def _n(value: Any) -> str:
    return "" if value is None else f"{value:,}"


def _error(finding: Finding) -> bool:
    return str(finding.severity) == "error"
