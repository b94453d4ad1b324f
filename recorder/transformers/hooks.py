"""What all hooks share: where events go, and what becomes of a hook that fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from hkvtool.model.recording import STEP_BITS, TABLE_BITS
from hkvtool.recorder.attachment import Attachment
from hkvtool.recorder.tell import Tell
from hkvtool.recorder.transformers.cache_state import CacheState, GroupState

log = logging.getLogger("hkvtool.transformers")

EVIDENCE = ("host", "step", "layout")
"""What the hooks let a rule see when all of them hold."""

WARM_UP = "__warmup_"
"""How the names of requests begin that no user has made."""

STATE = "hkvtool_state"
"""Attribute of the engine's caches, allocators and ledgers that leads to what is known of them."""


class Hooks(Attachment):
    """One attachment: its wrappers, and what they know of each cache."""

    log = log

    def __init__(self, tell: Tell, keyed: Callable[[Any], str], engine: str) -> None:
        super().__init__(tell, EVIDENCE)
        self.keyed = keyed
        self.engine = engine
        self.live: set[str] = set()
        """Requests that were admitted and have not ended."""
        self.refused: set[str] = set()
        self.preempting = False
        """What ends now, ends to come back."""
        self.steps = 0
        self.tables = 0
        """Block tables that a `dispatch` may carry, of all caches."""
        self.transfers = 0
        self.asked: dict[str, tuple[int, dict[str, list[int]], dict[str, int]]] = {}
        """The last lookup of each request that has not taken what was found: tokens asked for,
        blocks and tokens found by group."""
        self._caches: list[CacheState] = []

    def remove(self) -> None:
        """Put every function of the engine back, and forget its caches."""
        self.take_off()
        for state in self._caches:
            state.forget()
        self._caches.clear()

    def begin(self, note: str = "") -> None:
        """The first line of a trace, once."""
        if not self._begun:
            self._open(self.engine, note)

    # --- caches ----------------------------------------------------------------------------

    def adopt(self, cache: Any) -> CacheState:
        """Begin to follow a cache, under names of its own."""
        if not self._caches:
            process = self.tell.engine_number("transformers")
            self.steps = max(self.steps, process << STEP_BITS)
            self.tables = max(self.tables, process << TABLE_BITS)
        state = CacheState(cache, len(self._caches) + 1, self)
        self._caches.append(state)
        return state

    def cache(self, cache: Any) -> CacheState | None:
        """What is known of a cache of the engine."""
        state: CacheState | None = getattr(cache, STATE, None)
        return state if state is not None and state.hooks is self else None

    def group(self, owner: Any) -> GroupState | None:
        """What is known of an allocator, or of the one whose ledger it is."""
        state: GroupState | None = getattr(owner, STATE, None)
        return state if state is not None and state.cache.hooks is self else None

    # --- requests --------------------------------------------------------------------------

    def admit(self, req: str) -> None:
        """The request gets its first blocks."""
        if req not in self.live:
            self.live.add(req)
            self.refused.discard(req)
            self.tell.event({"ev": "admit", "req": req})

    def refuse(self, req: str) -> None:
        """The request finds no room; told once until it is let in."""
        if req not in self.refused:
            self.refused.add(req)
            self.tell.event({"ev": "refuse", "req": req})

    def end(self, req: str, how: str) -> None:
        """The request ends, or gives its blocks back to come again."""
        if req in self.live:
            self.live.discard(req)
            for cache in self._caches:
                cache.told.pop(req, None)
            self.asked.pop(req, None)
            self.tell.event({"ev": how, "req": req})

    def tell_lookup(self, req: str) -> None:
        """Tell the lookup from which the request now goes on."""
        found = self.asked.pop(req, None)
        if found is not None:
            tokens, blocks, hit = found
            self.tell.event(
                {"ev": "lookup", "req": req, "tokens": tokens, "hit": hit, "blocks": blocks}
            )
