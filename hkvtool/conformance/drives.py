"""An engine at work under an adapter: what it does and holds, and what is told of it meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

from hkvtool.conformance.books import Books
from hkvtool.model.event import Event
from hkvtool.recorder.adapter import Adapter
from hkvtool.recorder.adapters import Follower
from hkvtool.recorder.emitters import Emitter
from hkvtool.recorder.guarded import Watched
from hkvtool.state.fold import Fold


@dataclass(frozen=True)
class Moment:
    """The engine between two of its operations: what the last one gave its user, and the engine's
    own books by the name that each pool has in the trace."""

    output: object = None
    books: Mapping[str, Books] = field(default_factory=dict)


Drive = Callable[[], Iterator[Moment]]
"""Makes a new engine and has it do something, the same each time it is called; yields as often as
the engine may be looked at."""


class Told(Watched):
    """Stands in for a recording: keeps and folds what is told. `fails` of an event's number says
    that telling it raises, as a real recording never does."""

    def __init__(self, fails: Callable[[int], bool] = lambda number: False) -> None:
        super().__init__(None)
        self.events: list[dict[str, Any]] = []
        self.fold = Fold()
        self.impossible: list[str] = []
        """Events that the format does not know, or that cannot have happened."""
        self.asked = 0
        self._fails = fails

    def emit_dict(self, data: Mapping[str, Any]) -> bool:
        """Fold one event."""
        self.asked += 1
        if self._fails(self.asked):
            raise RuntimeError(f"event {self.asked} cannot be told, on purpose")
        plain = dict(data)
        self.events.append(plain)
        problem = _no_plain(plain) or folded(self.fold, len(self.events), plain)
        if problem:
            self.impossible.append(problem)
        return True

    def emitter(self, ev: str, keys: Sequence[str]) -> Emitter:
        """The same from the values of some keys."""

        def emit(*values: Any, **named: Any) -> bool:
            pairs = [*zip(keys, values, strict=False)]
            pairs += [(key.removesuffix("_"), value) for key, value in named.items()]
            return self.emit_dict({"ev": ev, **{k: v for k, v in pairs if v is not None}})

        return emit

    def kinds(self) -> frozenset[str]:
        """Of the events told."""
        return frozenset(str(data.get("ev")) for data in self.events)


def folded(fold: Fold, pos: int, data: dict[str, Any]) -> str:
    """Fold an event; in words why it is none, or cannot have happened, else nothing."""
    event = Event.of(pos, data)
    if event.problem is not None:
        return f"event {pos} {data}: {event.problem}"
    problem = fold.apply(event)
    return "" if problem is None else f"event {pos} {data}: {problem.text}"


def _no_plain(data: dict[str, Any]) -> str:
    """Why a ring would refuse the event."""
    try:
        json.dumps(data)
    except (TypeError, ValueError) as e:
        return f"event {data}: a value is not plain: {e}"
    return ""


@contextmanager
def attached(adapter: Adapter, told: Told, *, may_fail: bool = False) -> Iterator[Told]:
    """An adapter that tells; detached whatever happens. With `may_fail`, one that cannot attach is
    left out, as in a recording."""
    follower = Follower(adapter)
    with suppress(Exception) if may_fail else nullcontext():
        follower.start(told)
    try:
        yield told
    finally:
        follower.stop(told)


def outputs(drive: Drive) -> list[object]:
    """What the engine gives its user, moment by moment."""
    return [moment.output for moment in drive()]
