"""Making a scenario that diverges smaller, while it still does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from hkvtool.probe.scenario import Ask, Scenario

_TRIES = 16


def shrunk(scenario: Scenario, still: Callable[[Scenario], bool], unit: int) -> Scenario:
    """The smallest scenario found in a few tries: fewer requests, fewer tokens generated, fewer
    blocks of `unit` tokens in what they share."""
    tries = _TRIES
    going = True
    while going:
        going = False
        for smaller in _smaller(scenario, unit):
            if not tries:
                return scenario
            tries -= 1
            if still(smaller):
                scenario, going = smaller, True
                break
    return scenario


def _smaller(scenario: Scenario, unit: int) -> Iterator[Scenario]:
    """Smaller ones, the boldest first."""
    needed = {n for p in scenario.pairs for n in (p.reference, p.subject)}
    needed |= {ask.after for ask in scenario.asks if ask.after} | {scenario.separate}
    free = [ask.name for ask in scenario.asks if ask.name not in needed]
    size = len(free)
    while size:
        for at in range(0, len(free), size):
            yield _without(scenario, set(free[at : at + size]))
        size //= 2
    if len(scenario.pairs) > 1:
        for pair in scenario.pairs:
            yield replace(scenario, pairs=(pair,))
    shared = _shared(scenario)
    for blocks in (shared // unit // 2, 1):
        if 0 < blocks * unit < shared:
            yield _cut(scenario, blocks * unit)


def _without(scenario: Scenario, names: set[str]) -> Scenario:
    groups = (tuple(a for a in group if a.name not in names) for group in scenario.groups)
    return replace(scenario, groups=tuple(group for group in groups if group))


def _judged(scenario: Scenario) -> list[Ask]:
    names = {n for p in scenario.pairs for n in (p.reference, p.subject)}
    return [ask for ask in scenario.asks if ask.name in names and not ask.after]


def _shared(scenario: Scenario) -> int:
    """Tokens with which every prompt that is compared begins, the last of each left out."""
    prompts = [ask.prompt[:-1] for ask in _judged(scenario)]
    count = 0
    for column in zip(*prompts, strict=False):
        if len(set(column)) > 1:
            break
        count += 1
    return count


def _cut(scenario: Scenario, count: int) -> Scenario:
    """Without the first `count` tokens of whatever begins as the prompts that are compared do."""
    start = _judged(scenario)[0].prompt[:count]
    groups = tuple(
        tuple(
            replace(ask, prompt=ask.prompt[count:]) if ask.prompt[:count] == start else ask
            for ask in group
        )
        for group in scenario.groups
    )
    told = f"{scenario.told}, without its first {count} tokens"
    if len({a.prompt[:count] == start for a in _judged(scenario)}) > 1:
        return scenario
    return replace(scenario, groups=groups, told=told, shared=max(0, scenario.shared - count))
