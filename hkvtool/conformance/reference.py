"""The reference engine's allocator as the kit drives it: what passes, and how to connect one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hkvtool.conformance.allocator import Match, Prompt, Ranges
from hkvtool.conformance.chains import Chains
from hkvtool.engine.allocator import Emit, HybridAllocator
from hkvtool.engine.geometry import Preset
from hkvtool.engine.lookup import Hit


class Reference:
    """Between the kit's calls and `HybridAllocator`'s."""

    def __init__(self, preset: Preset, blocks: int, tell: Emit) -> None:
        self.inner = HybridAllocator(preset, blocks, tell)
        self._hits: dict[str, Hit] = {}
        self.request = Chains().request

    def geometry(self) -> Preset:
        return self.inner.preset

    def lookup(self, prompt: Prompt, known: int) -> Match:
        hit = self.inner.lookup(self.request(prompt), known, known - 1)
        self._hits[prompt.id] = hit
        blocks = {name: [b for _, _, b in found] for name, found in hit.sources.items()}
        return Match(hit.at, blocks, hit.own)

    def resume(self, prompt: Prompt, match: Match) -> None:
        self.inner.hold(self.request(prompt), self._hits.pop(prompt.id))

    def allocate(self, prompt: Prompt, ranges: Ranges) -> bool:
        return self.inner.extend(prompt.id, ranges)

    def table(self, prompt: Prompt) -> Mapping[str, Mapping[int, int]]:
        return self.inner.held[prompt.id]

    def publish(self, prompt: Prompt, written: Ranges, done: int) -> None:
        for name, (start, end) in written.items():
            self.inner.written(prompt.id, name, start, end)
        self.inner.publish(self.request(prompt), done)
        self.inner.slide(prompt.id, done)

    def free(self, prompt: Prompt) -> None:
        self.inner.release(prompt.id)

    def evict(self, count: int) -> None:
        pool = self.inner.gpu
        for block in [b for b in pool.free if pool.cached(b)][:count]:
            self.inner.evicted({str(pool.table[block]): [block]})
            pool.forget(block)

    def to_clear(self) -> Sequence[int]:
        reformed, self.inner.reformed = self.inner.reformed, {}
        return list(reformed)
