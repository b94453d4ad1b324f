"""What every adapter has to pass: fold = engine, harmless, evidence honest.

Each check is a function that raises AssertionError with what was wrong; `AdapterConformance` has
them as tests that pytest collects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any, ClassVar

from hkvtool.conformance.books import differences
from hkvtool.conformance.drives import Drive, Moment, Told, attached, outputs
from hkvtool.conformance.properties import VETO, judge
from hkvtool.model.event import Event
from hkvtool.model.events import EVIDENCE
from hkvtool.model.evidence import implied_by
from hkvtool.recorder.adapter import Adapter, lacking
from hkvtool.recorder.choke_point import ChokePoint
from hkvtool.recorder.hook_set import HookSet

_GEOMETRY = ("pool", "group", "kernel")
_SHOWN = 5
"""Differences in one message; the first ones are the telling ones."""


def recorded(adapter: Adapter, drive: Drive) -> Told:
    """What an adapter tells of a run. Raises where the run is over and nothing was told."""
    told = Told()
    with attached(adapter, told):
        for _ in drive():
            pass
    assert told.events, "the engine did something and the adapter told nothing"
    return told


def interface(adapter: Adapter) -> None:
    """It has what an adapter has, and what it says without attaching is true."""
    lacks = lacking(adapter)
    assert not lacks, f"the adapter has no {', '.join(lacks)}"
    report = adapter.declare()
    assert report.version is not None, f"{adapter.engine} is not installed here"
    unknown = [c for c in report.evidence if c not in EVIDENCE]
    assert not unknown, f"no evidence is called {', '.join(unknown)}: {', '.join(EVIDENCE)}"
    assert not report.missing, f"not as the adapter knows it: {report.missing}"
    assert adapter.detach(Told()) is False, "detached though never attached, and says it told"


def keyed(told: Told, value: Any) -> str:
    """The name that most adapters give a hash."""
    return told.keyed(value)


def fold_is_engine(
    adapter: Adapter, drive: Drive, name: Callable[[Told, Any], str] = keyed
) -> Told:
    """At every moment, the fold of what was told and the engine's own books say the same, and
    every event is one that the format knows and that can have happened. `name` makes of a hash in
    the books what the adapter makes of it."""
    told, looks = Told(), 0
    with attached(adapter, told):
        for number, moment in enumerate(drive(), 1):
            wrong = [
                text for pool, books in moment.books.items()
                for text in differences(told.fold, pool, books, partial(name, told))
            ]  # fmt: skip
            assert not told.impossible, told.impossible[0]
            assert not wrong, _shown(f"moment {number}, event {len(told.events)}", wrong)
            looks += bool(moment.books)
    assert not told.impossible, told.impossible[0]
    assert looks, "no moment of the drive gives the engine's books: nothing was compared"
    return told


def harmless(adapter: Adapter, drive: Drive) -> None:
    """The engine does what it does without the adapter: under it, after it, and where telling or
    a hook fails."""
    plain = outputs(drive)
    assert plain == outputs(drive), "the drive does not do the same each time it is called"
    standing = _standing(adapter)
    told = Told()
    with attached(adapter, told):
        assert outputs(drive) == plain, "recorded, the engine does something else"
    assert told.events, "the engine did something and the adapter told nothing"
    assert _standing(adapter) == standing, "detached, functions of the engine are not its own"
    for which, fails in _failures(told.asked):
        with attached(adapter, Told(fails), may_fail=True):
            assert outputs(drive) == plain, f"the engine does something else where {which} fails"
        assert _standing(adapter) == standing, f"where {which} failed, hooks stay on"
    assert outputs(drive) == plain, "detached, the engine does something else"


def hooks_may_fail(adapter: HookSet, drive: Drive) -> list[str]:
    """Each hook in turn raises, before and after the engine's function: the engine goes on as
    ever, and the trace says which hook is off. Returns the hooks that the drive never came by."""
    plain, unused = outputs(drive), []
    for name in [point.name for point in adapter.points()]:
        failed = False
        for when in ("before", "after"):
            told = Told()
            broken = _Broken(adapter, name, when)
            with attached(broken, told, may_fail=True):
                assert outputs(drive) == plain, f"{name} fails {when}: the engine does otherwise"
            failed |= broken.failed
        if not failed:
            unused.append(name)
    return unused


def evidence_honest(adapter: Adapter, drive: Drive, kinds: Collection[str] = ()) -> None:
    """What the adapter declares is seen, and nothing is seen that it does not declare: classes of
    evidence, and kinds of events where `kinds` says which a whole drive has."""
    declared = set(adapter.declare().evidence)
    told = recorded(adapter, drive)
    first = told.events[0]
    assert first["ev"] == "trace", f"the first event is {first['ev']}, not `trace`"
    said = {c for e in told.events if e["ev"] in ("trace", "evidence") for c in e["evidence"]}
    assert said == declared, f"`declare` says {_list(declared)}, the trace {_list(said)}"
    seen: set[str] = set()
    for pos, data in enumerate(told.events, 1):
        seen |= implied_by(Event.of(pos, data))
    over, under = declared - seen, seen - declared
    assert not over, f"declared and never seen: evidence {_list(over)}"
    assert not under, f"seen and not declared: evidence {_list(under)}"
    if kinds:
        absent, strange = set(kinds) - told.kinds(), told.kinds() - set(kinds)
        assert not absent, f"declared and never seen: {_list(absent)} events"
        assert not strange, f"seen and not declared: {_list(strange)} events"


def geometry_told(adapter: Adapter, drive: Drive) -> None:
    """`geometry` is what was told of pools, groups and kernels, and gone when it is detached."""
    told = Told()
    with attached(adapter, told):
        for _ in drive():
            pass
        mine = [dict(event) for event in adapter.geometry()]
    stated = [event for event in told.events if event["ev"] in _GEOMETRY]
    assert mine == stated, f"`geometry` has {len(mine)} events, told were {len(stated)}"
    assert {e["ev"] for e in mine} >= {"pool", "group"}, "no pool, or no group, was told"
    assert not adapter.geometry(), "detached, it still has a geometry"


def quiet(adapter: Adapter, drive: Drive, but: Collection[str] = (VETO,)) -> None:
    """No rule finds a fault in what a sound engine did."""
    told = recorded(adapter, drive)
    broken = [str(v) for v in judge(told.events, but).values() if not v.holds]
    assert not broken, "\n".join(broken)


class AdapterConformance:
    """Tests of one adapter; a subclass says which, and drives the engine."""

    adapter: ClassVar[Adapter]
    kinds: ClassVar[Collection[str]] = ()
    """Kinds of events that the whole drive has; those of the adapter, where none are said."""
    faults: ClassVar[tuple[str, ...]] = (VETO,)
    """Rules whose findings the engine is known for."""

    def drive(self) -> Iterator[Moment]:
        """A new engine at work, the same each time."""
        raise NotImplementedError

    def name(self, told: Told, value: Any) -> str:
        """What stands in the trace for a hash of the books."""
        return keyed(told, value)

    def test_interface(self) -> None:
        interface(self.adapter)

    def test_fold_is_engine(self) -> None:
        fold_is_engine(self.adapter, self.drive, self.name)

    def test_harmless(self) -> None:
        harmless(self.adapter, self.drive)

    def test_hooks_may_fail(self) -> None:
        if isinstance(self.adapter, HookSet):
            unused = hooks_may_fail(self.adapter, self.drive)
            assert not unused, f"the drive never comes by {', '.join(unused)}"

    def test_evidence_is_honest(self) -> None:
        evidence_honest(self.adapter, self.drive, self.kinds or getattr(self.adapter, "kinds", ()))

    def test_geometry(self) -> None:
        geometry_told(self.adapter, self.drive)

    def test_quiet(self) -> None:
        quiet(self.adapter, self.drive, self.faults)


class _Broken:
    """An adapter one of whose hooks raises."""

    def __init__(self, adapter: HookSet, name: str, when: str) -> None:
        self.inner, self.engine = adapter, adapter.engine
        self.name, self.when, self.failed = name, when, False

    def points(self) -> list[ChokePoint]:
        def broken(*args: Any, **kwargs: Any) -> Any:
            self.failed = True
            raise RuntimeError(f"{self.name} fails {self.when}, on purpose")

        points = type(self.inner).points(self.inner)
        change: dict[str, Any] = {self.when: broken}
        return [p._replace(**change) if p.name == self.name else p for p in points]

    def attach(self, recording: Any) -> object:
        self.inner.points = self.points  # type: ignore[method-assign]
        try:
            return self.inner.attach(recording)
        finally:
            del self.inner.points

    def detach(self, recording: Any) -> bool:
        return self.inner.detach(recording)

    def declare(self) -> Any:
        return self.inner.declare()

    def geometry(self) -> Any:
        return self.inner.geometry()


def _failures(asked: int) -> Iterator[tuple[str, Any]]:
    """Which events cannot be told: all, all from the middle on, one here and there."""
    yield "every event", lambda number: True
    yield "every event of the second half", lambda number: number > asked // 2
    for one in sorted({1, asked // 3, asked}):
        yield f"event {one}", lambda number, one=one: number == one


def _standing(adapter: Adapter) -> list[object]:
    """What stands at each choke point; nothing where the adapter is of another make."""
    points = adapter.points() if isinstance(adapter, HookSet) else ()
    return [getattr(point.target(), "original", None) for point in points]


def _shown(where: str, wrong: list[str]) -> str:
    more = f"\n  and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return f"{where}: the fold is not the engine\n  " + "\n  ".join(wrong[:_SHOWN]) + more


def _list(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
