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

_SCHEDULER = ("vllm.v1.core.sched.scheduler", "Scheduler", "schedule")
_MANAGER = ("vllm.v1.core.kv_cache_manager", "KVCacheManager", "__init__")


class Beginning:
    """The hooks of one recording in this process, from the wish for them to their end."""

    def __init__(self, attach: Callable[[], Hooks]) -> None:
        self._attach = attach
        self._mutex = RLock()
        self._gates: list[Target] = []
        self._found = Running([], [], [])
        self._grown = False
        self._hooks: Hooks | None = None
        self._over = False

    def begin(self) -> None:
        """Put the hooks on: now where no engine runs in this process, else at its next step."""
        self._found = running()
        gate = _target(*_SCHEDULER) if self._found.managers else None
        if gate is None:
            self._put_on(self._found)
            return
        self._gates.append(gate)
        wrap(gate, self._at_next_step(gate))
        made = _target(*_MANAGER)
        if made is not None:
            self._gates.append(made)
            wrap(made, self._one_more(made))

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
                        found = running() if self._grown else self._found
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
        while self._gates:
            unwrap(self._gates.pop())


def _target(module: str, name: str, function: str) -> Target | None:
    """A function of the engine that stands at a gate until the hooks are put on."""
    owner = getattr(sys.modules.get(module), name, None)
    found = None if owner is None else find(owner, function)
    return found if isinstance(found, Target) else None
