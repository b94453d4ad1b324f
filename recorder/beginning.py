"""Beginning to record in an engine that may run already: between two of its steps.

Who asks for a recording is a thread of its own, and the engine may be in the middle of taking
blocks. What the engine has is therefore looked at, and the hooks are put on, by the engine's own
thread, where its next step begins.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from threading import RLock
from typing import Any, ClassVar, Generic, TypeVar

from hkvtool.recorder.guard import GuardError
from hkvtool.recorder.patches import Target, find, unwrap, wrap
from hkvtool.recorder.session import say

Hooks = TypeVar("Hooks")
Found = TypeVar("Found")

Place = tuple[str, str, str]
"""A module, a class in it and a function of that."""


class Beginning(Generic[Hooks, Found]):
    """The hooks of one recording in this process, from the wish for them to their end."""

    engine: ClassVar[str]
    step: ClassVar[Place]
    """Where its next step begins."""
    made: ClassVar[Place]
    """Where one more of what is followed begins."""

    def __init__(self, attach: Callable[[], Hooks]) -> None:
        self._attach = attach
        self._mutex = RLock()
        self._gates: list[Target] = []
        self._found: Found | None = None
        self._grown = False
        self._hooks: Hooks | None = None
        self._over = False

    # --- what a subclass says of its engine ------------------------------------------------

    def look(self) -> Found:
        """What the engine has made in this process so far."""
        raise NotImplementedError

    def runs(self, found: Found) -> bool:
        """Whether an engine runs here."""
        raise NotImplementedError

    def of_step(self, found: Found, scheduler: Any) -> Found:
        """The same, with what only the one whose step begins knows."""
        return found

    def take_over(self, hooks: Hooks, found: Found) -> None:
        """Tell what there is already."""
        raise NotImplementedError

    def take_off(self, hooks: Hooks) -> bool:
        """Put the engine's own functions back; says whether anything was told."""
        raise NotImplementedError

    def geometry_of(self, hooks: Hooks) -> list[Mapping[str, Any]]:
        """What was told of pools, groups and kernels."""
        raise NotImplementedError

    # --- what is the same of all -----------------------------------------------------------

    def begin(self) -> None:
        """Put the hooks on: now where no engine runs in this process, else at its next step."""
        self._found = self.look()
        gate = _target(*self.step) if self.runs(self._found) else None
        if gate is None:
            self._put_on(self._found)
            return
        self._gates.append(gate)
        wrap(gate, self._at_next_step(gate))
        made = _target(*self.made)
        if made is not None:
            self._gates.append(made)
            wrap(made, self._one_more(made))

    def end(self) -> bool:
        """Put the engine's own functions back, from any thread; says whether the blocks of an
        engine were told of, as they are by one of its processes."""
        with self._mutex:
            self._over = True
            self._open()
            return self._hooks is not None and self.take_off(self._hooks)

    def geometry(self) -> list[Mapping[str, Any]]:
        """What was told of pools, groups and kernels."""
        return [] if self._hooks is None else self.geometry_of(self._hooks)

    def _one_more(self, made: Target) -> Callable[..., Any]:
        """An engine that begins while one that stands still is waited for."""

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self._grown = True
            return made.function(*args, **kwargs)

        return wrapper

    def _at_next_step(self, gate: Target) -> Callable[..., Any]:
        def wrapper(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            with self._mutex:
                waits = bool(self._gates) and not self._over
                self._open()
                if waits:
                    try:
                        found = self._found
                        if self._grown or found is None:
                            found = self.look()
                        self._put_on(self.of_step(found, scheduler))
                    except GuardError:
                        raise
                    except Exception as e:
                        say(f"cannot attach to {self.engine}: {type(e).__name__}: {e}")
            # What stands there now: the hook, or the engine's own.
            return getattr(gate.owner, gate.name)(scheduler, *args, **kwargs)

        return wrapper

    def _put_on(self, found: Found) -> None:
        self._hooks = self._attach()
        self.take_over(self._hooks, found)

    def _open(self) -> None:
        while self._gates:
            unwrap(self._gates.pop())


def _target(module: str, name: str, function: str) -> Target | None:
    """A function of the engine that stands at a gate until the hooks are put on."""
    owner = getattr(sys.modules.get(module), name, None)
    found = None if owner is None else find(owner, function)
    return found if isinstance(found, Target) else None
