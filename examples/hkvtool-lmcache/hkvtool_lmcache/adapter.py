"""LMCache's local CPU backend, as an adapter: the functions to wrap, and what that gives."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from hkvtool.recorder.choke_point import ChokePoint, nothing
from hkvtool.recorder.hook_set import HookSet
from hkvtool.recorder.tell import Tell
from hkvtool_lmcache import memory_hooks as memory
from hkvtool_lmcache.hooks import Hooks

_BACKEND = "lmcache.v1.storage_backend.local_cpu_backend:LocalCPUBackend"
_ALLOCATOR = "lmcache.v1.memory_allocators.mixed_memory_allocator:MixedMemoryAllocator"
_OBJECT = "lmcache.v1.memory_management:TensorMemoryObj"
_HOST = ("host",)


class LmcacheAdapter(HookSet):
    """What takes something is told after it was done, what gives something up before: another
    thread may take it in between, and must not be told first."""

    engine = "lmcache.v1.storage_backend.local_cpu_backend"
    distribution = "lmcache"
    tried = ("0.5.6",)
    evidence = _HOST
    kinds = ("alloc", "free", "group", "pin", "pool", "publish", "touch", "trace", "unpin",
             "unpublish")  # fmt: skip
    not_seen = (
        "what is written and read: connectors copy bytes to and from a chunk by its tensor",
        "which request a chunk is looked up for: the backend is asked by key",
        "allocators with pages of one size (P2P, NIXL, io_uring), and every other backend",
    )

    def points(self) -> Sequence[ChokePoint]:
        return (
            ChokePoint("declare", _BACKEND, "__init__", ("config",), nothing, memory.made, _HOST),
            ChokePoint("put", _BACKEND, "submit_put_task", ("key", "memory_obj"),
                       memory.known, memory.put, _HOST),
            ChokePoint("remove", _BACKEND, "remove", ("key", "force"),
                       memory.to_remove, memory.none, _HOST),
            ChokePoint("alloc", _ALLOCATOR, "allocate", (), nothing, memory.allocated, _HOST),
            ChokePoint("batched alloc", _ALLOCATOR, "batched_allocate", (),
                       nothing, memory.batch_allocated, _HOST),
            ChokePoint("release", _ALLOCATOR, "free", ("memory_obj",),
                       memory.to_release, memory.none, _HOST),
            ChokePoint("batched release", _ALLOCATOR, "batched_free", ("memory_objs",),
                       memory.to_release_batch, memory.none, _HOST),
            ChokePoint("touch", _OBJECT, "ref_count_up", (), nothing, memory.touched, _HOST),
            ChokePoint("free", _OBJECT, "ref_count_down", (), memory.to_free, memory.none, _HOST),
            ChokePoint("pin", _OBJECT, "pin", (), nothing, memory.pinned, _HOST),
            ChokePoint("unpin", _OBJECT, "unpin", (), memory.to_unpin, memory.none, _HOST),
        )  # fmt: skip

    def hooks(self, tell: Tell, keyed: Callable[[Any], str], engine: str) -> Hooks:
        return Hooks(tell, keyed, engine)

    def take_over(self, hooks: Hooks) -> None:
        """Backends that are there already begin with what they hold."""
        backend = importlib.import_module(self.engine).LocalCPUBackend
        for found in gc.get_objects():
            if type(found) is backend and hasattr(found, "hot_cache"):
                hooks.tell_state(hooks.adopt(found))


ADAPTER = LmcacheAdapter()
