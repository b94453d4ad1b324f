"""Recurrent states: each is a slot of its own, one state of one sequence at one token position.

A request computes in a slot of its own. What the tree has are snapshots, each at the end of a node;
who goes on from one copies it first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hkvtool.recorder.sglang.cache_state import CacheState, PoolState

KIND = "mamba"


class StatePool(PoolState):
    """The slots of one cache's states. A hash leads to one state, that at the end of its tokens."""

    def __init__(self, requests: Any, cache: CacheState) -> None:
        super().__init__(requests.mamba_allocator, cache, KIND, page=1)
        self.requests = requests
        """The engine's table of requests, which the slots belong to."""
        self.takers: list[str] = []
        """Requests that slots are being taken for, in the order in which that happens."""
        self.copies = False
        """Whether the copies that are made now are snapshots of what a request has computed."""

    def taken_now(self, slots: list[int]) -> None:
        """Slots are handed out, to the next one that takes some."""
        self.take(slots, self.takers.pop(0) if self.takers else None)

    def hand_over(self, slot: int, req: str) -> None:
        """A slot that was taken for nobody is a request's."""
        if self.taken.get(slot, req) is None:
            self.taken[slot] = req
            tell = self.cache.hooks.tell
            tell.touch([slot], self.name, req, None, None)
            tell.free([slot], self.name, None, None, None, None)

    def keep(self, slot: int, name: str, end: int) -> bool:
        """The tree has this state at the end of these tokens; says whether it had it not."""
        return self.publish([slot], [name], end - 1)

    # --- what a batch does with states ------------------------------------------------------

    def prepared(self, batch: Any) -> Iterator[dict[str, Any]]:
        """What comes first: states of new sequences are cleared, and those of the tree copied."""
        fresh, src = batch.mamba_clear_indices, batch.mamba_cow_src_indices
        if fresh is not None:
            yield {"ev": "zero", "group": self.name, "blocks": self.pages(fresh)}
        if src is not None:
            yield {
                "ev": "copy", "group": self.name, "src": self.pages(src),
                "dst": self.pages(batch.mamba_cow_dst_indices),
            }  # fmt: skip

    def snapshots(
        self, batch: Any, starts: list[int], chosen: list[bool] | None, *, decoded: bool
    ) -> Iterator[dict[str, Any]]:
        """States that a batch leaves in slots for the tree, beside those of its requests."""
        for i, req in enumerate(batch.reqs):
            if not chosen or not chosen[i]:
                continue
            if decoded:
                which, at = batch.mamba_track_buffer_indices[i], starts[i] + 1
            else:
                which, at = req.kv.mamba_last_track_idx, req.kv.mamba_last_track_seqlen
            slot = int(req.kv.mamba_ping_pong_track_buffer[which])
            yield {
                "ev": "write", "group": self.name, "blocks": [slot], "req": str(req.rid),
                "tokens": [min(starts[i], int(at)), int(at)],
            }  # fmt: skip
