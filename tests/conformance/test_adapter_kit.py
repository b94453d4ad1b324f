"""The kit passes a sound adapter, and each thing that an adapter may do wrong fails one check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from conformance import toy
from hkvtool.conformance import AdapterConformance, Books, Moment
from hkvtool.conformance import suite as kit
from hkvtool.conformance.drives import Told, attached
from hkvtool.recorder.choke_point import ChokePoint


class TestToy(AdapterConformance):
    adapter = toy.ToyAdapter()

    def drive(self) -> Iterator[Moment]:
        return toy.drive()


def with_hook(name: str, after: Callable[..., Any]) -> toy.ToyAdapter:
    """The adapter, one of whose hooks is another."""

    class Changed(toy.ToyAdapter):
        def points(self) -> Sequence[ChokePoint]:
            return [p._replace(after=after) if p.name == name else p for p in super().points()]

    return Changed()


def silent(*args: Any, **kwargs: Any) -> None:
    pass


def with_class(**members: Any) -> toy.ToyAdapter:
    made: toy.ToyAdapter = type("Changed", (toy.ToyAdapter,), members)()
    return made


def told(**event: Any) -> Callable[..., Any]:
    """A hook on `give` that tells something else."""

    def hook(hooks: Any, seen: Any, result: Any, pool: Any, req: str, blocks: list[int]) -> None:
        toy.given(hooks, seen, result, pool, req, blocks)
        hooks.tell.event(event)

    return hook


def other_hash(hooks: Any, seen: Any, result: Any, pool: Any, key: str, block: int) -> None:
    hooks.tell.publish("kv", [block], [hooks.keyed(key + "x")], None, None)


@pytest.mark.parametrize(
    ("adapter", "why"),
    [
        (with_hook("give", silent), "block 0: the engine counts 0 references, the fold 1"),
        (with_hook("take", silent), "block 0: the engine counts 1 references, the fold 0"),
        (with_hook("publish", silent), "lead to it, in the fold no hashes"),
        (with_hook("publish", other_hash), "lead to it, in the fold"),
        (with_hook("declare", silent), "group 'kv' is not declared"),
        (with_hook("give", told(ev="frees")), "'frees'"),
        (with_hook("give", told(ev="free", pool="gpu", blocks=[99])), "99"),
        (with_hook("give", told(ev="finish", req="r", note=object())), "a value is not plain"),
    ],
)
def test_what_is_told_wrong_is_not_the_engine(adapter: toy.ToyAdapter, why: str) -> None:
    with pytest.raises(AssertionError) as error:
        kit.fold_is_engine(adapter, toy.drive)
    assert why in str(error.value)


def test_pins_are_compared_where_the_engine_has_some() -> None:
    def drive() -> Iterator[Moment]:
        yield Moment(None, {"gpu": Books(dict(toy.Pool().refs), None, {2: 1})})

    with pytest.raises(AssertionError, match="block 2: the engine counts 1 pins, the fold 0"):
        kit.fold_is_engine(toy.ToyAdapter(), drive)


def test_a_drive_without_books_compares_nothing() -> None:
    drive = [Moment(1)].__iter__
    with pytest.raises(AssertionError, match="nothing was compared"):
        kit.fold_is_engine(toy.ToyAdapter(), drive)


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"evidence": ("host", "step")}, "declared and never seen: evidence step"),
        ({"kinds": (*toy.ToyAdapter.kinds, "pin")}, "declared and never seen: pin events"),
        ({"kinds": ("trace", "pool", "group", "alloc")}, "seen and not declared: free, publish"),
    ],
)
def test_evidence_that_is_not_as_declared(members: dict[str, Any], why: str) -> None:
    adapter = with_class(**members)
    with pytest.raises(AssertionError, match=why):
        kit.evidence_honest(adapter, toy.drive, adapter.kinds)


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ({"ev": "dispatch", "step": 1, "reqs": []}, "seen and not declared: evidence step"),
        ({"ev": "evidence", "evidence": ["host", "wire"]}, "the trace host, wire"),
    ],
)
def test_evidence_that_nobody_declared(event: dict[str, Any], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        kit.evidence_honest(with_hook("give", told(**event)), toy.drive)


class Leaky(toy.ToyAdapter):
    """Wraps by itself, and lets out what goes wrong."""

    def attach(self, recording: Any) -> Any:
        hooks = super().attach(recording)
        self.inner = toy.Pool.give

        def give(pool: toy.Pool, req: str, blocks: list[int]) -> None:
            self.inner(pool, req, blocks)
            recording.emit_dict({"ev": "finish", "req": req})

        toy.Pool.give = give  # type: ignore[method-assign]
        return hooks

    def detach(self, recording: Any) -> bool:
        if self._attached is not None:
            toy.Pool.give = self.inner  # type: ignore[method-assign]
        return super().detach(recording)


class Meddling(toy.ToyAdapter):
    """Its hook gives the engine's user something else."""

    def points(self) -> Sequence[ChokePoint]:
        def after(hooks: Any, seen: Any, blocks: list[int], *args: Any, **kw: Any) -> None:
            toy.taken(hooks, seen, blocks, *args, **kw)
            blocks.reverse()

        return [p._replace(after=after) if p.name == "take" else p for p in super().points()]


