"""An engine of thirty lines and its adapter, for what holds adapters to their promises."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hkvtool.conformance import Books, Moment
from hkvtool.recorder.attachment import Attachment
from hkvtool.recorder.choke_point import ChokePoint, nothing
from hkvtool.recorder.hook_set import HookSet
from hkvtool.recorder.tell import Tell

BLOCKS = 6


class Pool:
    """Blocks for requests; a hash leads to the first block of what was published."""

    def __init__(self, blocks: int = BLOCKS) -> None:
        self.blocks = blocks
        self.refs = dict.fromkeys(range(blocks), 0)
        self.hashes: dict[str, int] = {}

    def take(self, req: str, count: int) -> list[int]:
        free = [b for b, refs in self.refs.items() if not refs][:count]
        for block in free:
            self.refs[block] = 1
            self.hashes = {h: b for h, b in self.hashes.items() if b != block}
        return free

    def publish(self, key: str, block: int) -> None:
        self.hashes.setdefault(key, block)

    def give(self, req: str, blocks: list[int]) -> None:
        for block in blocks:
            self.refs[block] -= 1


class Hooks(Attachment):
    log = logging.getLogger("hkvtool.toy")

    def __init__(self, tell: Tell, keyed: Callable[[Any], str], evidence: Sequence[str]) -> None:
        super().__init__(tell, evidence)
        self.keyed = keyed

    def begin(self, pool: Pool) -> None:
        if not self.begun:
            self._open("toy 1", "")
            self.tell.event({"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": pool.blocks})
            self.tell.event({"ev": "group", "group": "kv", "pool": "gpu", "form": "compressed",
                             "block_tokens": 4})  # fmt: skip


def made(hooks: Any, seen: Any, result: Any, pool: Pool, *args: Any, **kw: Any) -> None:
    hooks.begin(pool)


def taken(hooks: Any, seen: Any, blocks: list[int], pool: Pool, req: str, count: int) -> None:
    gone = [b for b in blocks if b in seen]
    if gone:
        hooks.tell.unpublish("kv", gone, None, "evict")
    if blocks:
        hooks.tell.alloc(blocks, "kv", req, None)


def hashed(hooks: Any, pool: Pool, *args: Any, **kw: Any) -> set[int]:
    return set(pool.hashes.values())


def published(hooks: Any, seen: Any, result: Any, pool: Pool, key: str, block: int) -> None:
    if pool.hashes[key] == block:
        hooks.tell.publish("kv", [block], [hooks.keyed(key)], None, None)


def given(hooks: Any, seen: Any, result: Any, pool: Pool, req: str, blocks: list[int]) -> None:
    hooks.tell.free(blocks, "kv", req, None, None, None)


class ToyAdapter(HookSet):
    engine = "conformance.toy"
    distribution = "toy"
    tried = ("1",)
    evidence = ("host",)
    kinds = ("trace", "pool", "group", "alloc", "publish", "unpublish", "free")

    def version(self) -> str | None:
        return "1"

    def points(self) -> Sequence[ChokePoint]:
        place, host = "conformance.toy:Pool", ("host",)
        return (
            ChokePoint("declare", place, "__init__", (), nothing, made, host),
            ChokePoint("take", place, "take", ("req", "count"), hashed, taken, host),
            ChokePoint("publish", place, "publish", ("key", "block"), nothing, published, host),
            ChokePoint("give", place, "give", ("req", "blocks"), nothing, given, host),
        )

    def hooks(self, tell: Tell, keyed: Callable[[Any], str], engine: str) -> Hooks:
        return Hooks(tell, keyed, self.evidence)


def drive() -> Iterator[Moment]:
    """Requests come and go until every block has been somebody's more than once."""
    pool = Pool()
    for number in range(5):
        blocks = pool.take(f"r{number}", 4)
        yield moment(pool, blocks)
        pool.publish(f"h{number}", blocks[0])
        yield moment(pool, None)
        pool.give(f"r{number}", blocks)
        yield moment(pool, None)


def moment(pool: Pool, output: object) -> Moment:
    hashes: dict[int, list[str]] = {}
    for key, block in pool.hashes.items():
        hashes.setdefault(block, []).append(key)
    return Moment(output, {"gpu": Books(dict(pool.refs), hashes)})
