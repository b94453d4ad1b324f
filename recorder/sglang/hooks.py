"""What all hooks share: where events go, and what becomes of a hook that fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hkvtool.recorder.attachment import Attachment
from hkvtool.recorder.sglang.cache_state import CacheState, PoolState
from hkvtool.recorder.tell import Tell

if TYPE_CHECKING:
    from hkvtool.recorder.sglang.host_tier import HostTier

log = logging.getLogger("hkvtool.sglang")

EVIDENCE = ("host", "step")
"""What the hooks let a rule see when all of them hold."""

STATE = "hkvtool_state"
"""Attribute of the engine's caches and allocators that leads to what is known of them."""


class Hooks(Attachment):
    """One attachment: its wrappers, and what they know of each cache."""

    log = log

    def __init__(self, tell: Tell, keyed: Callable[[Any], str], engine: str) -> None:
        super().__init__(tell, EVIDENCE)
        self.keyed = keyed
        self.engine = engine
        self.caches: list[CacheState] = []
        self.off = False
        """Taken off: a core that stays in front of an engine's tells nothing any more."""
        self.chosen = ""
        """The tree core that the engine would have taken, of the cache it makes."""
        self.steps = self.first_step = 0
        self.last: tuple[list[str], list[int]] = [], []
        """The requests of the step that was told last, and where each came to."""
        self.overlaps = False
        """Whether batches are planned while one runs, on a stream of their own."""
        self.lookups = 0
        self.batch: list[tuple[str, int]] = []
        """Requests that slots are being taken for, each with how many, in the order of the
        slots."""

    def remove(self) -> None:
        """Put every function of the engine back, and forget its caches."""
        self.take_off()
        self.off = True
        for state in self.caches:
            state.forget()
        self.caches.clear()

    def begin(self, note: str = "") -> None:
        """The first line of a trace, once."""
        if not self._begun:
            self._open(self.engine, note)

    def note(self, what: str) -> None:
        """Say something of what is recorded from here on."""
        self.tell.event({"ev": "evidence", "evidence": list(self.evidence), "note": what})

    def sees(self, evidence: str) -> None:
        """Evidence that a cache gives, and not every one does."""
        if evidence not in self.evidence:
            self.evidence.append(evidence)
            if self._begun:
                self.tell.event({"ev": "evidence", "evidence": list(self.evidence)})

    def next_step(self) -> int:
        """The number of one more step."""
        self.steps += 1
        return self.first_step + self.steps

    def cache(self, cache: Any) -> CacheState | None:
        """What is known of a cache of the engine."""
        state: CacheState | None = getattr(cache, STATE, None)
        return state if state is not None and state.hooks is self else None

    def tier(self, owner: Any) -> HostTier | None:
        """What is known of the host's memory that an object of the engine deals with."""
        tier: HostTier | None = getattr(owner, STATE, None)
        return tier if tier is not None and tier.state.hooks is self else None

    def by_core(self, witness: Any) -> CacheState | None:
        """What is known of the cache that this core is the tree of."""
        return next((s for s in self.caches if s.cache.tree_core is witness), None)

    def pool(self, allocator: Any) -> PoolState | None:
        """What is known of an allocator."""
        state: PoolState | None = getattr(allocator, STATE, None)
        return state if state is not None and state.cache.hooks is self else None
