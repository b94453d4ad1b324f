"""A search that is stopped goes on where it was; what it finds is seen on real caches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from replay.orders import harmless

from hkvtool.analyzers import check
from hkvtool.bench.explore import scattered
from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event
from hkvtool.replay.arms import Setting, survey
from hkvtool.replay.certify import Frontier, certify
from hkvtool.replay.explore import explore
from hkvtool.replay.scheduled import on_caches
from hkvtool.replay.schedules import Runner, spell, unspell
from hkvtool.replay.searched import Searched, load
from hkvtool.replay.window import window

Reading = Callable[..., list[Event]]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("portion", [1, 7, 40])
def test_a_certificate_goes_on_and_comes_to_the_same(
    seed: int, portion: int, tmp_path: Path
) -> None:
    found = scattered(3, 4, 4, seed)
    whole = certify(found, Runner(found), 10**6, most_failing=10**6)
    assert whole.complete
    known = Searched.of(found, 0)
    known.frontier = Frontier.of(found)
    failing = []
    for _ in range(10**4):
        part = certify(found, Runner(found), portion, most_failing=10**6, at=known.frontier)
        failing += [tuple(order) for order, _ in part.failing]
        known.save(tmp_path / "state.json")
        again = load(tmp_path / "state.json", found, 0)
        assert again is not None
        known = again
        if part.complete:
            break
    assert (part.orders, part.blocked) == (whole.orders, whole.blocked)
    assert failing == [tuple(order) for order, _ in whole.failing]


def test_a_stopped_search_runs_nothing_again(tmp_path: Path) -> None:
    found = harmless(lanes=2)
    whole = explore(found, budget=3000)
    assert whole.certificate is not None and not whole.found
    asked = 0

    def soon() -> bool:
        nonlocal asked
        asked += 1
        return asked % 700 == 0

    known = Searched.of(found, 0)
    ran: list[int] = []
    for _ in range(50):
        seen = explore(found, budget=3000, stopped=soon, known=known)
        ran.append(known.ran)
        if not seen.stopped:
            break
        known.save(tmp_path / "s.json")
        known = load(tmp_path / "s.json", found, 0) or known
    assert len(ran) > 3 and ran == sorted(ran)
    assert not seen.found
    assert known.ran == len(known.verdicts)
    assert seen.certificate is not None
    assert seen.certificate.orders >= whole.certificate.orders


def test_a_state_of_another_search_or_none_at_all_is_refused(tmp_path: Path) -> None:
    one, other = scattered(3, 4, 4, 1), scattered(3, 4, 4, 2)
    path = tmp_path / "s.json"
    assert load(path, one, 0) is None
    known = Searched.of(one, 0)
    known.frontier = Frontier.of(one)
    known.save(path)
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(HkvError, match="another search"):
        load(path, other, 0)
    with pytest.raises(HkvError, match="another search"):
        load(path, one, 1)
    good = json.loads(path.read_text())
    for harm in (
        {"format": "x"}, {"verdicts": []}, {"frontier": {}}, {"found": [[1]]},
        {"frontier": {**good["frontier"], "path": [99]}},
        {"frontier": {**good["frontier"], "frames": [["0xffffffff", [], "0x0"]]}},
    ):  # fmt: skip
        path.write_text(json.dumps({**good, **harm}))
        with pytest.raises(HkvError, match="no state of a search"):
            load(path, one, 0)
    path.write_text("[" * 100_000)
    with pytest.raises(HkvError, match="no state of a search"):
        load(path, one, 0)


def _races(events: list[Event]) -> list[Any]:
    return [f for f in check(events).findings if f.edge and not f.cause and f.pool]


def test_every_failing_schedule_of_the_cases_fails_100_times_and_on_real_caches(
    case: Any, read_events: Reading
) -> None:
    events = read_events(case.bad)
    report = check(events)
    for race in [f for f in report.findings if f.edge and not f.cause and f.pool]:
        places = frozenset((str(race.pool), block) for block in race.blocks)
        over = window(events, places, race.events)
        for found in explore(over).found:
            order = unspell(over, found.schedule)
            assert spell(over, order) == found.schedule
            assert {Runner(over).run(order) for _ in range(100)} == {found.failure}
            setting = Setting(events, survey(events), runs=2)
            proof = on_caches(setting, over, order, places, report, race)
            assert proof.verdict == "confirmed", proof.reason
            assert proof.fault is not None and proof.control is not None
            assert (proof.fault.corrupt, proof.control.corrupt) == (2, 0)


def _two_hands(*, edge: bool) -> list[Event]:
    """A scheduler and a worker that both take blocks: what one gives back the other is given."""
    kv = {"group": "kv", "blocks": [1]}
    lines: list[dict[str, Any]] = [
        {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 8},
        {"ev": "group", "group": "kv", "form": "compressed", "pool": "gpu", "block_tokens": 16},
        {"ev": "alloc", "req": "a", **kv},
        {"ev": "write", "req": "a", "tokens": [0, 16], **kv},
        {"ev": "use", "req": "a", "tokens": [0, 16], **kv},
        {"ev": "free", "req": "a", **kv},
        {"ev": "signal", "event": "given back"},
        {"ev": "wait", "event": "given back", "actor": "worker:0"},
        {"ev": "alloc", "req": "b", "actor": "worker:0", **kv},
        {"ev": "write", "req": "b", "actor": "worker:0", "tokens": [0, 16], **kv},
        {"ev": "use", "req": "b", "actor": "worker:0", "tokens": [0, 16], **kv},
    ]
    if not edge:
        lines = [line for line in lines if line["ev"] not in ("signal", "wait")]
    return [Event.of(pos, data) for pos, data in enumerate(lines, 1)]


@pytest.mark.parametrize("edge", [True, False])
def test_redeciding_gives_another_block_where_one_is_held(edge: bool) -> None:
    places = frozenset({("gpu", 1)})
    forced = explore(window(_two_hands(edge=edge), places))
    assert not forced.found and forced.complete
    free = explore(window(_two_hands(edge=edge), places, forced=False))
    assert not free.found and free.complete
    orders = free.certificate.orders if free.certificate else 0
    assert (orders > 1) == (not edge)


def test_redeciding_says_what_is_decided_otherwise() -> None:
    over = window(_two_hands(edge=False), frozenset({("gpu", 1)}), forced=False)
    runner = Runner(over)
    second = [op.index for op in over.ops if op.lane == "worker:0"]
    order = [*second, *(op.index for op in over.ops if op.lane != "worker:0")]
    assert runner.run(order) is None
    assert runner.changed == ["event 3: another block than 1, which is still held"]


def test_redeciding_drops_what_a_hit_that_misses_would_read() -> None:
    kv = {"group": "kv", "blocks": [1]}
    lines: list[dict[str, Any]] = [
        {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 8},
        {"ev": "group", "group": "kv", "form": "compressed", "pool": "gpu", "block_tokens": 16},
        {"ev": "alloc", "req": "a", **kv},
        {"ev": "write", "req": "a", "tokens": [0, 16], **kv},
        {"ev": "publish", "req": "a", "hashes": ["h"], "tokens": [0, 16], **kv},
        {"ev": "touch", "req": "b", "actor": "worker:0", **kv},
        {"ev": "use", "req": "b", "actor": "worker:0", "tokens": [0, 16], **kv},
    ]
    events = [Event.of(pos, data) for pos, data in enumerate(lines, 1)]
    over = window(events, frozenset({("gpu", 1)}), forced=False)
    runner = Runner(over)
    second = [op.index for op in over.ops if op.lane == "worker:0"]
    rest = [op.index for op in over.ops if op.lane != "worker:0"]
    assert runner.run([*second, *rest]) is None
    assert runner.changed == ["event 6: no hit on block 1, not yet published"]
    # Behind the publish it is a hit, and reads what was written.
    assert runner.run([*rest, *second]) is None and runner.changed == []
