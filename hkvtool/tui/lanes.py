"""The events of a finding on their lanes, with the edges that order them and the one that lacks.

A small happens-before picture: time runs down, each lane is a column; what no edge orders may
have happened the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.model.text import event_line, shown
from hkvtool.tui.lines import Line, Span, fitted, line

MOST_ROWS = 40
MOST_LANES = 6
_COLUMN = 5


def telling(finding: Finding, use: int | None, events: Sequence[Event]) -> list[Event]:
    """Of the events in a finding's stretch those that say something about it: what it names, and
    what concerns its request, its step or its blocks."""
    named = {*finding.events, finding.check, use}
    blocks = set(finding.blocks)
    places = [p for p in named if p is not None]
    first, last = min(places, default=0), max(places, default=0)
    handles = {
        str(e["handle"]) for e in events if "handle" in e and e.pos in named and e.problem is None
    }

    def concerns(event: Event) -> bool:
        if event.pos in named:
            return True
        if event.problem is not None:
            return False
        if "handle" in event and str(event["handle"]) in handles:
            return True
        if finding.step is not None and event.step == finding.step:
            return event.ev in ("dispatch", "retire") or _meets(event, blocks)
        if event.pos < first or event.pos > last:
            # Around it only what the request itself did leads to it, or follows.
            own = finding.request is not None and event.req == finding.request
            return own and event.ev in ("lookup", "resume", "preempt", "abort", "finish")
        if event.ev in ("signal", "wait"):
            return True
        return _meets(event, blocks) and event.ev not in ("lookup", "touch")

    return [e for e in events if concerns(e)]


def _meets(event: Event, blocks: set[int]) -> bool:
    for key in ("blocks", "src", "dst", "peer"):
        listed = event.get(key)
        if isinstance(listed, list) and not blocks.isdisjoint(
            b for b in listed if isinstance(b, int)
        ):
            return True
    return False


def lane_lines(
    finding: Finding, use: int | None, events: Sequence[Event], width: int, now: int
) -> Iterator[Line]:
    """The picture: a column a lane, a row an event, edges beside it."""
    rows = telling(finding, use, events)
    if len(rows) > MOST_ROWS:
        named = {*finding.events, finding.check, use}
        keep = [e for e in rows if e.pos in named]
        spare = [e for e in rows if e.pos not in named][: MOST_ROWS - len(keep)]
        rows = sorted([*keep, *spare], key=lambda e: e.pos)
    if not rows:
        yield line(("its events are not at hand", "dim"))
        return
    lanes = list(dict.fromkeys(lane_of(e) for e in rows))[:MOST_LANES]
    yield line((" " * 8, ""), *_heads(lanes))
    one, other = ("1", "2") if finding.edge else ("C", "U")
    ends = {use: other, finding.check: one}
    waits = {str(e["event"]) for e in rows if e.ev == "wait" and "event" in e}
    both = sorted(p for p in (finding.check, use) if p is not None)
    lane_at = {e.pos: lane_of(e) for e in rows}
    for event in rows:
        if finding.edge and len(both) == 2 and event.pos == both[1]:
            yield line((" " * 8, ""), *_missing([lane_at.get(p, "") for p in both], lanes))
        yield _row(event, lanes, ends, waits, finding, width, now)


def lane_of(event: Event) -> str:
    """The lane an event is drawn on: a transfer has one of its own."""
    if event.ev in ("store_begin", "load_begin", "store_end", "load_end") and "handle" in event:
        return f"xfer {shown(event['handle'])}"
    return shown(event.actor)


def _heads(lanes: Sequence[str]) -> list[Span]:
    return [(f"{fitted(lane, _COLUMN * 2 - 1):<{_COLUMN * 2}}", "label") for lane in lanes]


def _row(
    event: Event, lanes: Sequence[str], ends: dict[int | None, str], waits: set[str],
    finding: Finding, width: int, now: int,
) -> Line:  # fmt: skip
    lane = lane_of(event)
    spans: list[Span] = [(f"{event.pos:>6}  ", "cursor" if event.pos == now else "label")]
    mark = ends.get(event.pos, "●" if event.pos in finding.events else "○")
    role = "bad" if event.pos in ends else "warn" if event.pos in finding.events else "dim"
    for name in lanes:
        if name == lane:
            arrow = _arrow(event, waits)
            spans.append((mark, role))
            spans.append((f"{arrow:<{_COLUMN * 2 - 1}}", "info"))
        else:
            spans.append((f"{'│':<{_COLUMN * 2}}", "edge"))
    used = sum(len(t) for t, _ in spans)
    told = event_line(event).replace(f"@{shown(event.actor)} ", " ", 1)
    text = fitted(told, max(10, width - used))
    spans.append((text, "" if event.pos in finding.events or event.pos in ends else "dim"))
    return line(*spans, key=("pos", event.pos))


def _arrow(event: Event, waits: set[str]) -> str:
    """The edge that begins or ends at an event."""
    if event.ev == "signal":
        name = str(event.get("event"))
        return "─▶" if name in waits else "─▷ ?"
    if event.ev == "wait":
        return "◀─"
    if event.ev == "dispatch":
        return "─▶ step"
    if event.ev == "retire":
        return "◀─ step"
    if event.ev.endswith("_begin"):
        return "═▶"
    if event.ev.endswith("_end"):
        return "◀═"
    return ""


def _missing(pair: Sequence[str], lanes: Sequence[str]) -> list[Span]:
    """The edge that lacks, drawn from the lane of the first to that of the second."""
    places = [lanes.index(lane) * _COLUMN * 2 if lane in lanes else 0 for lane in pair]
    start, end = min(places), max(places)
    gap = "".join("│".ljust(_COLUMN * 2) for _ in lanes)
    cross = "╳" + "╌" * max(0, end - start - 1) + ("╳" if end > start else "")
    told = " no edge orders these two"
    rest = gap[start + len(cross) :]
    return [(gap[:start], "edge"), (cross, "bad"), (rest, "edge"), (told, "bad")]
