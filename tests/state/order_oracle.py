"""Happens-before the slow and obvious way, from the text of the trace format alone.

Every event is two nodes, its start and its end; a transfer is two more between its begin and
its end event. The edges are written down one by one as "Time and order" lists them, then the
closure is taken. One access is before another when a path leads from the end of the first to
the start of the second. Shares no code with `hkvtool.state.order`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

ACCESSES = {"write", "seal", "index", "zero", "copy", "use", "buffer", "select"}


def lane(event: dict[str, Any]) -> str:
    if "actor" in event:
        return str(event["actor"])
    return "device" if "step" in event and event["ev"] in ACCESSES else "sched"


class Oracle:
    """The order of a whole trace; events are named by their index."""

    def __init__(
        self, events: Sequence[dict[str, Any]], extra: Sequence[tuple[Any, Any]] = ()
    ) -> None:
        self.events = events
        n = len(events)
        self.next: dict[Any, set[Any]] = {}
        for i in range(n):
            self._edge(("start", i), ("end", i))
            self._lane(i)
            self._wait(i)
            self._step(i)
            self._transfer(i)
        for source, target in extra:
            self._edge(source, target)
        self.reach: dict[Any, set[Any]] = {}

    def _edge(self, source: Any, target: Any) -> None:
        self.next.setdefault(source, set()).add(target)

    def _lane(self, i: int) -> None:
        """One lane is sequential."""
        for j in range(i + 1, len(self.events)):
            if lane(self.events[j]) == lane(self.events[i]):
                self._edge(("end", i), ("start", j))

    def _wait(self, i: int) -> None:
        """`signal` -> `wait` with the same `event`: the latest one before it in line order."""
        if self.events[i]["ev"] != "wait":
            return
        for j in reversed(range(i)):
            signal = self.events[j]
            if signal["ev"] == "signal" and signal["event"] == self.events[i]["event"]:
                self._edge(("end", j), ("start", i))
                return

    def _step(self, i: int) -> None:
        """`dispatch` of a step -> every op that carries it; every op of a step -> its `retire`."""
        for j in range(i + 1, len(self.events)):
            first, second = self.events[i], self.events[j]
            if "step" not in first or first["step"] != second.get("step"):
                continue
            bounds = ("dispatch", "retire")
            if first["ev"] == "dispatch" and second["ev"] not in bounds:
                self._edge(("end", i), ("start", j))
            if first["ev"] not in bounds and second["ev"] == "retire":
                self._edge(("end", i), ("start", j))

    def _transfer(self, i: int) -> None:
        """What a lane did before `*_begin` -> the transfer -> its `*_end`."""
        begin = self.events[i]
        if not begin["ev"].endswith("_begin"):
            return
        self._edge(("end", i), ("moving", i))
        self._edge(("moving", i), ("moved", i))
        ends = begin["ev"].replace("_begin", "_end")
        for j in range(i + 1, len(self.events)):
            end = self.events[j]
            if end["ev"] == ends and end["handle"] == begin["handle"]:
                self._edge(("moved", i), ("start", j))
                return

    def source(self, i: int) -> Any:
        return ("moved" if self.events[i]["ev"].endswith("_begin") else "end", i)

    def target(self, i: int) -> Any:
        return ("moving" if self.events[i]["ev"].endswith("_begin") else "start", i)

    def before(self, i: int, j: int) -> bool:
        """What event `i` does has ended before what event `j` does starts."""
        source = self.source(i)
        if source not in self.reach:
            seen: set[Any] = set()
            todo = list(self.next.get(source, ()))
            while todo:
                node = todo.pop()
                if node not in seen:
                    seen.add(node)
                    todo.extend(self.next.get(node, ()))
            self.reach[source] = seen
        return self.target(j) in self.reach[source]
