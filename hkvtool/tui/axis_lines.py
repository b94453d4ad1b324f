"""The time axis: what happens where in the trace, and where the cursor is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hkvtool.model.findings import Finding, Report
from hkvtool.store.timeline import Timeline
from hkvtool.tui.lines import Line, Span, line

LABEL = 10
"""Columns of the labels."""

BARS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Axis:
    """What the axis is drawn from; `timeline` is None until it has been counted."""

    first: int
    last: int
    timeline: Timeline | None = None
    report: Report | None = None
    findings: Sequence[Finding] = ()
    first_ts: int | None = None

    def column(self, pos: int, room: int) -> int:
        """The column of a position."""
        count = max(1, self.last - self.first + 1)
        return max(0, min(room - 1, (pos - self.first) * room // count))

    def position(self, column: int, room: int) -> int:
        """The last position that a column shows."""
        count = max(1, self.last - self.first + 1)
        found = self.first + ((column + 1) * count - 1) // max(1, room)
        return max(self.first, min(self.last, found))


def axis_lines(axis: Axis, pos: int, width: int, height: int, wanted: int) -> Iterator[Line]:
    """The axis in `height` lines; `wanted` is where the cursor is on its way to."""
    room = max(8, width - LABEL)
    rows: list[Line | None] = [_ruler(axis, pos, wanted, room), _marks(axis, room)]
    if axis.timeline is not None:
        rows += [
            _spark("steps", axis, axis.timeline.of("dispatch"), room, pos, "hue:0"),
            _ratio("match", axis, 2, room, pos, "dim"),
            _ratio("resumable", axis, 3, room, pos, "good"),
            _spark("transfers", axis, axis.timeline.in_flight(), room, pos, "hue:5", most=True),
        ]
    there = [row for row in rows if row is not None]
    yield from there[: max(1, height)]


def _ruler(axis: Axis, pos: int, wanted: int, room: int) -> Line:
    cells = ["─"] * room
    for share in range(1, 10):
        cells[room * share // 10] = "┬"
    here, there = axis.column(pos, room), axis.column(wanted, room)
    spans: list[Span] = [(f"{'time':<{LABEL}}", "label")]
    for column, char in enumerate(cells):
        if column == here:
            spans.append(("▼", "key"))
        elif column == there:
            spans.append(("▽", "warn"))
        else:
            spans.append((char, "edge"))
    return line(*_joined(spans))


def _marks(axis: Axis, room: int) -> Line:
    """Findings, and gaps where events were lost."""
    cells = [("·", "edge")] * room
    if axis.timeline is not None:
        for column in np.flatnonzero(_resampled(axis, axis.timeline.of("dropped"), room)):
            cells[column] = ("▒", "warn")
    for f in sorted(axis.findings, key=lambda f: f.severity.rank):
        at = f.use or f.check or (f.events[-1] if f.events else None)
        if at is not None:
            cells[axis.column(at, room)] = (
                ("✗", "bad") if str(f.severity) == "error" else ("!", "warn")
            )
    return line((f"{'findings':<{LABEL}}", "label"), *_joined(cells))


def _spark(
    label: str, axis: Axis, values: Any, room: int, pos: int, role: str, most: bool = False
) -> Line | None:
    found = _resampled(axis, values, room, most)
    top = found.max(initial=0)
    if top <= 0:
        return None
    level = np.ceil(found * (len(BARS) - 1) / top).astype(int)
    return _bars(label, level, axis.column(pos, room), role)


def _ratio(label: str, axis: Axis, field: int, room: int, pos: int, role: str) -> Line | None:
    """A ratio by column, of what was asked for in each; a dot where that is none of it, a cross
    where something matched and nothing could be resumed; nothing where nothing was asked for."""
    if axis.report is None or not len(axis.report.ratios.lookups):
        return None
    table = np.frombuffer(axis.report.ratios.lookups, np.int64).reshape(-1, 4)
    count = max(1, axis.last - axis.first + 1)
    column = np.clip((table[:, 0] - axis.first) * room // count, 0, room - 1)
    asked = np.bincount(column, table[:, 1], room)
    matched, got = (np.bincount(column, table[:, place], room) for place in (2, field))
    level = np.ceil(got * (len(BARS) - 1) / np.maximum(asked, 1)).astype(int)
    level = np.clip(level, 0, len(BARS) - 1)
    cells: list[Span] = [(BARS[n], role) for n in level]
    for place in np.flatnonzero(got < matched):
        cells[place] = (BARS[level[place]] if got[place] else "✗", "bad")
    for place in np.flatnonzero((asked > 0) & (matched == 0)):
        cells[place] = ("·", "edge")
    here = axis.column(pos, room)
    cells[here] = (cells[here][0] if asked[here] else "│", "key")
    return line((f"{label:<{LABEL}}", "label"), *_joined(cells))


def _bars(label: str, level: Any, here: int, role: str) -> Line:
    text = "".join(BARS[n] for n in level)
    return line(
        (f"{label:<{LABEL}}", "label"), (text[:here], role),
        (text[here] if text[here] != " " else "│", "key"), (text[here + 1 :], role),
    )  # fmt: skip


def _resampled(axis: Axis, values: Any, room: int, most: bool = False) -> Any:
    """Values by stretch as values by column: their sums, or the most of them."""
    assert axis.timeline is not None
    count = max(1, axis.last - axis.first + 1)
    starts = axis.first + np.arange(room + 1) * count // room
    low = np.searchsorted(axis.timeline.edges, starts[:-1], side="right") - 1
    high = np.searchsorted(axis.timeline.edges, starts[1:], side="left")
    if len(values) <= room:
        return values[np.clip(low, 0, len(values) - 1)]
    out = np.zeros(room, np.int64)
    for column in range(room):
        part = values[max(0, low[column]) : max(low[column] + 1, high[column])]
        out[column] = part.max(initial=0) if most else part.sum()
    return out


def _joined(cells: Sequence[Span]) -> list[Span]:
    """Neighbours of one role as one span."""
    out: list[Span] = []
    for text, role in cells:
        if out and out[-1][1] == role:
            out[-1] = (out[-1][0] + text, role)
        else:
            out.append((text, role))
    return out
