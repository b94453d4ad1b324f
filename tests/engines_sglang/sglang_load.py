"""Requests of every kind on SGLang's cache, as its scheduler would serve them, drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from sglang.srt.mem_cache.base_prefix_cache import InsertParams
from sglang.srt.mem_cache.unified_cache.components.base import ComponentType

from engines_sglang.sglang_cache import Engine


@dataclass
class Running:
    """A request with its tokens, the slots that hold them, and how many are the tree's."""

    tokens: list[int]
    slots: Any
    lock: Any
    had: int
    gone: int = 0
    """Tokens at the beginning whose window slots were given back."""


class Load:
    """Draws what happens next, and does it."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine, self.rng = engine, Random(seed)
        self.running: list[Running] = []
        self.done: dict[str, int] = {}
        heads = range(4)
        self.heads = [
            [self.rng.randrange(1, 9) for _ in range(self.rng.randrange(8, 48))] for _ in heads
        ]

    def step(self) -> str:
        """One operation; its name."""
        kinds = {
            self.begin: 5, self.decode: 4, self.checkpoint: 3, self.finish: 3, self.abort: 1,
            self.look: 1, self.evict: 2, self.evict_window: 2, self.slide: 2, self.let_go: 1,
            self.group: 1, self.reset: 0.1,
        }  # fmt: skip
        kind = self.rng.choices(list(kinds), list(kinds.values()))[0]
        if kind() is not False:
            self.done[kind.__name__] = self.done.get(kind.__name__, 0) + 1
        return kind.__name__

    # --- requests --------------------------------------------------------------------------

    def _prompt(self) -> list[int]:
        head = self.rng.choice(self.heads)
        tail = [self.rng.randrange(1, 9) for _ in range(self.rng.randrange(1, 24))]
        return head[: self.rng.randrange(4, len(head) + 1)] + tail

    def begin(self) -> Any:
        engine, tokens = self.engine, self._prompt()
        if len(self.running) > 5:
            return False
        found = engine.match(tokens[:-1])
        lock = engine.cache.lock(found.last_device_node)
        prefix = engine.cache.path_device_indices(found.last_device_node)
        engine.allocator.evict_to_free_tokens(engine.cache, len(tokens) - len(prefix) + engine.page)
        if engine.room() < len(tokens) - len(prefix) + engine.page:
            engine.cache.unlock(lock)
            return False
        slots = torch.cat([prefix, engine.extend(prefix, len(tokens))])
        self.running.append(Running(tokens, slots, lock, len(prefix)))
        return None

    def _one(self) -> Running | None:
        return self.rng.choice(self.running) if self.running else None

    def decode(self) -> Any:
        one, engine = self._one(), self.engine
        if one is None or engine.room() < engine.page:
            return False
        one.tokens.append(self.rng.randrange(1, 9))
        slot = engine.decode(len(one.tokens), one.slots[-1:])
        one.slots = torch.cat([one.slots, slot])
        return None

    def checkpoint(self) -> Any:
        one = self._one()
        return False if one is None else self._insert(one)

    def _insert(self, one: Running) -> None:
        """Give the request's whole pages to the tree, and go on with what the tree has now."""
        engine = self.engine
        whole = len(one.tokens) // engine.page * engine.page
        key = engine.key(one.tokens[:whole])
        evicted = {ComponentType.SWA: one.gone} if one.gone else {}
        result = engine.cache.insert(
            InsertParams(
                key=key, value=one.slots[:whole].clone(), prev_prefix_len=one.had,
                component_evicted_seqlens=evicted,
            )
        )  # fmt: skip
        now = engine.cache.path_device_indices(result.last_device_node)
        assert len(now) == whole
        one.slots = torch.cat([now, one.slots[whole:]])
        engine.cache.unlock(one.lock)
        one.lock, one.had = engine.cache.lock(result.last_device_node), whole

    def _release(self, one: Running) -> None:
        engine, own = self.engine, one.slots[one.had :]
        self.running.remove(one)
        if len(own):
            gone = max(0, one.gone - one.had)
            if gone:
                engine.allocator.free_full_segment(own[:gone], start_pos=0)
            if len(own) > gone:
                engine.allocator.free_segment(own[gone:], start_pos=0)
        engine.cache.unlock(one.lock)

    def finish(self) -> Any:
        one = self._one()
        if one is None:
            return False
        self._insert(one)
        return self._release(one)

    def abort(self) -> Any:
        one = self._one()
        return False if one is None else self._release(one)

    def group(self) -> Any:
        """Two requests end, and what they held is there again when both have."""
        if len(self.running) < 2:
            return False
        self.engine.allocator.free_group_begin()
        self.finish()
        self.abort()
        return self.engine.allocator.free_group_end()

    # --- the window ------------------------------------------------------------------------

    def slide(self) -> Any:
        """A request's own window slots that lie behind its window are given back."""
        one, engine = self._one(), self.engine
        if one is None or engine.window is None:
            return False
        upto = (len(one.tokens) - engine.window - engine.page) // engine.page * engine.page
        start = max(one.had, one.gone)
        if upto <= start:
            return False
        engine.allocator.free_swa_segment(one.slots[start:upto], start_pos=start)
        one.gone = upto
        return None

    def let_go(self) -> Any:
        """A request's window has moved past what the tree had of it."""
        one, engine = self._one(), self.engine
        if one is None or engine.window is None:
            return False
        return engine.cache.release_swa(one.lock)

    # --- the cache -------------------------------------------------------------------------

    def look(self) -> None:
        self.engine.match(self._prompt())

    def evict(self) -> None:
        self.engine.evict(full=self.rng.randrange(1, 64))

    def evict_window(self) -> Any:
        if self.engine.window is None:
            return False
        return self.engine.evict(swa=self.rng.randrange(1, 64)) and None

    def reset(self) -> Any:
        if self.running:
            return False
        self.engine.cache.reset()
        return self.engine.allocator.clear()
