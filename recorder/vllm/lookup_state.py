"""One prefix lookup of the engine, as found group by group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Lookup:
    """What each group had by itself before the groups were reconciled to one position.

    An engine looks up again and again while a request waits for room; what is told is the lookup
    that the request went on from.
    """

    req: str
    asked: int
    groups: dict[str, tuple[int, list[int]]] = field(default_factory=dict)
    """Tokens and blocks by group, of its first answer: later ones are cut to other groups'."""

    def found(self, group: str, tokens: int, blocks: list[int]) -> None:
        """A group answers; the first answer stands."""
        if group not in self.groups:
            self.groups[group] = (tokens, blocks)

    @property
    def matched(self) -> int:
        """Tokens of the best single group."""
        return max((tokens for tokens, _ in self.groups.values()), default=0)

    def event(self) -> dict[str, Any]:
        """The `lookup` event."""
        return {
            "ev": "lookup", "req": self.req, "tokens": self.asked,
            "hit": {group: tokens for group, (tokens, _) in self.groups.items()},
            "blocks": {group: blocks for group, (_, blocks) in self.groups.items()},
        }  # fmt: skip
