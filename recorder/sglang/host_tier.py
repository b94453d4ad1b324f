"""What is known of the host's memory below one prefix cache: its pages, and what is on its way.

A copy to the host begins when SGLang hands it to the device and ends when it has read that it is
over. A copy back is published before it begins; for who computes it ends where the device waits for
it, layer by layer, within the step that is told to. Below the host's memory may be a storage, whose
threads read and write it; they come behind what the scheduler knows to be over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hkvtool.recorder.sglang.cache_state import CacheState, PoolState
from hkvtool.recorder.sglang.steps import DEVICE
from hkvtool.recorder.sglang.storage_reads import Reads
from hkvtool.recorder.sglang.storage_tier import StorageTier
from hkvtool.recorder.sglang.storage_writes import Writes

Pages = tuple[PoolState, list[int], list[int]]
"""A device's pool, pages of it, and the host's pages beside them."""


class HostPool(PoolState):
    """Pages of the host's memory, kept like those of a device."""

    def __init__(self, allocator: Any, cache: CacheState, near: PoolState) -> None:
        super().__init__(allocator, cache, near.kind)
        self.name = f"{near.kind}.cpu{cache.suffix}"
        self.near = near
        self.due: dict[int, int] = {}
        """Pages of the device whose hash a page is to have as soon as they have one."""

    def give_back(self, pages: list[int]) -> None:
        for page in pages:
            self.due.pop(page, None)
        super().give_back(pages)

    def settle(self) -> None:
        """The tree has on the host what it has on the device, from the moment it decides so."""
        known = [(host, p) for host, p in self.due.items() if p in self.near.hash_of]
        known.sort(key=lambda pair: self.near.place[pair[1]])
        for host, _ in known:
            del self.due[host]
        self.publish_at(
            [host for host, _ in known],
            [self.near.hash_of[p] for _, p in known],
            [self.near.place[p] for _, p in known],
        )


@dataclass(eq=False)
class Copy:
    """Copies of one node's pages that go together, one for each pool."""

    kind: str
    handles: list[str]
    pages: list[Pages]
    ended: bool = False
    over: str = ""
    """The signal that it is, for who did not wait for it."""


