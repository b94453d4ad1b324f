"""Requests at random on SGLang's cache with memory of the host below it: copies there and back are
under way for a while, and the device has room for few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

from engines_sglang import device
from engines_sglang.sglang_cache import Engine
from engines_sglang.sglang_requests import begin, end, preempt
from engines_sglang.sglang_state import Folded, differences
from hkvtool.recorder.sglang.cache_state import CacheState
from hkvtool.recorder.sglang.host_tier import HostPool


class HostLoad:
    """Draws what happens next, and does it."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine, self.rng = engine, Random(seed)
        self.running: list[Any] = []
        self.done: Counter[str] = Counter()
        self.heads = [
            [self.rng.randrange(1, 9) for _ in range(self.rng.randrange(8, 48))] for _ in range(6)
        ]
        self.number = 0

    def step(self) -> str:
        """One operation; its name."""
        kinds = self.kinds()
        kind = self.rng.choices(list(kinds), list(kinds.values()))[0]
        if kind() is not False:
            self.done[kind.__name__] += 1
        return kind.__name__

    def kinds(self) -> dict[Any, float]:
        """What may happen, and how often."""
        return {
            self.begin: 6, self.end: 5, self.preempt: 1, self.evict: 3, self.evict_window: 2,
            self.evict_host: 1, self.poll: 6, self.land: 5, self.reset: 0.1,
        }  # fmt: skip

    def begin(self) -> Any:
        engine, rng = self.engine, self.rng
        head = rng.choice(self.heads)
        tail = [rng.randrange(1, 9) for _ in range(rng.randrange(1, 24))]
        tokens = head[: rng.randrange(4, len(head) + 1)] + tail
        more = rng.randrange(8)
        if len(self.running) > 3 or self._free() < len(tokens) + more + 2 * engine.page:
            return False
        controller = engine.cache.cache_controller
        if controller is not None and len(controller.ack_load_queue) > 1:
            # As the scheduler has it: there is a slot for a load before it plans one.
            self.poll(land=True)
        self.number += 1
        self.running.append(begin(engine, f"r{self.number}", tokens, more))
        return None

    def _free(self) -> int:
        """Slots that can be had, in the pool that has fewer."""
        cache, allocator = self.engine.cache, self.engine.allocator
        if self.engine.window is None:
            return int(allocator.available_size() + cache.evictable_size())
        full = allocator.full_available_size() + cache.full_evictable_size()
        return int(min(full, allocator.swa_available_size() + cache.swa_evictable_size()))

    def _one(self) -> Any:
        return self.running.pop(self.rng.randrange(len(self.running))) if self.running else None

    def end(self) -> Any:
        one = self._one()
        return False if one is None else end(self.engine, one)

    def preempt(self) -> Any:
        one = self._one()
        return False if one is None else preempt(self.engine, one)

    def evict(self) -> None:
        self.engine.evict(full=self.rng.randrange(1, 64))

    def evict_window(self) -> Any:
        if self.engine.window is None:
            return False
        return self.engine.evict(swa=self.rng.randrange(1, 64)) and None

    def evict_host(self) -> None:
        component = self.rng.choice(self.engine.cache.tree_components)
        self.engine.cache.evict_host(self.rng.randrange(1, 32), component)

    def poll(self, *, land: bool = False) -> None:
        """The scheduler looks at what is over."""
        if land:
            device.land()
        self.engine.cache.check_hicache_events()

    def land(self) -> None:
        device.land(self.rng.randrange(1, 4))

    def reset(self) -> Any:
        if self.running:
            return False
        if self.engine.cache.cache_controller is not None:
            self.poll(land=True)
        self.engine.cache.reset()
        return self.engine.allocator.clear()


def host_differences(folded: Folded, state: CacheState, *, locks: bool = True) -> Iterator[str]:
    """In what engine and fold differ, of the device and of the host."""
    yield from differences(folded, state.cache, state.pools, locks=locks)
    assert state.tier is not None
    for pool in state.tier.pools.values():
        refs, live = folded.pages(pool.name)
        used = {s // pool.page for s in pool.allocator.slot_used.nonzero().flatten().tolist()}
        # What a prefetch is read into, the tree does not have yet.
        held = {p for p, count in refs.items() if count}
        if used != live | held:
            both = live | held
            yield f"{pool.name}: in use {sorted(used - both)}, folded {sorted(both - used)}"
        if held and state.tier.writes is None:
            yield f"{pool.name}: held by nobody, folded {held}"
    if state.cache._tree_core_backend == "python":
        yield from _by_node(state)


def _by_node(state: CacheState) -> Iterator[str]:
    """A core in Python can be asked for what each node has: which page holds which tokens."""
    assert state.tier is not None
    core = state.cache.tree_core._core
    for pool in [*state.pools, *state.tier.pools.values()]:
        kind = ComponentType.FULL if pool.kind == "full" else ComponentType.SWA
        tree: dict[int, tuple[int, ...]] = {}
        stack = [(child, ()) for child in core.root_node.children.values()]
        while stack:
            node, before = stack.pop()
            path = (*before, *node.key.token_ids)
            stack += [(child, path) for child in node.children.values()]
            part = node.component_data[kind]
            value = part.host_value if isinstance(pool, HostPool) else part.value
            if value is None:
                continue
            for i in range(0, len(value), pool.page):
                tree[int(value[i]) // pool.page] = path[: len(before) + i + pool.page]
        if set(tree) != set(pool.hash_of):
            yield f"{pool.name}: {sorted(set(tree) ^ set(pool.hash_of))}"
            continue
        names: dict[str, tuple[int, ...]] = {}
        for page, path in tree.items():
            if names.setdefault(pool.hash_of[page], path) != path:
                yield f"{pool.name}: page {page} has the hash of other tokens"
            if pool.place.get(page, len(path) // pool.page - 1) != len(path) // pool.page - 1:
                yield f"{pool.name}: page {page} is told to be elsewhere in its sequence"
