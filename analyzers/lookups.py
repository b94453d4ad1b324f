"""Every lookup with what became of it: the ratios one by one, to be summed as one likes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.ratios import Tally
from hkvtool.model.event import Event
from hkvtool.model.findings import Loss, Ratios, ranked


class Settled(NamedTuple):
    """One lookup, in tokens; `lost` by rule and group, `hits` by group as the lookup states them.

    `at` is on the trace's clock where it has one, else the position.
    """

    pos: int
    at: int
    request: str
    tenant: str | None
    asked: int
    matched: int
    resumable: int
    lost: tuple[Loss, ...]
    hits: dict[str, int]


class Lookups(Tally):
    """Keeps a row of every lookup of a trace, in the order in which they were settled."""

    kinds = None

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.settled: list[Settled] = []
        self._opened: dict[str, tuple[int, int, int, int, dict[str, int]]] = {}
        self._tenants: dict[str, str] = {}

    def before(self, event: Event) -> None:
        if event.req is not None and event.get("tenant") is not None:
            self._tenants[event.req] = str(event["tenant"])
        super().before(event)

    def _open(self, event: Event) -> None:
        asked, matched = self.total.asked, self.total.matched
        super()._open(event)
        ts = event.get("ts")
        self._opened[str(event["req"])] = (
            event.pos, event.pos if ts is None else ts, self.total.asked - asked,
            self.total.matched - matched, {str(g): int(t) for g, t in event["hit"].items()},
        )  # fmt: skip

    def close(self, request: str) -> None:
        opened = self._opened.pop(request, None)
        resumable, losses = self.total.resumable, dict(self.losses)
        super().close(request)
        if opened is None:
            return
        pos, at, asked, matched, hits = opened
        lost = tuple(
            Loss(code, group, tokens - losses.get((code, group), 0))
            for (code, group), tokens in self.losses.items()
            if tokens > losses.get((code, group), 0)
        )
        self.settled.append(
            Settled(
                pos, at, request, self._tenants.get(request), asked, matched,
                self.total.resumable - resumable, lost, hits,
            )
        )  # fmt: skip


def summed(rows: Iterable[Settled]) -> Ratios:
    """The ratios of some lookups together."""
    total = Ratios()
    losses: dict[tuple[str, str | None], int] = {}
    for row in rows:
        total.asked += row.asked
        total.matched += row.matched
        total.resumable += row.resumable
        for loss in row.lost:
            key = (loss.code, loss.group)
            losses[key] = losses.get(key, 0) + loss.tokens
    total.lost_by = ranked(losses)
    return total


def by_time(rows: Iterable[Settled], bins: int) -> list[tuple[int, int, Ratios]]:
    """The ratios of equal stretches of time: from, until (excluded), and their sum."""
    ordered = sorted(rows, key=lambda row: row.at)
    if not ordered:
        return []
    first, last = ordered[0].at, ordered[-1].at
    width = max(1, -(-(last - first + 1) // bins))
    parts: dict[int, list[Settled]] = {}
    for row in ordered:
        parts.setdefault((row.at - first) // width, []).append(row)
    count = (last - first) // width + 1
    return [
        (first + i * width, first + (i + 1) * width, summed(parts.get(i, ())))
        for i in range(count)
    ]  # fmt: skip


def by_group(rows: Iterable[Settled]) -> dict[str, dict[str, int]]:
    """For each group: tokens asked of lookups that name it, its hits, and what it cost others."""
    out: dict[str, dict[str, int]] = {}
    for row in rows:
        for group, tokens in row.hits.items():
            told = out.setdefault(group, {"asked": 0, "hit": 0, "lost": 0})
            told["asked"] += row.asked
            told["hit"] += tokens
        for loss in row.lost:
            if loss.group is not None:
                told = out.setdefault(loss.group, {"asked": 0, "hit": 0, "lost": 0})
                told["lost"] += loss.tokens
    return out


def by(rows: Iterable[Settled], key: str) -> dict[Any, Ratios]:
    """The ratios by `request` or `tenant`, in the order of sight."""
    parts: dict[Any, list[Settled]] = {}
    for row in rows:
        parts.setdefault(getattr(row, key), []).append(row)
    return {name: summed(part) for name, part in parts.items()}
