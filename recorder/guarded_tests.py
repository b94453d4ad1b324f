"""A guard over the tests of an engine: which test broke what, each from a fresh start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hkvtool.recorder.guard import Guard, Mode
from hkvtool.recorder.guarded import Guarded
from hkvtool.recorder.hook_sets import attach_imported
from hkvtool.recorder.session import current
from hkvtool.recorder.violation import Violation


class GuardedTests:
    """Attaches itself to this process's session; `broken` hands out what was found since."""

    def __init__(self, mode: Mode) -> None:
        session = current()
        recording = session.of_environment()
        if isinstance(recording, Guarded):
            recording = recording.recorded
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
    """Starts from nothing where a test declares anew what an earlier one had declared."""

    def __init__(self, mode: Mode, on_violation: Iterable[Callable[[Violation], Any]]) -> None:
        self.test = ""
        self.judging = True
        self._by: dict[str, str] = {}
        """In which test each pool was declared."""
        super().__init__(mode, on_violation)

    def see(self, data: Mapping[str, Any]) -> None:
        __tracebackhide__ = True
        if data.get("ev") in ("trace", "pool"):
            self._declared(str(data.get("pool")))
        super().see(data)

    def _tell(self, violations: list[Violation]) -> None:
        if not self.judging:
            violations.clear()
        super()._tell(violations)

    def _declared(self, name: str) -> None:
        by = self._by.setdefault(name, self.test)
        if by != self.test:
            self.restart()
            self._by = {name: self.test}
