"""hkvtool: record, check and replay the KV cache of hybrid-attention inference engines.

For those who write an engine: `CacheBlockState` is what is known of one block, `validate_resume`
asks the four validation layers whether a request may resume from some, and `HybridAllocator` is an
allocator that does so; `hkvtool.conformance` holds one that is being designed, and adapters of
other engines, to what they promise. `record` records what the engines in this process do. They are
imported when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hkvtool.engine.allocator import HybridAllocator
    from hkvtool.engine.validate import validate_resume
    from hkvtool.model.block_state import CacheBlockState
    from hkvtool.recorder.in_process import record

__version__ = "0.1.0"

__all__ = ["CacheBlockState", "HybridAllocator", "__version__", "record", "validate_resume"]

_HOMES = {
    "CacheBlockState": "hkvtool.model.block_state",
    "HybridAllocator": "hkvtool.engine.allocator",
    "record": "hkvtool.recorder.in_process",
    "validate_resume": "hkvtool.engine.validate",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'hkvtool' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)