class HostTier:
    """The host's memory of one cache."""

    def __init__(self, state: CacheState, controller: Any) -> None:
        self.state = state
        self.controller = controller
        self.pools: dict[str, HostPool] = {}
        """By what the engine calls them."""
        self.left_out: list[str] = []
        """Pools of the host that are not followed."""
        self.stores: dict[int, Copy] = {}
        self.loads: dict[int, Copy] = {}
        """Under way, by the node that the engine gets told of."""
        self.waited: dict[int, list[Copy]] = {}
        """Loads by the number that a step is given to wait for them."""
        self.writes: Writes | None = None
        self.reads: Reads | None = None
        """What the storage is given and asked for, where there is one."""
        self._count = self._handed = 0

    def ask_anew(self) -> None:
        """Functions that the engine keeps with its pools are those that it would find there by
        now: kept from before the hooks came they pass them by, and from then on lead to them."""
        for entry in self.controller.mem_pool_host.entries:
            for name in ("device_alloc_fn", "device_free_fn"):
                kept = getattr(entry, name)
                owner = getattr(kept, "__self__", None)
                if owner is not None:
                    setattr(entry, name, getattr(owner, kept.__name__))

    def put_below(self) -> None:
        """There is a storage below, of pages that the tree has on the host."""
        if self.state.cache.host_memory_mode != "cache":
            self.state.hooks.note("not seen: a storage whose pages are staged in buffers")
            return
        storage = StorageTier(self, self.controller)
        storage.declare()
        # What its keys hold, and what they are to hold, is told with each transfer.
        self.state.hooks.sees("key")
        self.writes = Writes(storage)
        self.reads = Reads(storage, self.writes)
        for owner in (storage.backend, getattr(storage.backend, "_evictor", None)):
            if owner is not None:
                self.state.mark(owner, self)

    def take_away(self) -> None:
        """There is no storage any more; its files may be."""
        if self.writes is not None:
            self.writes.storage.clear()
        self.writes = self.reads = None

    def stored(self, req: str | None) -> dict[str, int]:
        """Tokens of a request, from its first, that the storage was found to have: of these some
        may not have come."""
        if self.reads is None or req is None:
            return {}
        tokens = self.reads.storage.hits.get(req, 0)
        return {self.reads.storage.pools["kv"].name: tokens} if tokens else {}

    def admitted(self, req: str) -> None:
        """What the storage has of a request is of no use to it any more."""
        if self.reads is not None:
            self.reads.storage.hits.pop(req, None)

    def pages(self, operation: Any) -> Iterator[Pages]:
        """What one of the engine's operations copies, of the pools that are followed."""
        parts = [("kv", operation.host_indices, operation.device_indices)]
        parts += [
            (str(getattr(t.name, "value", t.name)), t.host_indices, t.device_indices)
            for t in operation.pool_transfers or ()
            if t.indices_from_pool is None
        ]
        for name, host, device in parts:
            pool = self.pools.get(name)
            if pool is not None and host is not None and device is not None and len(host):
                yield pool.near, pool.near.pages(device), pool.pages(host)

    def far(self, near: PoolState) -> HostPool:
        """The host's pool of a device's."""
        return next(p for p in self.pools.values() if p.near is near)

    def settle(self) -> None:
        """Hashes that pages of the device have by now are those of their copies too."""
        for pool in self.pools.values():
            if pool.due:
                pool.settle()

    def behind(self, lane: str | None) -> None:
        """Copies on a lane begin behind what the engine has done before it hands them over."""
        if lane is None:
            return
        self._handed += 1
        event = f"copies{self.state.suffix}.{self._handed}"
        self.state.hooks.tell.event({"ev": "signal", "event": event})
        self.state.hooks.tell.event({"ev": "wait", "event": event, "actor": lane})

    def begin(self, kind: str, operation: Any, lane: str | None) -> Copy:
        """A copy is handed to the device."""
        tell, direction = self.state.hooks.tell, "to" if kind == "store" else "from"
        copy = Copy(kind, [], list(self.pages(operation)))
        for near, blocks, peer in copy.pages:
            self._count += 1
            handle = f"{kind}{self._count}.{near.name}"
            copy.handles.append(handle)
            event: dict[str, Any] = {
                "ev": f"{kind}_begin", "handle": handle, "group": near.name, "blocks": blocks,
                direction: self.far(near).name, "peer": peer,
            }  # fmt: skip
            if lane is not None:
                event["actor"] = lane
            tell.event(event)
        return copy

    def end(self, copy: Copy | None, lane: str | None, *, ok: bool = True) -> None:
        """A copy is over for a lane, or for all of the engine; the first who says so counts."""
        if copy is None or copy.ended:
            return
        copy.ended = True
        for handle in copy.handles:
            event: dict[str, Any] = {"ev": f"{copy.kind}_end", "handle": handle}
            if lane is not None:
                event["actor"] = lane
            if not ok:
                event["ok"] = False
            self.state.hooks.tell.event(event)

    def waited_for(self, copy: Copy) -> None:
        """The device waits for a load. The scheduler, which gives its pages away, reads later that
        it is over, and says so where not only the device may be given them."""
        if self.writes is None or copy.ended:
            self.end(copy, DEVICE)
            return
        lane = f"copies{self.state.suffix}"
        self.end(copy, lane)
        copy.over = f"{copy.handles[0]} is over" if copy.handles else ""
        if copy.over:
            tell = self.state.hooks.tell
            tell.event({"ev": "signal", "event": copy.over, "actor": lane})
            tell.event({"ev": "wait", "event": copy.over, "actor": DEVICE})

    def heard(self, copy: Copy | None) -> None:
        """The scheduler has read that a load is over."""
        if copy is not None and copy.over:
            self.state.hooks.tell.event({"ev": "wait", "event": copy.over})
        self.end(copy, None)

    def loading(self, pool: PoolState, pages: list[int]) -> bool:
        """Whether any of these pages is still on its way, or not even begun."""
        mine = set(pages)
        return any(
            near is pool and not mine.isdisjoint(blocks)
            for copy in self.loads.values() if not copy.ended
            for near, blocks, _ in copy.pages
        )  # fmt: skip

    def drop_all(self) -> None:
        """The engine forgets what is under way."""
        for copy in [*self.stores.values(), *self.loads.values()]:
            self.end(copy, None, ok=False)
        self.stores.clear()
        self.loads.clear()
        self.waited.clear()
        if self.writes is not None and self.reads is not None:
            self.writes.forget()
            self.reads.forget()
