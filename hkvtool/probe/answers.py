"""What a server answered, and how far two answers to one prompt lie apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite

_LEAST = -1e4
"""Below this a log probability says no more than that the token is impossible."""


@dataclass(frozen=True)
class Answer:
    """Generated tokens, by id where the server tells it; `cached` prompt tokens it says it reused.

    Without log probabilities `logprobs` and `tops` are empty. `text` is what was generated, where
    tokens could not be told apart it is all there is and `tokens` are its characters. `ids` may be
    told where `tokens` are texts, since log probabilities are told by text.
    """

    tokens: tuple[str, ...]
    logprobs: tuple[float, ...] = ()
    tops: tuple[Mapping[str, float], ...] = ()
    text: str = ""
    cached: int | None = None
    prompt_tokens: int | None = None
    request: str = ""
    seconds: float = 0.0
    ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Difference:
    """How far two answers lie apart, token by token up to the first that differs.

    `steps` are nats: by how much a log probability of the same token differs, and at the token
    that differs by how much the surer side preferred its own. Infinite where nobody can tell.
    """

    steps: tuple[float, ...]
    token_at: int | None = None

    @property
    def size(self) -> float:
        return max(self.steps, default=0.0)

    def at(self, tolerance: float) -> int | None:
        """The first generated token at which they lie further apart than that."""
        return next((i for i, step in enumerate(self.steps) if step > tolerance), None)

    def as_json(self) -> dict[str, object]:
        """Infinity is written as null: JSON has no word for it."""
        return {
            "steps": [round(s, 9) if isfinite(s) else None for s in self.steps],
            "token_at": self.token_at,
        }


def difference(reference: Answer, subject: Answer, skip: int = 0) -> Difference:
    """Compare two answers, the first `skip` tokens of the reference left out."""
    ours, theirs = reference.tokens[skip:], subject.tokens
    known = all(len(a.logprobs) == len(a.tokens) for a in (reference, subject))
    steps: list[float] = []
    for i, (x, y) in enumerate(zip(ours, theirs, strict=False)):
        if not known:
            steps.append(0.0 if x == y else inf)
        else:
            a = _told(reference, i + skip)
            b = _told(subject, i)
            steps.append(_step(a, b, x, y))
        if x != y:
            return Difference(tuple(steps), i)
    if len(ours) != len(theirs):
        # One ended where the other went on, and no token says how sure it was.
        return Difference((*steps, inf), min(len(ours), len(theirs)))
    return Difference(tuple(steps))


def _told(answer: Answer, at: int) -> dict[str, float]:
    """The log probabilities told of one place."""
    found = dict(answer.tops[at]) if at < len(answer.tops) else {}
    found.setdefault(answer.tokens[at], answer.logprobs[at])
    return {token: max(_LEAST, value) for token, value in found.items()}


def _step(a: Mapping[str, float], b: Mapping[str, float], x: str, y: str) -> float:
    apart = max((abs(a[token] - b[token]) for token in a.keys() & b.keys()), default=0.0)
    if x == y:
        return apart
    # A token that is not among those told is at most as likely as the least of them.
    ours = a[x] - a.get(y, min(a.values()))
    theirs = b[y] - b.get(x, min(b.values()))
    return max(apart, ours, theirs)
