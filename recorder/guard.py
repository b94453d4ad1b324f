"""The guard: rules that are checked while the engine runs, on the events as they are told.

``HKV_GUARD=log`` says what broke and lets the engine go on; ``HKV_GUARD=raise`` stops it there.
Only the latter may: whatever goes wrong in the guard itself turns the guard off.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event
from hkvtool.recorder.environment import GUARD
from hkvtool.recorder.guard_rules import Broken, Rules
from hkvtool.recorder.violation import Violation

KEPT = 4096
"""Events remembered, of which a violation tells those that led to it."""

_SAID = 20
"""Times that one rule is logged in full; from then on it is counted."""

_log = logging.getLogger("hkvtool.guard")


class Mode(str, Enum):
    """What becomes of a violation."""

    LOG = "log"
    RAISE = "raise"


class GuardError(HkvError):
    """A rule was broken in an engine that is to stop then."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(
            violation.headline, where=f"event {violation.pos}", hint=violation.fix
        )  # fmt: skip
        self.violation = violation

    def __str__(self) -> str:
        return self.violation.text()


class Guard:
    """Judges every event it `see`s, from any thread. With `Mode.RAISE`, `see` raises GuardError;
    it raises nothing else.

    `on_violation` is called with each new violation before anything is raised: to save the rings.
    """

    def __init__(
        self,
        mode: Mode = Mode.LOG,
        on_violation: Iterable[Callable[[Violation], Any]] = (),
        rules: Rules | None = None,
    ) -> None:
        self.mode = mode
        self.on_violation = list(on_violation)
        self.off: str | None = None
        """Why the guard turned itself off."""
        self.count: Counter[str] = Counter()
        """Violations by rule."""
        self._mutex = threading.RLock()
        self._inside = False
        self._pos = 0
        self.rules = Rules()
        self.refused = 0
        """Events that made no sense, up to the last restart."""
        self.restart()
        if rules is not None:
            self.rules = rules

    @staticmethod
    def asked_for(environ: Mapping[str, str] = os.environ) -> Guard | None:
        """The guard that the environment asks for. A mode that is none is said, not raised."""
        wanted = environ.get(GUARD, "").strip().lower()
        if wanted in ("", "0", "off"):
            return None
        try:
            return Guard(Mode(wanted))
        except ValueError:
            print(
                f"hkvtool: {GUARD}={wanted} is no mode: the guard is off; say log or raise",
                file=sys.stderr,
            )
            return None

    def restart(self) -> None:
        """Start from nothing: what comes now is told by another engine."""
        with self._mutex:
            self.refused += self.rules.refused
            self.rules = Rules()
            self._recent: deque[Event] = deque(maxlen=KEPT)

    @property
    def seen(self) -> int:
        """Events judged so far; of a recording, the position of the last one."""
        return self._pos

    def see(self, data: Mapping[str, Any]) -> None:
        """Judge one event, given as its object, which must not be changed any more."""
        __tracebackhide__ = True
        self._judge(data, None)

    def read(self, event: Event) -> None:
        """Judge one event of a recording; it keeps its position."""
        __tracebackhide__ = True
        self._judge(event.data, event)

    def _judge(self, data: Mapping[str, Any], event: Event | None) -> None:
        __tracebackhide__ = True
        if self.off is not None:
            return
        with self._mutex:
            # What an engine does in a signal handler, or in answer to a violation, is not judged:
            # the event that it comes upon is only half folded.
            if self._inside:
                return
            self._inside = True
            try:
                if event is None:
                    pos = self._pos = self._pos + 1
                    event = Event.of(pos, data if type(data) is dict else dict(data))
                else:
                    self._pos = event.pos
                event = event.meant
                self._recent.append(event)
                if event.problem is not None:
                    self.rules.refused += 1
                    return
                broken = self.rules.judge(event)
                if not broken:
                    return
                violations = [self._violation(event, b) for b in broken]
                self._tell(violations)
            except Exception as e:
                self._turn_off(e)
                return
            finally:
                self._inside = False
        if violations and self.mode is Mode.RAISE:
            raise GuardError(violations[0])

    def guarding(self, emit: Callable[[Mapping[str, Any]], Any]) -> Callable[..., Any]:
        """`emit`, followed by the guard: what it refuses is stored first."""

        def stored_and_judged(data: Mapping[str, Any]) -> Any:
            stored = emit(data)
            self.see(data)
            return stored

        return stored_and_judged

    def _violation(self, event: Event, broken: Broken) -> Violation:
        fold = self.rules.scene.fold
        real = [s for s in broken.slots if s >= 0]
        pool = fold.pool_of(real[0]).name if real else None
        blocks = tuple(fold.block_of[s] for s in real)
        led = _led_to(self._recent, self.rules, pool, blocks, broken)
        return Violation(
            broken.code, broken.message, event.pos, broken.group, pool, blocks, broken.request, led
        )

    def _tell(self, violations: list[Violation]) -> None:
        for violation in violations:
            self.count[violation.code] += 1
            times = self.count[violation.code]
            if self.mode is Mode.LOG and times <= _SAID:
                more = "" if times < _SAID else "\n  more of this rule is counted, not logged"
                _log.error("%s%s", violation.text(), more)
            for call in self.on_violation:
                call(violation)

    def _turn_off(self, error: Exception) -> None:
        self.off = f"{type(error).__name__}: {error}"
        _log.warning("the guard turned itself off at event %d: %s", self._pos, self.off)


def _led_to(
    recent: Iterable[Event], rules: Rules, pool: str | None, blocks: tuple[int, ...], broken: Broken
) -> tuple[Event, ...]:
    """The last events that name what broke."""
    wanted = set(blocks)
    found: deque[Event] = deque(maxlen=16)
    kept: dict[int, Event] = {}
    for event in recent:
        if event.pos in broken.events:
            kept[event.pos] = event
        if _names(event, rules, pool, wanted) or (not wanted and event.req == broken.request):
            found.append(event)
    kept.update((e.pos, e) for e in found)
    return tuple(kept[pos] for pos in sorted(kept))


def _names(event: Event, rules: Rules, pool: str | None, blocks: set[int]) -> bool:
    """Whether an event names one of the blocks."""
    for key in ("blocks", "src", "dst", "failed"):
        named = event.get(key)
        if isinstance(named, dict):
            for group, ids in named.items():
                where = rules.scene.fold.group(group)
                if where is not None and where.pool.name == pool and not blocks.isdisjoint(ids):
                    return True
        elif isinstance(named, (list, tuple)) and not blocks.isdisjoint(named):
            _, place = rules.scene.fold.place(event)
            if place is None or place.name == pool:
                return True
    return False
