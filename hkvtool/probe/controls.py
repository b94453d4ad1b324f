"""Comparisons in which nothing is reused: what they differ by is the server's noise.

And one in which the prompts differ: what a wrong block would look like.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hkvtool.probe.patterns import Maker
from hkvtool.probe.scenario import OTHER, Ask, Pair, Scenario


def alone(m: Maker) -> Scenario:
    """Cold twice."""
    p = m.prompt()
    asks = [m.ask("cold", p), m.ask("cold again", p, OTHER)]
    return m.one_by_one("alone", "cold twice", asks, "cold", "cold again", 0)


def decoded(m: Maker) -> Scenario:
    """Cold, once with the last tokens generated one by one and once with all in the prompt: another
    shape of the same computation, as reuse brings, but without reuse."""
    p = m.prompt()
    half = m.shape.output
    asks = [
        m.ask("generated", p, output=2 * half),
        m.ask("in the prompt", [], OTHER, after="generated", take=half),
    ]
    told = f"{half} tokens generated, or in the prompt"
    groups = tuple((ask,) for ask in asks)
    return Scenario("decoded", told, groups, (Pair("generated", "in the prompt", half),))


def at_once(m: Maker) -> Scenario:
    """Cold alone, and cold among others."""
    p = m.prompt()
    others = [m.ask(f"beside {i}", m.prompt(), f"beside {i}") for i in range(m.shape.burst - 1)]
    groups = ((m.ask("cold", p),), (m.ask("among others", p, OTHER), *others))
    return Scenario("at once", "cold among others", groups, (Pair("cold", "among others"),))


def burst(m: Maker) -> Scenario:
    """Many at once that share nothing, each against itself alone: what `load` is held against."""
    prompts = [m.prompt() for _ in range(m.shape.burst)]
    long = m.shape.output * 4
    together = tuple(
        m.ask(f"at once {i}", q, f"at once {i}", output=long) for i, q in enumerate(prompts)
    )
    colds = tuple(
        (m.ask(f"cold {i}", q, f"{OTHER} {i}", output=long),) for i, q in enumerate(prompts)
    )
    pairs = tuple(Pair(f"cold {i}", f"at once {i}") for i in range(len(prompts)))
    return Scenario("burst", "many at once, none shared", (together, *colds), pairs)


def repeat(m: Maker) -> Scenario:
    """Warm twice: all that can be asked of a server that can give no cold answer twice."""
    p = m.prompt()
    asks = [m.ask("cold", p), m.ask("warm", p), m.ask("warm again", p)]
    return m.one_by_one("repeat", "warm twice", asks, "warm", "warm again", 0)


def unshared(scenario: Scenario) -> Scenario:
    """The same requests in the same order, and nothing to reuse: each has a salt of its own."""
    groups = tuple(
        tuple(replace(ask, salt=f"{OTHER} {ask.name}") for ask in group)
        for group in scenario.groups
    )
    return replace(scenario, groups=groups, told=f"nothing shared: {scenario.told}", shared=0)


def among_strangers(scenario: Scenario, m: Maker) -> Scenario:
    """The same, and before each answer that is judged a request that has nothing to do with it:
    what is repeated must not find only itself in the place of something else."""
    groups: list[tuple[Ask, ...]] = []
    subjects = {pair.subject for pair in scenario.pairs}
    for group in scenario.groups:
        if any(ask.name in subjects for ask in group):
            groups.append((m.ask("a stranger", m.prompt(), "a stranger", output=1),))
            subjects = set()
        groups.append(group)
    return replace(scenario, groups=tuple(groups))


def changed(m: Maker) -> Scenario:
    """A prompt with one stretch of it changed, which must not look the same."""
    p, c = m.prompt(), m.cut()
    unit = min(b.tokens for b in m.shape.boundaries)
    at = min(c.at, len(p) - 1)
    start = max(0, at - unit)
    q = p[:start] + m.prompt(at - start) + p[at:]
    asks = [m.ask("one", p), m.ask("changed", q, "changed")]
    told = f"tokens {start} to {at} of {len(p)} changed"
    return m.one_by_one("changed", told, asks, "one", "changed", start)


NOISE: dict[str, Callable[[Maker], Scenario]] = {
    "alone": alone, "decoded": decoded, "at once": at_once, "burst": burst,
}  # fmt: skip
SENSITIVITY = changed
ONLY_REPEATS: dict[str, Callable[[Maker], Scenario]] = {"repeat": repeat}
