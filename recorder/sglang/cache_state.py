"""What is known of one prefix cache between two calls of the engine: which page holds what.

A block is a page of slots. It is *taken* from the allocator's answer until the tree adopts it or it
is given back; the tree's are *published* under the hash of all tokens up to their end.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hkvtool.model.recording import STEP_BITS, TABLE_BITS
from hkvtool.recorder.sglang.steps import Steps
from hkvtool.recorder.tell import beside

if TYPE_CHECKING:
    from hkvtool.recorder.sglang.hooks import Hooks
    from hkvtool.recorder.sglang.host_tier import HostTier
    from hkvtool.recorder.sglang.rows import RowPool
    from hkvtool.recorder.sglang.states import StatePool


def memory() -> Any:
    """What the engine was told of memory."""
    return importlib.import_module("sglang.srt.runtime_context").get_memory()


TABLES = 3
"""Of a cache: its requests' pages on full attention and in the window, and their states."""


class PoolState:
    """The pages of one allocator, under the name they have in the trace."""

    def __init__(
        self, allocator: Any, cache: CacheState, kind: str, page: int | None = None
    ) -> None:
        self.allocator = allocator
        self.cache = cache
        self.kind = kind
        self.name = kind + cache.suffix
        self.page = int(allocator.page_size) if page is None else page
        self.taken: dict[int, str | None] = {}
        """The request of every page that the tree has not."""
        self.hash_of: dict[int, str] = {}
        self.page_of: dict[str, int] = {}
        self.place: dict[int, int] = {}
        """Which page of its sequence it is, of every page that the tree has and that was seen to
        come."""

    def pages(self, slots: Any) -> list[int]:
        """The pages that begin in these slots, in their order. Copied from the device."""
        if self.page == 1:
            return [int(s) for s in slots.tolist()]
        return [int(p) for p in (slots[slots % self.page == 0] // self.page).tolist()]

    def covering(self, slots: Any) -> list[int]:
        """The pages that these slots of consecutive tokens lie in, in their order."""
        return list(dict.fromkeys(int(s) // self.page for s in slots.tolist()))

    # --- taken and given back --------------------------------------------------------------

    def take(self, pages: list[int], req: str | None) -> None:
        """The allocator hands out pages."""
        if pages:
            self.taken.update(dict.fromkeys(pages, req))
            self.cache.hooks.tell.alloc(pages, self.name, req, None)

    def give_back(self, pages: list[int]) -> None:
        """The allocator has pages again: the tree's lead nowhere any more."""
        self.unpublish(pages, "evict")
        by_request: dict[str | None, list[int]] = {}
        for page in pages:
            if page in self.taken:
                by_request.setdefault(self.taken.pop(page), []).append(page)
        for req, freed in by_request.items():
            self.cache.hooks.tell.free(freed, self.name, req, None, None, None)

    def clear(self) -> None:
        """The allocator has all pages again."""
        self.give_back([*self.hash_of, *self.taken])

    # --- in the tree -----------------------------------------------------------------------

    def publish(self, pages: list[int], hashes: list[str], start: int) -> bool:
        """The tree has these pages for consecutive tokens, the first of them at page `start` of
        its sequence. Told are those that it did not have before; says whether there were any."""
        fresh = False
        run: list[int] = []
        for i, (page, name) in enumerate(zip(pages, hashes, strict=True)):
            if (had := self.hash_of.get(page)) == name or had in self.cache.stand_ins:
                self._publish(pages, hashes, run, start)
                run = []
                continue
            self.unpublish([p for p in (page, self.page_of.get(name)) if p is not None], "promote")
            run.append(i)
            fresh = True
        self._publish(pages, hashes, run, start)
        return fresh

    def publish_at(self, pages: list[int], hashes: list[str], places: list[int]) -> None:
        """The same, of pages that may lie apart in their sequence."""
        begin = 0
        for i in range(1, len(pages) + 1):
            if i == len(pages) or places[i] != places[i - 1] + 1:
                self.publish(pages[begin:i], hashes[begin:i], places[begin])
                begin = i

    def _publish(self, pages: list[int], hashes: list[str], run: list[int], start: int) -> None:
        if not run:
            return
        fresh = [pages[i] for i in run]
        names = [hashes[i] for i in run]
        tokens = [(start + run[0]) * self.page, (start + run[-1] + 1) * self.page]
        reqs = {self.taken.get(p) for p in fresh}
        req = reqs.pop() if len(reqs) == 1 else None
        self.hash_of.update(zip(fresh, names, strict=True))
        self.place.update(zip(fresh, (start + i for i in run), strict=True))
        self.page_of.update(zip(names, fresh, strict=True))
        tell = self.cache.hooks.tell
        tell.publish(self.name, fresh, names, tokens, req)
        adopted = [p for p in fresh if p in self.taken]
        for page in adopted:
            del self.taken[page]
        if adopted:
            # The tree counts no reference: what nobody has locked, it may evict.
            tell.free(adopted, self.name, req, None, None, None)

    def unpublish(self, pages: list[int], reason: str) -> None:
        """The tree has these pages no more."""
        gone = [p for p in pages if p in self.hash_of]
        for page in gone:
            del self.page_of[self.hash_of.pop(page)]
            self.place.pop(page, None)
        if gone:
            self.cache.hooks.tell.unpublish(self.name, gone, None, reason)

    def stand_in(self, page: int) -> str:
        """The tree has this page, and nobody knows what of: a name that stands for nothing else."""
        name = self.cache.hooks.keyed(f"{self.name} {page} before the recording")
        self.cache.stand_ins.add(name)
        self.taken.pop(page, None)
        self.hash_of[page], self.page_of[name] = name, page
        return name

    def appear(self, pages: list[int]) -> None:
        """The tree has pages by now whose way into it was not followed from its beginning."""
        names = [self.stand_in(page) for page in pages]
        if names:
            self.cache.hooks.tell.event({
                "ev": "state", "pool": self.name, "blocks": pages, "refs": [0] * len(pages),
                "hashes": [[name] for name in names], "groups": [self.name] * len(pages),
            })  # fmt: skip

    def forget_hashes(self) -> None:
        """The tree is empty."""
        if self.hash_of:
            self.hash_of.clear()
            self.page_of.clear()
            self.place.clear()
            self.cache.hooks.tell.event({"ev": "reset", "pool": self.name})


@dataclass(eq=False)
class Lock:
    """One lock on the path to a node, and the pages of both pools on which it counts."""

    node: int
    full: list[int]
    swa: list[int] = field(default_factory=list)
    states: list[int] | None = None
    """The state at the end of the node, if it has one; None where that is not locked."""
    covered: int = 0
    """Tokens before the end of the node that the locked part of the window's path covers."""
    req: str | None = None
    """The request that it is for, once that is known."""
    receipt: Any = None
    """What the engine gives it up by, of a lock that a request holds."""


class CacheState:
    """One prefix cache, with its pools and the locks that are held in it."""

    def __init__(self, cache: Any, number: int, hooks: Hooks) -> None:
        self.cache = cache
        self.hooks = hooks
        process = hooks.tell.engine_number("sglang")
        self.engine = f"tree{number}{beside(process)}"
        self.suffix = ("" if number == 1 else f".{number}") + beside(process)
        self.first_table = TABLES * (number - 1) + (process << TABLE_BITS)
        hooks.first_step = process << STEP_BITS
        self.page = int(cache.page_size)
        self.steps = Steps(hooks, self.first_table)
        self.window: int | None = None
        self.components: dict[str, Any] = {}
        """What the engine calls the parts of a node, by the pool they lie in."""
        self.full: PoolState | None = None
        self.swa: PoolState | None = None
        self.states: StatePool | None = None
        self.rows: RowPool | None = None
        """Rows of requests, where something of the cache is kept by them."""
        self.mapping: Any = None
        """The window's slot by that of full attention."""
        self.locks: dict[tuple[int, Any], list[Lock]] = {}
        """By the node that was locked, and what the engine calls the end of its window."""
        self.stand_ins: set[str] = set()
        """Names of what was there before the recording and that nobody knows: they stay."""
        self.asked: dict[str, tuple[Any, ...]] = {}
        """What the last lookup of each request came to."""
        self.tier: HostTier | None = None
        """The host's memory that pages are copied to, where there is such."""
        self.refused: set[str] = set()
        """Requests that were told to wait for room."""
        self.live: set[str] = set()
        """Requests that went on from somewhere and have not given back what they hold."""
        self.owners: list[Any] = []
        """Objects of the engine on which there is a mark of ours."""

    @property
    def pools(self) -> list[PoolState]:
        """Those that are followed."""
        return [p for p in (self.full, self.swa, self.states) if p is not None]

    @property
    def staged(self) -> bool:
        """Whether the cache is to have memory of the host below it."""
        return bool(memory().enable_hierarchical_cache)

    def loses_steps(self, why: str) -> None:
        """There are steps that are not followed: what was told of some is no evidence of all."""
        if "step" in self.hooks.evidence:
            self.hooks.evidence.remove("step")
            self.hooks.note(f"not seen: {why}")

    def mark(self, owner: Any, state: Any) -> None:
        """Have an object of the engine lead to what is known of it."""
        from hkvtool.recorder.sglang.hooks import STATE

        setattr(owner, STATE, state)
        self.owners.append(owner)

    def forget(self) -> None:
        """Leave nothing on the engine's objects."""
        from hkvtool.recorder.sglang.hooks import STATE
        from hkvtool.recorder.sglang.tree_core import take_away

        take_away(self.cache)
        if self.tier is not None:
            self.tier.ask_anew()
        for owner in self.owners:
            if hasattr(owner, STATE):
                delattr(owner, STATE)
