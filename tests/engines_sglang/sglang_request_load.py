"""Requests at random on SGLang's cache, each in batches of its own that SGLang's scheduler runs."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any
from unittest.mock import patch

import torch

from engines_sglang import sglang_requests as requests


def prepare_for_decode(batch: Any) -> None:
    """As SGLang does it, where no device has to know of memory."""
    with patch.object(torch.Tensor, "pin_memory", lambda tensor: tensor):
        batch.prepare_for_decode()


class RequestLoad:
    """Draws what happens next, and does it."""

    def __init__(self, engine: Any, seed: int, most: int = 48) -> None:
        self.engine, self.rng = engine, Random(seed)
        self.most = most
        self.running: list[tuple[Any, Any]] = []
        self.done: Counter[str] = Counter()
        draw = self.rng.randrange
        self.heads = [[draw(1, 9) for _ in range(draw(most // 6, most))] for _ in range(4)]
        self.past: list[list[int]] = []
        """Sequences of requests that have ended, but for what is too long."""
        self.number = 0

    def kinds(self) -> dict[Any, float]:
        """What may happen, and how often."""
        return {
            self.begin: 5, self.decode: 6, self.checkpoint: 3, self.end: 4, self.preempt: 1,
            self.evict: 2, self.look: 1, self.reset: 0.1,
        }  # fmt: skip

    def step(self) -> str:
        """One operation; its name."""
        kinds = self.kinds()
        kind = self.rng.choices(list(kinds), list(kinds.values()))[0]
        if kind() is not False:
            self.done[kind.__name__] += 1
        return str(kind.__name__)

    def _prompt(self) -> list[int]:
        # Every other one goes on with what was said before.
        past = self.past if self.past and self.rng.random() < 0.5 else None
        head = self.rng.choice(past or self.heads)
        tail = [self.rng.randrange(1, 9) for _ in range(self.rng.randrange(1, self.most // 2))]
        return (head if past else head[: self.rng.randrange(4, len(head) + 1)]) + tail

    def room(self, tokens: int) -> bool:
        """Whether so many tokens find a place, if need be another's."""
        cache, allocator = self.engine.cache, self.engine.allocator
        if self.engine.window is None:
            return bool(allocator.available_size() + cache.full_evictable_size() >= tokens)
        full = allocator.full_available_size() + cache.full_evictable_size()
        return bool(
            min(full, allocator.swa_available_size() + cache.swa_evictable_size()) >= tokens
        )

    def begin(self) -> Any:
        tokens = self._prompt()
        if len(self.running) > 3 or not self.room(len(tokens) + 2 * self.engine.page):
            return False
        self.number += 1
        self.running.append(requests.admit(self.engine, f"r{self.number}", tokens))
        return None

    def _one(self) -> tuple[Any, Any] | None:
        return self.rng.choice(self.running) if self.running else None

    def decode(self) -> Any:
        """Some tokens more for one request."""
        one = self._one()
        if one is None:
            return False
        req, batch = one
        for _ in range(self.rng.randrange(1, 7)):
            if not self.room(2 * self.engine.page):
                return False
            req.output_ids.append(self.rng.randrange(1, 9))
            prepare_for_decode(batch)
            requests.serve(self.engine, batch)
        return None

    def checkpoint(self) -> Any:
        """The tree gets what a request has computed of its prompt."""
        one = self._one()
        if one is None or one[0].output_ids or not self.room(self.engine.page):
            return False
        return requests.checkpoint_kv_cache(one[0], self.engine.cache)

    def _pop(self) -> tuple[Any, Any] | None:
        return self.running.pop(self.rng.randrange(len(self.running))) if self.running else None

    def end(self) -> Any:
        one = self._pop()
        if one is None:
            return False
        requests.end(self.engine, one[0])
        said = [*one[0].origin_input_ids, *one[0].output_ids[:-1]]
        self.past = [*self.past[-3:], said] if len(said) < 2 * self.most else self.past
        return None

    def preempt(self) -> Any:
        one = self._pop()
        return False if one is None else requests.preempt(self.engine, one[0])

    def evict(self) -> None:
        self.engine.evict(full=self.rng.randrange(1, self.most))

    def look(self) -> None:
        self.engine.match(self._prompt())

    def reset(self) -> Any:
        if self.running:
            return False
        self.engine.cache.reset()
        self.engine.cache.req_to_token_pool.clear()
        return self.engine.allocator.clear()
