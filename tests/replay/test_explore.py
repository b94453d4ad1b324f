"""A search of interleavings against the plain truth: every order there is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import pytest

from hkvtool.analyzers import check
from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event
from hkvtool.replay.certify import certify
from hkvtool.replay.explore import explore
from hkvtool.replay.samplers import pct, pos, walk
from hkvtool.replay.schedules import Runner, directed, enabled, spell, unspell
from hkvtool.replay.window import Window, window


def program(seed: int, lanes: int = 3, ops: int = 4, blocks: int = 3) -> list[Event]:
    """Lanes that write and read a few blocks, with an edge here and there."""
    chance = random.Random(seed)
    lines: list[dict[str, Any]] = [
        {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 8},
        {"ev": "group", "group": "kv", "form": "compressed", "pool": "gpu", "block_tokens": 16},
    ]
    edges: list[str] = []
    for _ in range(lanes * ops):
        lane = f"stream:{chance.randrange(lanes)}"
        kind = chance.random()
        if kind < 0.2:
            edges.append(f"e{len(edges)}")
            lines.append({"ev": "signal", "actor": lane, "event": edges[-1]})
        elif kind < 0.4 and edges:
            lines.append({"ev": "wait", "actor": lane, "event": chance.choice(edges)})
        else:
            start = chance.choice([0, 0, 8])
            lines.append({
                "ev": chance.choice(["write", "use"]), "actor": lane, "group": "kv",
                "blocks": [chance.randrange(1, blocks + 1)], "tokens": [start, start + 8],
            })  # fmt: skip
    return [Event.of(pos, data) for pos, data in enumerate(lines, 1)]


def over(events: list[Event]) -> Window:
    return window(events, frozenset(("gpu", block) for block in range(8)))


def orders(found: Window) -> Iterator[list[int]]:
    """Every linear extension."""

    def below(done: int, path: list[int]) -> Iterator[list[int]]:
        if len(path) == len(found.ops):
            yield path
        for index in enabled(found, done):
            yield from below(done | 1 << index, [*path, index])

    return below(0, [])


def classes(found: Window, paths: Iterator[list[int]]) -> set[tuple[tuple[int, int], ...]]:
    """Orders by the order of their conflicting pairs."""
    pairs = [
        (a.index, b.index)
        for b in found.ops
        for a in found.ops[: b.index]
        if found.conflicts[b.index] >> a.index & 1
    ]
    out = set()
    for path in paths:
        at = {index: step for step, index in enumerate(path)}
        out.add(tuple((a, b) if at[a] < at[b] else (b, a) for a, b in pairs))
    return out


@pytest.mark.parametrize("seed", range(40))
def test_a_certificate_says_what_brute_force_says(seed: int) -> None:
    events = program(seed)
    try:
        found = over(events)
    except HkvError:
        return
    if len(found.ops) > 7:
        found = over(events[: found.ops[6].pos])
    every = list(orders(found))
    runner = Runner(found)
    seen = certify(found, runner, 10**6, most_failing=10**6)
    assert seen.complete
    assert seen.orders == len(classes(found, iter(every))) <= len(every)
    failing = [path for path in every if runner.run(path)]
    assert bool(failing) == bool(seen.failing)
    assert all(failure == runner.run(path) for path, failure in seen.failing)
    ended = explore(found, budget=10**6)
    assert bool(ended.found) == bool(failing)
    if not failing:
        assert ended.verdict == f"no failing interleaving among {seen.orders:,} (complete)"


@pytest.mark.parametrize("seed", range(10))
def test_schedules_are_orders_and_replay_the_same(seed: int) -> None:
    found = over(program(seed, lanes=4, ops=8, blocks=2))
    runner, chance = Runner(found), random.Random(seed)
    paths = [walk(found, chance), pos(found, chance), pct(found, chance, 3)]
    paths += [directed(found, a, b) for a, b in found.races[:20]]
    for path in paths:
        done = 0
        for index in path:
            assert index in enabled(found, done)
            done |= 1 << index
        text = spell(found, path)
        assert unspell(found, text) == path
        assert {runner.run(unspell(found, text)) for _ in range(5)} == {runner.run(path)}
    assert runner.run(range(len(found.ops))) is None, "the recorded order is the measure"


def test_a_schedule_of_another_window_is_refused() -> None:
    one, other = over(program(1)), over(program(2))
    text = spell(one, range(len(one.ops)))
    with pytest.raises(HkvError, match="another window"):
        unspell(other, text)
    with pytest.raises(HkvError, match="before it can"):
        unspell(one, f"{text[:9]}0>{len(one.ops) - 1}")
    with pytest.raises(HkvError, match="no schedule"):
        unspell(one, "../../etc")


def test_every_race_of_the_cases_fails_and_its_fix_does_not(
    case: Any, read_events: Callable[..., list[Event]]
) -> None:
    bad = read_events(case.bad)
    races = [f for f in check(bad).findings if f.edge and not f.cause and f.pool]
    if not races:
        return
    for race in races:
        places = frozenset((str(race.pool), block) for block in race.blocks)
        seen = explore(window(bad, places, race.events))
        assert seen.found, race
        failing = [c for c in seen.candidates if c.failure]
        assert seen.found[0].run <= 3 and failing
        good = explore(window(read_events(case.good), places))
        assert not good.found
        assert good.certificate is not None and good.certificate.complete


def _touch(ev: str, block: int) -> dict[str, Any]:
    return {"ev": ev, "group": "kv", "blocks": [block], "tokens": [0, 16]}


def planted(seed: int, size: int) -> list[Event]:
    """Four lanes over many blocks, and one check-then-use that a step between spoils."""
    chance = random.Random(seed)
    head = [
        {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 100},
        {"ev": "group", "group": "kv", "form": "compressed", "pool": "gpu", "block_tokens": 16},
    ]
    lanes: list[list[dict[str, Any]]] = [[] for _ in range(4)]
    for number, lane in enumerate(lanes):
        for _ in range(size):
            block = 10 + 4 * chance.randrange(16) + number
            lane.append(_touch(chance.choice(["write", "use"]), block))
    for number, ev in enumerate(["write", "use"]):
        lanes[0].insert(size // 3 + number * size // 8, _touch(ev, 1))
    lanes[1].append(_touch("write", 1))
    lines = list(head)
    heads = [0, 2, 3, 1]
    for number in heads:
        lines += [{**data, "actor": f"stream:{number}"} for data in lanes[number]]
    events = [Event.of(pos, data) for pos, data in enumerate(lines, 1)]
    assert not any(event.problem for event in events)
    return events


def test_pos_finds_a_planted_bug_sooner_than_chance() -> None:
    firsts: dict[str, list[int]] = {"walk": [], "POS": []}
    for seed in range(9):
        found = window(planted(seed, 30), frozenset(("gpu", block) for block in range(100)))
        runner = Runner(found)
        for name, sampler in (("walk", walk), ("POS", pos)):
            chance = random.Random(seed)
            tries = (n for n in range(1, 201) if runner.run(sampler(found, chance)))
            firsts[name].append(next(tries, 201))
        first = explore(found).found[0]
        assert first.by == "directed" and first.run <= 3
    assert median(firsts["POS"]) < median(firsts["walk"])
