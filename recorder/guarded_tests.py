"""A guard over the tests of an engine: which test broke what, each from a fresh start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hkvtool.recorder.adapters import attach_imported
from hkvtool.recorder.guard import Guard, Mode
from hkvtool.recorder.guarded import Guarded, Watched
from hkvtool.recorder.session import current
from hkvtool.recorder.violation import Violation


class GuardedTests:
    """Attaches itself to this process's session; `broken` hands out what was found since."""

    def __init__(self, mode: Mode) -> None:
        session = current()
        recording = session.of_environment()
        if isinstance(recording, Watched):
            recording = recording.unwatched()
        self.guard = _TestGuard(mode, [self._found])
        self.tests = 0
        self.failed = 0
        self.engines: list[str] = []
        self._new: list[Violation] = []
        session.take(Guarded(self.guard, recording))

    def begin(self, test: str, *, judged: bool = True) -> None:
        """A test starts; engines that were imported meanwhile are attached to."""
        self.tests += 1
        self.guard.test = test
        self.guard.judging = judged
        self.engines += attach_imported(self.engines)

    def broken(self) -> list[Violation]:
        """What broke since this was last asked, in order."""
        found, self._new = self._new, []
        self.failed += bool(found)
        return found

    def end(self) -> None:
        """Take every hook off again."""
        current().end()

    def summary(self) -> list[str]:
        """What a person should know at the end."""
        guard = self.guard
        lines = [f"{guard.seen:,} events judged, {guard.count.total()} broken rules"]
        if guard.count:
            each = ", ".join(f"{code} {times}" for code, times in sorted(guard.count.items()))
            lines[0] += f" ({each})"
        if not guard.seen:
            lines.append("no engine told anything: nothing was judged")
        refused = guard.refused + guard.rules.refused
        if refused:
            lines.append(f"{refused:,} events made no sense and were left out")
        if guard.off:
            lines.append(f"the guard turned itself off: {guard.off}")
        return lines

    def _found(self, violation: Violation) -> None:
        self._new.append(violation)


class _TestGuard(Guard):
    """Starts from nothing where a test makes pools of its own. An engine that several tests share
    is taken up again as it is met: of its blocks nothing is known until they are handed out."""

    def __init__(self, mode: Mode, on_violation: Iterable[Callable[[Violation], Any]]) -> None:
        self.test = ""
        self.judging = True
        self._began = ""
        """The test for which it started last."""
        self._header: list[Mapping[str, Any]] = []
        self._pools: dict[str, list[Mapping[str, Any]]] = {}
        """Declarations of every pool and of its groups."""
        self._pool_of: dict[str, str] = {}
        self._here: set[str] = set()
        """Pools that were declared since it started."""
        super().__init__(mode, on_violation)

    def see(self, data: Mapping[str, Any]) -> None:
        __tracebackhide__ = True
        ev = data.get("ev")
        if ev == "pool" and self._began != self.test:
            self._began = self.test
            self._here.clear()
            self.restart()
            self._again(self._header)
        if ev in ("trace", "evidence"):
            self._header = [data] if ev == "trace" else [*self._header[:1], data]
        elif ev == "pool":
            self._pools[str(data["pool"])] = [data]
            self._here.add(str(data["pool"]))
        else:
            self._take_up(ev, data)
        super().see(data)

    def _take_up(self, ev: Any, data: Mapping[str, Any]) -> None:
        """Declare again what an event names and an earlier test declared."""
        group = data.get("group")
        if ev == "group" and data.get("pool") in self._pools:
            self._pool_of[str(group)] = str(data["pool"])
            self._pools[str(data["pool"])].append(data)
        names = [data.get(key) for key in ("pool", "to", "from") if key in data]
        if group is not None:
            names.append(self._pool_of.get(str(group)))
        for name in names:
            if name in self._pools and name not in self._here:
                self._here.add(str(name))
                self._again(self._pools[str(name)])

    def _again(self, events: Iterable[Mapping[str, Any]]) -> None:
        for event in events:
            super().see(event)

    def _tell(self, violations: list[Violation]) -> None:
        if not self.judging:
            violations.clear()
        super()._tell(violations)
