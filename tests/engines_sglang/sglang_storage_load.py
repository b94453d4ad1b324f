"""Requests at random on SGLang's cache with a storage below the host's memory, whose threads take
their turns at random too, and whose files other programs delete and cut short."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from sglang.srt.mem_cache.hicache_storage import HiCacheFile

from engines_sglang import device
from engines_sglang.sglang_cache import Engine
from engines_sglang.sglang_host_load import HostLoad, host_differences
from engines_sglang.sglang_requests import begin
from engines_sglang.sglang_state import Folded
from engines_sglang.sglang_storage import Turns, wait_for
from hkvtool.recorder.sglang.cache_state import CacheState


class StorageLoad(HostLoad):
    """Draws what happens next, and does it."""

    def __init__(self, engine: Engine, seed: int, folder: str) -> None:
        super().__init__(engine, seed)
        self.turns, self.folder = Turns(engine), folder
        self.waiting: list[tuple[Any, list[int]]] = []
        self.spoiled: set[str] = set()
        """Files that are not whole."""

    def step(self) -> str:
        """One operation that can be done; its name."""
        before = self.done.total()
        kind = super().step()
        while self.done.total() == before:
            kind = super().step()
        return kind

    def kinds(self) -> dict[Any, float]:
        """What may happen, and how often."""
        return {
            self.arrive: 6, self.admit: 6, self.end: 5, self.preempt: 1, self.abort: 1,
            self.evict: 5, self.evict_window: 2, self.evict_host: 8, self.poll: 9, self.land: 8,
            self.ask: 8, self.read: 8, self.sync: 16, self.write: 8, self.cut_off: 1,
            self.leave: 2, self.delete: 0.5, self.spoil: 0.3, self.clear: 0.1, self.reset: 0.1,
        }  # fmt: skip

    def arrive(self) -> Any:
        rng, head = self.rng, self.rng.choice(self.heads)
        tail = [rng.randrange(1, 9) for _ in range(rng.randrange(1, 24))]
        tokens = head[: rng.randrange(4, len(head) + 1)] + tail
        if len(self.waiting) > 3:
            return False
        self.number += 1
        self.waiting.append((wait_for(self.engine, f"r{self.number}", tokens), tokens))
        return None

    def admit(self) -> Any:
        """The scheduler goes on with one whose prefetch is over, or that it waits for no longer."""
        engine, rng = self.engine, self.rng
        if not self.waiting or len(self.running) > 3:
            return False
        at = rng.randrange(len(self.waiting))
        req, tokens = self.waiting[at]
        handle, more = req.cache_request_handle, rng.randrange(8)
        if self._free() < len(tokens) + more + 2 * engine.page:
            return False
        if not engine.cache.check_prefetch_progress(handle):
            return False
        del self.waiting[at]
        engine.cache.pop_prefetch_loaded_tokens(handle)
        if len(engine.cache.cache_controller.ack_load_queue) > 1:
            self.poll(land=True)
        self.running.append(begin(engine, req.rid, tokens, more))
        return None

    def abort(self) -> Any:
        """One that waits is not wanted any more, wherever its prefetch is."""
        if not self.waiting:
            return False
        req, _ = self.waiting.pop(self.rng.randrange(len(self.waiting)))
        return self.engine.cache.release_aborted_request(req.cache_request_handle)

    def leave(self) -> None:
        """All that nobody holds leaves the device and the host."""
        self.engine.evict(full=500, swa=500)
        for component in self.engine.cache.tree_components:
            self.engine.cache.evict_host(500, component)

    # --- the threads -----------------------------------------------------------------------

    def ask(self) -> Any:
        return None if self.turns.ask() else False

    def read(self) -> Any:
        return None if self.turns.read() else False

    def sync(self) -> Any:
        return None if self.turns.sync() else False

    def write(self) -> Any:
        return None if self.turns.write() else False

    def cut_off(self) -> Any:
        """A request is aborted while some of its pages have been read."""
        queue = self.turns.controller.prefetch_buffer.queue
        if not queue:
            return False
        operation, left = queue[0], self.rng.randrange(4)
        inner = HiCacheFile.get

        def get(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                operation.mark_terminate()
            return inner(*args, **kwargs)

        HiCacheFile.get = get
        try:
            self.turns.read()
        finally:
            HiCacheFile.get = inner
        return None

    # --- the files -------------------------------------------------------------------------

    def _file(self) -> str | None:
        names = sorted(name for name in os.listdir(self.folder) if name.endswith(".bin"))
        return os.path.join(self.folder, self.rng.choice(names)) if names else None

    def delete(self) -> Any:
        """Another program deletes a file."""
        path = self._file()
        return False if path is None else os.unlink(path)

    def spoil(self) -> Any:
        """Another program leaves a file shorter than it was."""
        path = self._file()
        return False if path is None else os.truncate(path, 3)

    def clear(self) -> Any:
        """All files go, as an operator may ask of a server that has nothing to do."""
        if self.running or self.waiting:
            return False
        self.settle()
        return self.engine.cache.clear_storage_backend() and None

    def reset(self) -> Any:
        if self.running or self.waiting:
            return False
        self.settle()
        return super().reset()

    def settle(self) -> None:
        """Nothing is under way any more."""
        for _ in range(3):
            device.land()
            self.engine.cache.check_hicache_events()
            self.turns.all(self.engine)
            self.engine.cache.check_hicache_events()


def storage_differences(
    folded: Folded, state: CacheState, folder: str | None, *, locks: bool = True
) -> Iterator[str]:
    """In what engine and fold differ, of the device, of the host and of the storage. Without a
    folder there may be files that nobody has told of yet."""
    yield from host_differences(folded, state, locks=locks)
    assert state.tier is not None and state.tier.writes is not None
    every = [] if folder is None else os.listdir(folder)
    there = {name[:-4] for name in every if name.endswith(".bin")}
    told: set[str] = set()
    for pool in state.tier.writes.storage.pools.values():
        refs, live = folded.pages(pool.name)
        files = {file.block: name for name, file in pool.files.items()}
        # What a file holds of what was there before the recording, nobody knows.
        known = {file.block for file in pool.files.values() if file.name is not None}
        if live != known:
            yield f"{pool.name}: {sorted(known)} are there, folded {sorted(live)}"
        held = [block for block, count in refs.items() if count]
        if held:
            yield f"{pool.name}: held by nobody, folded {held}"
        told.update(files.values())
    if there - told:
        yield f"nobody told of {sorted(there - told)[:3]}"
