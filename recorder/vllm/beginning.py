"""Beginning to record in an engine that may run already: between two of its steps.

Who asks for a recording is a thread of its own, and the engine may be in the middle of taking
blocks. What the engine has is therefore looked at, and the hooks are put on, by the engine's own
thread, where its next step begins.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import RLock
from typing import Any

from hkvtool.recorder.guard import GuardError
from hkvtool.recorder.patches import Target, find, unwrap, wrap
from hkvtool.recorder.session import say
from hkvtool.recorder.vllm.hooks import Hooks
from hkvtool.recorder.vllm.late import Running, running, take_over

_SCHEDULER = "vllm.v1.core.sched.scheduler"


class Beginning:
    """The hooks of one recording in this process, from the wish for them to their end."""

    def __init__(self, attach: Callable[[], Hooks]) -> None:
        self._attach = attach
        self._mutex = RLock()
        self._gate: Target | None = None
        self._hooks: Hooks | None = None
        self._over = False

    def begin(self) -> None:
        """Put the hooks on: now where no engine runs in this process, else at its next step."""
        found = running()
        gate = _plans() if found.managers else None
        if gate is None:
            self._put_on(found)
            return
        self._gate = gate
        wrap(gate, self._at_next_step(gate, found))

    def end(self) -> bool:
        """Put the engine's own functions back, from any thread; says whether the blocks of an
        engine were told of, as they are by one of its processes."""
        with self._mutex:
            self._over = True
            self._open()
            if self._hooks is None:
                return False
            told = bool(self._hooks.pools)
            self._hooks.remove()
            return told

    def geometry(self) -> list[Mapping[str, Any]]:
        """What was told of pools, groups and kernels."""
        return [] if self._hooks is None else list(self._hooks.tell.geometry)

    def _at_next_step(self, gate: Target, found: Running) -> Callable[..., Any]:
        def wrapper(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            with self._mutex:
                waits = self._gate is not None and not self._over
                self._open()
                if waits:
                    try:
                        config = getattr(scheduler, "vllm_config", None)
                        known = found.configs or ([config] if config else [])
                        self._put_on(replace(found, configs=known))
                    except GuardError:
                        raise
                    except Exception as e:
                        say(f"cannot attach to vllm: {type(e).__name__}: {e}")
            # What stands there now: the hook, or the engine's own.
            return getattr(gate.owner, gate.name)(scheduler, *args, **kwargs)

        return wrapper

    def _put_on(self, found: Running) -> None:
        self._hooks = self._attach()
        take_over(self._hooks, found)

    def _open(self) -> None:
        gate, self._gate = self._gate, None
        if gate is not None:
            unwrap(gate)


def _plans() -> Target | None:
    """What begins a step."""
    scheduler = getattr(sys.modules.get(_SCHEDULER), "Scheduler", None)
    found = None if scheduler is None else find(scheduler, "schedule")
    return found if isinstance(found, Target) else None