class Staying(toy.ToyAdapter):
    """Does not put everything back."""

    def detach(self, recording: Any) -> bool:
        left = toy.Pool.give
        found = super().detach(recording)
        if found:
            toy.Pool.give = left  # type: ignore[method-assign]
        return found


@pytest.mark.parametrize(
    ("adapter", "why"),
    [
        (Leaky(), "on purpose"),
        (Meddling(), "recorded, the engine does something else"),
        (Staying(), "functions of the engine are not its own"),
        (with_class(attach=lambda self, recording: None), "the adapter told nothing"),
    ],
)
def test_what_is_not_harmless(
    adapter: toy.ToyAdapter, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toy.Pool, "give", toy.Pool.give)
    with pytest.raises((AssertionError, RuntimeError), match=why):
        kit.harmless(adapter, toy.drive)


def test_a_drive_that_is_another_each_time_proves_nothing() -> None:
    numbers = iter(range(100))

    def drive() -> Iterator[Moment]:
        yield Moment(next(numbers))

    with pytest.raises(AssertionError, match="does not do the same each time"):
        kit.harmless(toy.ToyAdapter(), drive)


def test_a_hook_that_no_drive_comes_by_is_named() -> None:
    def drive() -> Iterator[Moment]:
        yield toy.moment(toy.Pool(), None)

    assert kit.hooks_may_fail(toy.ToyAdapter(), drive) == ["take", "publish", "give"]


def test_a_hook_that_failed_is_in_the_trace() -> None:
    broken = kit._Broken(toy.ToyAdapter(), "give", "after")
    with attached(broken, Told()) as told:
        assert [m.output for m in toy.drive()] == [m.output for m in toy.drive()]
    (said,) = [e for e in told.events if e["ev"] == "evidence"]
    assert said["evidence"] == [] and "the hook on give failed" in said["note"]


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"geometry": lambda self: []}, "`geometry` has 0 events, told were 2"),
        ({"geometry": lambda self: [{"ev": "pool"}, {"ev": "group"}]}, "told were 2"),
    ],
)
def test_a_geometry_that_is_not_what_was_told(members: dict[str, Any], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        kit.geometry_told(with_class(**members), toy.drive)


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"version": lambda self: None}, "is not installed here"),
        ({"evidence": ("hosts",)}, "no evidence is called hosts"),
        ({"points": lambda self: [toy.ToyAdapter().points()[1]._replace(function="takes")]},
         "Pool has no takes"),
        ({"detach": lambda self, recording: True}, "detached though never attached"),
    ],
)  # fmt: skip
def test_what_it_says_of_itself(members: dict[str, Any], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        kit.interface(with_class(**members))


def test_a_fault_of_the_engine_is_heard() -> None:
    def drive() -> Iterator[Moment]:
        pool = toy.Pool()
        blocks = pool.take("r1", 2)
        pool.give("r1", blocks)
        pool.give("r1", blocks)
        yield toy.moment(pool, None)

    with pytest.raises(AssertionError, match="HKV704"):
        kit.quiet(toy.ToyAdapter(), drive)
