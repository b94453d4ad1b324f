"""What an engine says of its prefix cache, counted while it is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hkvtool.model.events import EVENTS

RATIO_KINDS = frozenset(EVENTS[name].code for name in ("lookup", "resume"))
"""Numbers of the events that say something of it."""

_OPEN = 100_000
"""Lookups that wait for their resume."""


@dataclass
class Ratio:
    """Tokens that lookups asked for and matched, and from where the engine resumed: as it said,
    not as a check would."""

    asked: int = 0
    matched: int = 0
    resumed: int = 0
    _best: dict[str, int] = field(default_factory=dict)

    def see(self, data: Mapping[str, Any]) -> None:
        """Take a lookup or a resume into account."""
        req = str(data.get("req"))
        if data.get("ev") == "resume":
            at = data.get("at")
            self.resumed += min(self._best.pop(req, 0), at if type(at) is int else 0)
            return
        hit, tokens = data.get("hit"), data.get("tokens")
        found = hit.values() if isinstance(hit, dict) else ()
        best = max((t for t in found if type(t) is int), default=0)
        self.asked += max(best, tokens if type(tokens) is int else 0)
        self.matched += best
        if len(self._best) > _OPEN:
            self._best.clear()
        self._best[req] = best
