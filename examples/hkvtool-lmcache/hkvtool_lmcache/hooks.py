"""What the hooks share: which backends there are, and where a memory object's chunk lies."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from hkvtool.recorder.attachment import Attachment
from hkvtool.recorder.tell import Tell, beside

STATE = "hkvtool_state"
"""Attribute of a backend and of its allocator that leads to what is known of them."""


class Backend:
    """One local CPU backend, and the buffer that it cuts chunks from.

    A chunk is a run of aligned pages; its block id is the number of the first. Chunks of several
    sizes share the buffer, so ids between two chunks name nothing.
    """

    def __init__(self, hooks: Hooks, backend: Any, number: int) -> None:
        self.hooks = hooks
        self.backend = backend
        self.allocator = backend.memory_allocator
        name = "lmcache.cpu" if number == 1 else f"lmcache.cpu.{number}"
        self.name = name + beside(hooks.tell.engine_number("lmcache"))
        self.page = int(self.allocator.align_bytes)
        self.blocks = int(self.allocator.size) // self.page

    def block(self, memory_obj: Any) -> int:
        return int(memory_obj.meta.address) // self.page


class Hooks(Attachment):
    """One attachment: its wrappers, and the backends it knows."""

    log = logging.getLogger("hkvtool.lmcache")

    def __init__(self, tell: Tell, keyed: Callable[[Any], str], engine: str) -> None:
        super().__init__(tell, ("host",))
        self.keyed = keyed
        self.engine = engine
        self.backends: list[Backend] = []

    def remove(self) -> None:
        """Put every function back, and leave no mark on the engine's objects."""
        super().remove()
        for known in self.backends:
            for owner in (known.backend, known.allocator):
                vars(owner).pop(STATE, None)
        self.backends.clear()

    def adopt(self, backend: Any) -> Backend | None:
        """Begin to follow a backend; None where its allocator is one that is not known."""
        pages = getattr(getattr(backend, "memory_allocator", None), "pin_allocator", None)
        if not hasattr(pages, "address_manager"):
            return None
        known = Backend(self, backend, len(self.backends) + 1)
        self.backends.append(known)
        setattr(backend, STATE, known)
        setattr(known.allocator, STATE, known)
        if not self.begun:
            self._open(self.engine, "")
        self.tell.event({
            "ev": "pool", "pool": known.name, "medium": "cpu", "blocks": known.blocks,
        })  # fmt: skip
        self.tell.event({
            "ev": "group", "group": known.name, "pool": known.name, "form": "compressed",
            "block_tokens": int(backend.config.chunk_size), "participates": False,
        })  # fmt: skip
        return known

    def of(self, memory_obj: Any) -> Backend | None:
        """The backend whose buffer an object lies in."""
        known: Backend | None = getattr(memory_obj.parent_allocator, STATE, None)
        return known if known is not None and known.hooks is self else None

    def of_backend(self, backend: Any) -> Backend | None:
        """What is known of a backend."""
        known: Backend | None = getattr(backend, STATE, None)
        return known if known is not None and known.hooks is self else None

    def tell_state(self, known: Backend | None) -> None:
        """What a backend holds that was there before."""
        if known is None:
            return
        held = list(known.backend.hot_cache.items())
        if not held:
            return
        self.tell.event({
            "ev": "state", "pool": known.name,
            "blocks": [known.block(obj) for _, obj in held],
            "refs": [int(obj.meta.ref_count) for _, obj in held],
            "hashes": [self.keyed(key.chunk_hash) for key, _ in held],
            "groups": [known.name] * len(held),
        })  # fmt: skip
        for _, obj in held:
            for _ in range(int(obj.meta.pin_count)):
                self.tell.event({"ev": "pin", "pool": known.name, "blocks": [known.block(obj)]})
