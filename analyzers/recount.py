"""The ratios of some lookups, one by one: what the rules make of those that a screen has summed."""

from __future__ import annotations

from typing import NamedTuple

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.ratios import Tally
from hkvtool.model.findings import Finding


class Row(NamedTuple):
    """One settled lookup, in tokens; `limiting` is the group that hit the least."""

    pos: int
    asked: int
    matched: int
    resumable: int
    limiting: str | None
    lost: dict[tuple[str, str | None], int]


class Unbroken(Tally):
    """Sums lookups as if nothing were wrong: what is, is recounted."""

    def _broken(self, request: str) -> list[Finding]:
        return []


class Recount(Tally):
    """Keeps what became of every lookup that it is told of."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.rows: list[Row] = []

    def close(self, request: str) -> None:
        held, begun = self.matched.get(request), self.begun.get(request)
        resumable, self.losses = self.total.resumable, {}
        super().close(request)
        if held is not None and begun is not None:
            best, limiting, _ = held
            good = int(self.total.resumable - resumable)
            lost = {key: int(tokens) for key, tokens in self.losses.items()}
            self.rows.append(Row(*begun, best, good, limiting, lost))
