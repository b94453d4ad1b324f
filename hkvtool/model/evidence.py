"""What a trace lets a rule see: the evidence classes it declares, or those its events imply.

Source: trace-format `hkv/1`, row `trace`: left out, `evidence` is what the kinds of events
present imply.
"""

from __future__ import annotations

from collections.abc import Iterable

from hkvtool.model.event import Event
from hkvtool.model.events import DECLARATIONS, EVENTS, EVIDENCE

DECLARED = "declared"
IMPLIED = "implied"

_OF_KIND = {
    "dispatch": "step", "retire": "step",
    "signal": "stream", "wait": "stream",
    "kernel": "layout", "rebase": "layout",
    "remap": "map",
    "fingerprint": "bytes",
    "wire": "wire",
    "capture": "graph", "launch": "graph",
    "lease": "lease",
}  # fmt: skip

_SAYS_NOTHING = DECLARATIONS | {"weights", "dropped"}


def implied_by_kind(kind: str) -> str | None:
    """The evidence class that an event of this kind is itself; most are book-keeping: `host`."""
    found = _OF_KIND.get(kind)
    if found is not None:
        return found
    return None if kind in _SAYS_NOTHING or kind not in EVENTS else "host"


def implied_by(event: Event) -> frozenset[str]:
    """Every evidence class that one event shows to be there: its kind's, `layout` where it
    states one, `key` where it states hash inputs, `stream` where its lane is a device stream.

    Other lanes imply nothing: a recorder can know the worker and yet see no stream order, and
    then every missing edge would look like a race.
    """
    if event.problem is not None:
        return frozenset()
    found = {implied_by_kind(event.ev)}
    if event.actor.startswith("stream:"):
        found.add("stream")
    found.update(name for name in ("layout", "key") if name in event)
    return frozenset(name for name in found if name is not None)


class Evidence:
    """The evidence of a trace, gathered as its events go by.

    The first `trace` line that lists `evidence` decides. `evidence` events change it from
    their position on; that is the fold's to follow, not part of what is said here.
    """

    def __init__(self) -> None:
        self._declared: list[str] | None = None
        self._implied: set[str] = set()

    @property
    def settled(self) -> bool:
        """True once nothing that is still to come can change it."""
        return self._declared is not None

    def see(self, event: Event) -> None:
        """Take the next event of the trace into account."""
        if self._declared is not None or event.problem is not None:
            return
        if event.ev == "trace" and "evidence" in event:
            self._declared = [str(name) for name in event["evidence"]]
            return
        self._implied |= implied_by(event)

    def see_kinds(self, kinds: Iterable[str]) -> None:
        """The same for many events of which only the kinds are at hand."""
        self._implied.update(c for c in map(implied_by_kind, kinds) if c is not None)

    @property
    def source(self) -> str:
        return IMPLIED if self._declared is None else DECLARED

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of `EVIDENCE`; declared ones it does not know stand last."""
        if self._declared is None:
            return tuple(name for name in EVIDENCE if name in self._implied)
        known = [name for name in EVIDENCE if name in self._declared]
        return tuple(known + [n for n in dict.fromkeys(self._declared) if n not in EVIDENCE])


def evidence_of(events: Iterable[Event]) -> Evidence:
    """The evidence of a whole trace."""
    found = Evidence()
    for event in events:
        found.see(event)
    return found
