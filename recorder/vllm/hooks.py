"""What all hooks of a process share: where events go, and what becomes of a hook that fails."""

from __future__ import annotations

import logging
from typing import Any

from hkvtool.model.recording import STEP_BITS, TABLE_BITS
from hkvtool.recorder.attachment import Attachment
from hkvtool.recorder.tell import Tell, beside
from hkvtool.recorder.vllm.imports import Imports
from hkvtool.recorder.vllm.load_hooks import Loads
from hkvtool.recorder.vllm.lookup_state import Lookup
from hkvtool.recorder.vllm.pool_state import PoolState, unique_name
from hkvtool.recorder.vllm.privacy import Keyed, Name

log = logging.getLogger("hkvtool.vllm")

_RANKS = 256

CLASSES = ("host", "step", "layout")
"""Evidence that the hooks on allocator and scheduler give when all of them hold."""


class Hooks(Attachment):
    """One attachment to an engine: its wrappers, and what they know of each pool."""

    log = log

    def __init__(self, tell: Tell, name_of: Name | None = None, note: str = "") -> None:
        super().__init__(tell, CLASSES)
        self.keyed = Keyed(name_of)
        self.note = note
        self.lost: dict[str, tuple[str, ...]] = {}
        """Evidence that goes with a choke point that was not found."""
        self.steps = 0
        self.first_step = 0
        self.rank = ""
        """What tells the names of this engine from those of its fellows, `@dp1` say."""
        self.front: list[int] = []
        """Blocks that the call under way puts at the head of the free list."""
        self.waiting: Lookup | None = None
        """A lookup that is told when the request takes what it found."""
        self.wires = 0
        """KV events seen on their way out."""
        self.batch: tuple[list[str], list[int]] = ([], [])
        """Requests of the last step, and the token that each goes on from."""
        self.refused: set[str] = set()
        """Requests of which it was told that they have to wait."""
        self.idle = 0
        """Steps in a row that had nothing to do though requests are there."""
        self.kernel_blocks: list[int] | None = None
        """Tokens in a block as each group's kernels see it, where a worker here has said so."""
        self.worker_rank = 0
        """Which of its engine's workers the one in this process is: what they all do, the first
        tells."""
        self.worker_step: int | None = None
        """The last step that a worker of this process has made ready."""
        self.transfers: Any = None
        """The transfers of the connector's worker in this process, if there is one."""
        self.loads = Loads(self)
        self.serves: Any = None
        """The config of the engine in this process, until its weights were told."""
        self.prints: Any = None
        """What fingerprints blocks; None where nobody asked yet, False where nothing is to be."""
        self.rounds: Any = None
        """Tells again and again what holds, where the beginning is overwritten."""
        self.untold: set[str] = set()
        """Requests whose tables, as far as they have come, are told at their next step."""
        self.imports = Imports()
        self._pools: list[PoolState] = []
        self._configs: list[Any] = []
        self._tables = 0
        self._known = False

    def remove(self) -> None:
        """Put every function of the engine back."""
        self.imports.cancel()
        self.take_off()
        for state in self._pools:
            state.forget()
        self._pools.clear()

    def sees(self, evidence: str) -> None:
        """Evidence that this engine gives and not every one does."""
        if evidence in self.evidence:
            return
        self.evidence.append(evidence)
        if self._begun:
            self.tell.event({"ev": "evidence", "evidence": list(self.evidence)})

    # --- what is told first ------------------------------------------------------------------

    def begin(self, engine: str) -> None:
        """The first line of a trace, once."""
        if self._begun:
            return
        gone = {c for classes in self.lost.values() for c in classes}
        self.evidence = [c for c in self.evidence if c not in gone]
        note = [self.note] if self.note else []
        note += [f"not seen: {why}" for why in self.lost]
        rolling = {} if self.rounds is None else {"rolling": True}
        self._open(engine, "; ".join(note), **rolling)

    def worker_config(self, config: Any) -> Any:
        """The config that the workers were given for the scheduler's `config`, if it was seen."""
        for known in reversed(self._configs):
            if [g.layer_names for g in known.kv_cache_groups] == [
                g.layer_names for g in config.kv_cache_groups
            ]:
                return known
        return None

    def remember_config(self, config: Any, kernel_blocks: list[int] | None) -> None:
        """A config as a worker lays it out, and the block of each group's kernels in tokens; the
        last few are kept."""
        if kernel_blocks is not None:
            self.kernel_blocks = kernel_blocks
        self._configs = [*self._configs[-3:], config]

    # --- pools -------------------------------------------------------------------------------

    @property
    def pools(self) -> list[PoolState]:
        """The block pools of this process."""
        return list(self._pools)

    def pool(self, pool: Any) -> PoolState:
        """What is known of a block pool; one that no manager declared is declared as it is met."""
        try:
            state: PoolState = pool.hkvtool_state
            if state.hooks is self:
                return state
        except AttributeError:
            pass
        from hkvtool.recorder.vllm.declare import declare_bare_pool

        return declare_bare_pool(self, pool)

    def adopt(self, pool: Any, name: str) -> PoolState:
        """Begin to follow a block pool under a name of its own, the same as before a pause."""
        unique = unique_name(pool, name, {state.name for state in self._pools})
        state = PoolState(self, pool, unique)
        self._pools.append(state)
        return state

    def settle(self) -> None:
        """Tell what hash changes are still waiting to be told."""
        for state in self._pools:
            if state.removed:
                state.tell_removed("invalidate")

    def tell_lookup(self) -> None:
        """Tell the lookup whose request now takes blocks."""
        lookup, self.waiting = self.waiting, None
        if lookup is not None:
            self.refused.discard(lookup.req)
            self.tell.event(lookup.event())

    def next_tables(self, count: int) -> int:
        """The number of the first of so many new block tables."""
        first = self._tables
        self._tables += count
        return first

    def is_of(self, engine: str, rank: int) -> None:
        """This process is of the engine that all its processes call so, and of one of its
        data-parallel ranks; what it names and counts must not be mistaken for another's. The first
        engine of a process says so for all."""
        if self._known:
            return
        self._known = True
        number = self.tell.engine_number("vllm", engine) if engine else 0
        self.rank = beside(number) + (f"@dp{rank}" if rank else "")
        place = number * _RANKS + rank
        self.first_step = place << STEP_BITS
        self._tables = max(self._tables, place << TABLE_BITS)

    def next_step(self) -> int:
        """The number of the next step."""
        self.steps += 1
        return self.first_step + self.steps
