"""The ways in which a server reuses what it has, each as a scenario with new prompts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from hkvtool.probe.prompts import VOCABULARY, Boundary, Cut, Piece, cut, fresh
from hkvtool.probe.scenario import OTHER, SHARED, Ask, Pair, Scenario


@dataclass(frozen=True)
class Shape:
    """How long prompts and answers are, where they may be cut, and what there is to use."""

    length: int = 200
    output: int = 8
    boundaries: tuple[Boundary, ...] = (Boundary("block", 16),)
    burst: int = 4
    adapters: tuple[str, ...] = ()
    filler: int = 0
    """Tokens that push everything else out of the cache; 0 where that is not known."""
    vocabulary: tuple[int, int] = VOCABULARY


@dataclass
class Maker:
    """Makes a scenario of prompts never sent before; `turn` says at which boundary they are cut."""

    shape: Shape
    rng: random.Random
    turn: int = 0

    def prompt(self, count: int | None = None) -> list[Piece]:
        return fresh(self.rng, count or self.shape.length, self.shape.vocabulary)

    def cut(self) -> Cut:
        return cut(self.shape.boundaries, self.shape.length, self.rng, self.turn)

    def ask(
        self, name: str, prompt: list[Piece], salt: str = SHARED, *, output: int = 0,
        model: str = "", after: str = "", take: int = 0, abort: bool = False,
    ) -> Ask:  # fmt: skip
        length = output or self.shape.output
        return Ask(name, tuple(prompt), salt, length, model, after, take, abort)

    def fillers(self, tokens: int) -> list[tuple[Ask, ...]]:
        """Other people's prompts, so many tokens of them, a few at a time."""
        count = max(1, -(-tokens // self.shape.length))
        asks = [
            self.ask(f"filler {i}", self.prompt(), f"filler {i}", output=1) for i in range(count)
        ]
        step = max(1, self.shape.burst)
        return [tuple(asks[i : i + step]) for i in range(0, count, step)]

    def one_by_one(
        self, pattern: str, told: str, asks: list[Ask], reference: str, subject: str,
        shared: int, *, separate: str = "",
    ) -> Scenario:  # fmt: skip
        groups = tuple((ask,) for ask in asks)
        return Scenario(pattern, told, groups, (Pair(reference, subject),), shared, separate)


def warm(m: Maker) -> Scenario:
    """The same prompt again."""
    c = m.cut()
    p = m.prompt(c.at + 1)
    asks = [m.ask("cold", p), m.ask("again", p)]
    told = f"the same {len(p)} tokens again; one less ends {c.told}"
    return m.one_by_one("warm", told, asks, "cold", "again", len(p))


def extend(m: Maker) -> Scenario:
    """A prompt that goes on behind one that was sent before."""
    p, c = m.prompt(), m.cut()
    asks = [m.ask("before", p[: c.at]), m.ask("longer", p), m.ask("cold", p, OTHER)]
    return m.one_by_one("extend", f"goes on {c.told}", asks, "cold", "longer", c.at)


def fork(m: Maker) -> Scenario:
    """A prompt that parts from one that was sent before."""
    p, c = m.prompt(), m.cut()
    f = p[: c.at] + m.prompt(len(p) - c.at)
    asks = [m.ask("before", p), m.ask("fork", f), m.ask("cold", f, OTHER)]
    return m.one_by_one("fork", f"parts {c.told}", asks, "cold", "fork", c.at)


def back(m: Maker) -> Scenario:
    """A, then B that shares a part of it, then A again."""
    p, c = m.prompt(), m.cut()
    f = p[: c.at] + m.prompt(len(p) - c.at)
    asks = [m.ask("cold", p), m.ask("between", f), m.ask("again", p)]
    told = f"A, B that parts {c.told}, A again"
    return m.one_by_one("return", told, asks, "cold", "again", len(p))


def turns(m: Maker) -> Scenario:
    """A conversation: what was generated becomes a part of the next prompt."""
    p, more = m.prompt(m.cut().at + 1), m.prompt(max(4, m.shape.length // 4))
    asks = [
        m.ask("first", p), m.ask("next", more, after="first"),
        m.ask("cold", more, OTHER, after="first"),
    ]  # fmt: skip
    told = f"{len(p)} tokens, the answer, and {len(more)} more"
    return m.one_by_one("turns", told, asks, "cold", "next", len(p) + m.shape.output)


def churn(m: Maker) -> Scenario:
    """The same prompt again after others came between."""
    return _returning(m, "churn", m.shape.length * m.shape.burst)


def reload(m: Maker) -> Scenario:
    """The same prompt again after so many others that it can only come from a lower tier."""
    return _returning(m, "reload", m.shape.filler)


def _returning(m: Maker, pattern: str, tokens: int) -> Scenario:
    p = m.prompt()
    fillers = m.fillers(tokens)
    groups = [(m.ask("cold", p),), *fillers, (m.ask("again", p),)]
    told = f"again after {sum(len(a.prompt) for g in fillers for a in g):,} tokens of others"
    return Scenario(pattern, told, tuple(groups), (Pair("cold", "again"),), len(p))


def load(m: Maker) -> Scenario:
    """Many at once that share a part, long enough to push one another out."""
    p, c = m.prompt(), m.cut()
    shared = p[: c.at]
    prompts = [shared + m.prompt(len(p) - c.at) for _ in range(m.shape.burst)]
    long = m.shape.output * 4
    burst = tuple(m.ask(f"at once {i}", q, output=long) for i, q in enumerate(prompts))
    colds = [(m.ask(f"cold {i}", q, f"{OTHER} {i}", output=long),) for i, q in enumerate(prompts)]
    pairs = tuple(Pair(f"cold {i}", f"at once {i}") for i in range(len(prompts)))
    told = f"{len(prompts)} at once that part {c.told}"
    return Scenario("load", told, ((m.ask("before", p),), burst, *colds), pairs, c.at)


def salt(m: Maker) -> Scenario:
    """The same prompt under another salt, which must find nothing."""
    p = m.prompt()
    asks = [m.ask("one salt", p), m.ask("another", p, OTHER)]
    return m.one_by_one(
        "salt", "the same tokens under another salt", asks, "one salt", "another", 0,
        separate="another",
    )  # fmt: skip


def adapter(m: Maker) -> Scenario:
    """The same prompt for an adapter after the model itself has seen it."""
    p = m.prompt()
    name = m.rng.choice(m.shape.adapters)
    asks = [
        m.ask("base", p), m.ask("adapted", p, model=name), m.ask("cold", p, OTHER, model=name),
    ]  # fmt: skip
    told = f"the same tokens for {name}"
    return m.one_by_one("adapter", told, asks, "cold", "adapted", 0, separate="adapted")


def abort(m: Maker) -> Scenario:
    """A request that is given up in the middle and sent again."""
    p = m.prompt()
    asks = [
        m.ask("given up", p, output=m.shape.output * 4, abort=True), m.ask("again", p),
        m.ask("cold", p, OTHER),
    ]  # fmt: skip
    return m.one_by_one("abort", "given up and sent again", asks, "cold", "again", len(p))


PATTERNS: dict[str, Callable[[Maker], Scenario]] = {
    "warm": warm, "extend": extend, "fork": fork, "return": back, "turns": turns, "churn": churn,
    "reload": reload, "load": load, "salt": salt, "adapter": adapter, "abort": abort,
}  # fmt: skip
"""In the order in which they take turns."""
