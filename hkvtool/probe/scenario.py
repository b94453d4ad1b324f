"""A reuse pattern as what is sent, in order: data, to be kept, shrunk, sent again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hkvtool.model.errors import HkvError
from hkvtool.probe.prompts import Piece

FORMAT = "hkv-probe/1"

SHARED, OTHER = "shared", "other"
"""The salt of what may be reused, and how salts begin that make seen tokens cold again."""


@dataclass(frozen=True)
class Ask:
    """One request. Those with one `salt` may share a cache; one whose salt no earlier ask has is
    answered cold. `after`: its prompt goes on behind the prompt and answer of that ask, or behind
    the first `take` tokens of that answer."""

    name: str
    prompt: tuple[Piece, ...]
    salt: str
    output: int
    model: str = ""
    after: str = ""
    take: int = 0
    abort: bool = False


@dataclass(frozen=True)
class Pair:
    """Two asks whose answers must be the same; `skip` tokens of the reference come before."""

    reference: str
    subject: str
    skip: int = 0


@dataclass(frozen=True)
class Scenario:
    """Groups of asks; those of one group are sent at once, groups one after the other."""

    pattern: str
    told: str
    groups: tuple[tuple[Ask, ...], ...]
    pairs: tuple[Pair, ...]
    shared: int = 0
    """Prompt tokens that the subject has in common with what was sent before it."""
    separate: str = ""
    """An ask that must find nothing cached: its salt is another's."""

    @property
    def asks(self) -> list[Ask]:
        return [ask for group in self.groups for ask in group]

    @property
    def salts(self) -> list[str]:
        return list(dict.fromkeys(ask.salt for ask in self.asks))

    @property
    def cold_again(self) -> bool:
        """Whether it asks for something cold that the server has seen before."""
        return any(ask.salt.startswith(OTHER) for ask in self.asks)

    @property
    def cost(self) -> tuple[int, int]:
        """Requests, and tokens sent and asked for."""
        asks = {ask.name: ask for ask in self.asks}
        total = 0
        for ask in self.asks:
            total += len(ask.prompt) + ask.output
            if ask.after:
                total += len(asks[ask.after].prompt) + asks[ask.after].output
        return len(asks), total

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT, "pattern": self.pattern, "told": self.told, "shared": self.shared,
            "separate": self.separate,
            "groups": [
                [
                    {"name": a.name, "prompt": list(a.prompt), "salt": a.salt, "output": a.output}
                    | ({"model": a.model} if a.model else {})
                    | ({"after": a.after} if a.after else {})
                    | ({"take": a.take} if a.take else {})
                    | ({"abort": True} if a.abort else {})
                    for a in group
                ]
                for group in self.groups
            ],
            "pairs": [
                {"reference": p.reference, "subject": p.subject, "skip": p.skip}
                for p in self.pairs
            ],
        }  # fmt: skip


def scenario_of(data: Any, where: str) -> Scenario:
    """A scenario as `as_json` wrote it. Raises HkvError."""
    try:
        if data["format"] != FORMAT:
            raise ValueError(f"its format is {data['format']!r}, not {FORMAT!r}")
        groups = tuple(
            tuple(
                Ask(
                    str(a["name"]), _prompt(a["prompt"]), str(a["salt"]), int(a["output"]),
                    str(a.get("model", "")), str(a.get("after", "")), int(a.get("take", 0)),
                    bool(a.get("abort", False)),
                )
                for a in group
            )
            for group in data["groups"]
        )  # fmt: skip
        pairs = tuple(
            Pair(str(p["reference"]), str(p["subject"]), int(p.get("skip", 0)))
            for p in data["pairs"]
        )
        found = Scenario(
            str(data["pattern"]), str(data["told"]), groups, pairs, int(data.get("shared", 0)),
            str(data.get("separate", "")),
        )  # fmt: skip
        _whole(found)
        return found
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise HkvError(
            f"that is no replay of a probe: {e}", where=where,
            hint="`hkvtool probe URL --save FOLDER` writes one for each divergence",
        ) from None  # fmt: skip


def _prompt(pieces: Sequence[Any]) -> tuple[Piece, ...]:
    if any(isinstance(p, bool) or not isinstance(p, (int, str)) for p in pieces):
        raise ValueError("a prompt is a list of token ids and texts")
    return tuple(pieces)


def _whole(scenario: Scenario) -> None:
    """See that every name stands for an ask that comes before it is needed. Raises ValueError."""
    seen: set[str] = set()
    for group in scenario.groups:
        for ask in group:
            if ask.name in seen:
                raise ValueError(f"two asks are called {ask.name!r}")
            if ask.after and ask.after not in seen:
                raise ValueError(f"{ask.name!r} goes on behind {ask.after!r}, which is not there")
            if ask.output < 1:
                raise ValueError(f"{ask.name!r} asks for nothing")
        seen |= {ask.name for ask in group}
    aborted = {ask.name for ask in scenario.asks if ask.abort}
    for pair in scenario.pairs:
        for name in (pair.reference, pair.subject):
            if name not in seen or name in aborted:
                raise ValueError(f"there is no answer {name!r} to compare")
