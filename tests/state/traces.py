"""Traces in files, plain folds at any position of them, and the fewest lines that still fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

from strategies import Data

from hkvtool.model.event import Event
from hkvtool.model.events import BY_CODE
from hkvtool.state.codes import FOLDED
from hkvtool.state.fold import Fold
from hkvtool.store.importing import import_traces
from tests.state.fold_facts import Facts, facts
from tests.variants.correct import correct_trace, random_options

FOLDED_KINDS = {BY_CODE[code].name for code in FOLDED}
_LISTS = ("blocks", "src", "dst", "peer", "failed", "front", "free_order")


def valid(seed: int) -> list[Data]:
    """What some correct engine records."""
    return correct_trace(seed, random_options(Random(seed)))


def written(folder: Path, lines: Iterable[Data]) -> Path:
    path = folder / "t.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def imported(folder: Path, lines: Iterable[Data]) -> Path:
    path = folder / "t.duckdb"
    import_traces([str(written(folder, lines))], path, force=True)
    return path


def named(lines: Iterable[Event]) -> set[int]:
    """Every number that stands where block ids do."""
    found = set(range(-1, 12))
    for event in lines:
        for key in _LISTS:
            value = event.get(key)
            if isinstance(value, list):
                found.update(b for b in value if isinstance(b, int) and not isinstance(b, bool))
    return found


class Plain:
    """The plain fold at one position after the other."""

    def __init__(self, events: list[Event]) -> None:
        self.blocks = named(events)
        self.fold, self.refused = Fold(), 0
        self._events = iter([*events, None])
        self._next = next(self._events)

    def until(self, pos: int) -> Facts:
        while self._next is not None and self._next.pos <= pos:
            event = self._next
            problem = self.fold.apply(event)
            self.refused += bool(problem and not event.problem and event.ev in FOLDED_KINDS)
            self._next = next(self._events)
        return facts(self.fold, self.blocks)


def parted(one: Facts, other: Facts) -> str | None:
    """What two folds do not agree on."""
    keys = [k for k in {**one, **other} if one.get(k) != other.get(k)]
    return "; ".join(f"{k}: {one.get(k)} and {other.get(k)}" for k in keys) or None


def fewest(lines: list[Data], fails: Callable[[list[Data]], object]) -> list[Data]:
    """The lines without those that the failure does not need."""
    for size in (16, 4, 1):
        at = 0
        while at < len(lines):
            fewer = lines[:at] + lines[at + size :]
            if fewer and fails(fewer):
                lines = fewer
            else:
                at += size
    return lines
