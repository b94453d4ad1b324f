"""What is known of the storage below the host's memory: the files of pages.

A block of this tier is one file, from when it is written until it is deleted: one that is written
again under its old name is another, for whoever has the old one open reads on in that.

Only the files of SGLang's own `file` backend are known one by one. Of others it is told which
pages of the host go there and come from there, and when.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hkvtool.recorder.sglang.host_tier import HostPool, HostTier

_MANY = 1 << 40
"""Files that there may be."""


@dataclass(eq=False)
class File:
    """One file: its block, the hash that it has, and the number of the job that wrote it, where
    that was seen."""

    block: int
    name: str | None
    job: int = 0


class StoragePool:
    """The files of one pool of the host."""

    def __init__(self, engine: str, far: HostPool, name: str) -> None:
        self.engine = engine
        """What the engine calls the pool."""
        self.far = far
        """The host's pages that go there and come from there."""
        self.name = name
        self.files: dict[str, File] = {}
        """By what they are called."""


@dataclass(eq=False)
class Part:
    """Pages of one pool of the host, and under which keys the storage has them."""

    pool: StoragePool
    pages: list[int]
    keys: list[str]
    names: list[str | None]
    """The hashes of what they hold."""
    first: int | None = None
    """Which page of its sequence the first one is."""
    handle: str = ""
    places: list[int] = field(default_factory=list)
    """Those of the lists above that are copied."""
    blocks: list[int] = field(default_factory=list)
    """The files of these."""


class StorageTier:
    """The storage of one cache."""

    def __init__(self, tier: HostTier, controller: Any) -> None:
        self.tier = tier
        self.backend = controller.storage_backend
        suffix = tier.state.suffix
        self.writer, self.reader = f"backup{suffix}", f"prefetch{suffix}"
        """The lanes of the engine's threads."""
        self.known = controller.storage_backend_type == "file"
        """Whether the files are known one by one."""
        self.medium = "disk" if self.known else "remote"
        self.pools = {
            name: StoragePool(name, far, f"{far.kind}.{self.medium}{suffix}")
            for name, far in tier.pools.items()
        }
        self.hits: dict[str, int] = {}
        """Tokens that the storage has of a request, from its first."""
        self._blocks = count()

    def declare(self) -> None:
        """Tell what there is."""
        tell, state = self.tier.state.hooks.tell, self.tier.state
        for pool in self.pools.values():
            above = next(
                e for e in tell.geometry if e["ev"] == "group" and e["group"] == pool.far.name
            )
            tell.event({
                "ev": "pool", "pool": pool.name, "medium": self.medium, "engine": state.engine,
                "blocks": _MANY,
            })  # fmt: skip
            group = {key: value for key, value in above.items() if key != "layout"}
            tell.event({**group, "group": pool.name, "pool": pool.name})

    def parts(self, slots: Any, keys: Any, transfers: Any) -> Iterator[Part]:
        """What one of the engine's jobs moves, of the pools that are followed: slots of the host
        with their keys, and those of other pools beside them."""
        every = [("kv", slots, keys)]
        every += [
            (str(getattr(t.name, "value", t.name)), t.host_indices, t.keys)
            for t in transfers or ()
            if t.indices_from_pool is None
        ]
        for name, host, of in every:
            pool = self.pools.get(name)
            if pool is not None and host is not None and of and len(host):
                pages = pool.far.pages(host)[: len(of)]
                known = (pool.far.hash_of.get(page) for page in pages)
                names = [None if n in self.tier.state.stand_ins else n for n in known]
                yield Part(pool, pages, list(of)[: len(pages)], names)

    def event(self, lane: str, **data: Any) -> None:
        """Tell what a thread does."""
        self.tier.state.hooks.tell.event({**data, "actor": lane})

    # --- files -----------------------------------------------------------------------------

    def file_of(self, pool: StoragePool, key: str) -> str:
        """What the file of a page is called."""
        name: str = self.backend._get_suffixed_key(self.backend._log_key(pool.engine, key))
        return name

    def new(self) -> int:
        """The block of one more file."""
        return next(self._blocks)

    def look(self, part: Part, lane: str) -> None:
        """Tell of files that the engine finds and that were there before anybody told of them."""
        found: dict[int, str] = {}
        for key, name in zip(part.keys, part.names, strict=True):
            called = self.file_of(part.pool, key)
            if name is None or called in part.pool.files:
                continue
            if self.backend.exists(self.backend._log_key(part.pool.engine, key)):
                file = part.pool.files[called] = File(self.new(), name)
                found[file.block] = name
        if found:
            self.event(
                lane, ev="state", pool=part.pool.name, blocks=list(found), refs=[0] * len(found),
                hashes=[[name] for name in found.values()], groups=[part.pool.name] * len(found),
            )  # fmt: skip

    def deleted(self, called: str, lane: str, reason: str) -> None:
        """A file is there no more."""
        for pool in self.pools.values():
            file = pool.files.pop(called, None)
            if file is not None:
                self.event(
                    lane, ev="unpublish", group=pool.name, blocks=[file.block], reason=reason
                )

    def clear(self) -> None:
        """There are no files any more."""
        for pool in self.pools.values():
            if pool.files:
                pool.files.clear()
                self.tier.state.hooks.tell.event({"ev": "reset", "pool": pool.name})
