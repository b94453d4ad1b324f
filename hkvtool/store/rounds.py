"""What a flight recorder tells again and again, and who needs it.

Its beginning is overwritten, so it tells the `state` of a few blocks at some steps, all of a pool
in turn, and marks such events with the number of the `round`, the `first` and the `last` of it.
Round 0 tells nothing: it says that what follows is told from the beginning.

Who begins to read in the middle cannot tell what was written by requests whose tables were told
before, so nothing counts until a round begins, and nothing of a pool until one of its own does.
Who knows what a pool holds passes rounds over, since a `state` takes back what is known of content.
"""

from __future__ import annotations

from hkvtool.model.event import Event
from hkvtool.model.events import DECLARATIONS


class Rounds:
    """Which events of a recording are to be folded; each is asked for once, in order."""

    def __init__(self) -> None:
        self._rolling = False
        self._begun = False
        self._waiting: set[str] = set()
        """Pools of which neither the beginning nor a round has been met."""
        self._pools: dict[str, str] = {}
        """The pool of each group."""
        self._known: set[str] = set()
        self._under_way: dict[str, int] = {}

    def knows(self, pool: str) -> bool:
        """Whether all that a pool holds has been told."""
        return pool in self._known

    def needs(self, event: Event) -> bool:
        """Whether an event tells what counts and is not known yet."""
        ev = event.ev
        if ev == "trace":
            self._rolling = self._rolling or event.get("rolling") is True
        elif ev == "pool" and self._rolling and "engine" in event:
            self._waiting |= {str(event["pool"])} - self._known
        elif ev == "group":
            self._pools[str(event["group"])] = str(event["pool"])
        elif ev == "dropped":
            self._known.clear()
            self._under_way.clear()
        elif ev == "state" and event.problem is None:
            return self._counts(event, str(event["pool"]))
        return ev in DECLARATIONS or not self._waiting or (self._begun and self._of_begun(event))

    def _of_begun(self, event: Event) -> bool:
        """Whether an event is of no pool, or of one that has begun: an engine that stands still
        tells no round, and holds nobody up."""
        pool = event.get("pool") or self._pools.get(str(event.get("group")))
        return pool not in self._waiting

    def _counts(self, event: Event, pool: str) -> bool:
        number = event.get("round")
        if number is None or number == 0:
            # All of it at once, or nothing: it begins here.
            self._known.add(pool)
            self._begin(pool)
            return number is None
        if pool in self._known:
            return False
        if event.get("first"):
            self._under_way[pool] = number
            self._begin(pool)
        if event.get("last") and self._under_way.get(pool) == number:
            self._known.add(pool)
        return pool not in self._waiting

    def _begin(self, pool: str) -> None:
        self._begun = True
        self._waiting.discard(pool)
