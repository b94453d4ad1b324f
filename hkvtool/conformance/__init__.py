"""What an adapter, or an allocator that is being designed, can be held to.

For who writes an adapter::

    from hkvtool.conformance import AdapterConformance, Books, Moment

    class TestMine(AdapterConformance):          # pytest collects it
        adapter = ADAPTER
        kinds = frozenset({"trace", "pool", "group", "alloc", "free", "publish"})

        def drive(self):                         # a small engine at work, some moments of it
            engine = Engine(blocks=8)
            for prompt in PROMPTS:
                yield Moment(engine.generate(prompt), {"gpu": Books(refs=engine.refs())})

For who writes an allocator::

    from hkvtool.conformance import allocator_test

    TestMine = allocator_test(lambda preset, blocks, tell: MyAllocator(preset, blocks, tell))

Names are imported when they are asked for: the second needs hypothesis, the first does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hkvtool.conformance.allocator import Allocator, Match, Prompt
    from hkvtool.conformance.books import Books
    from hkvtool.conformance.drives import Drive, Moment
    from hkvtool.conformance.machine import allocator_test
    from hkvtool.conformance.properties import PROPERTIES, Verdict, judge
    from hkvtool.conformance.suite import AdapterConformance

__all__ = [
    "PROPERTIES", "AdapterConformance", "Allocator", "Books", "Drive", "Match", "Moment", "Prompt",
    "Verdict", "allocator_test", "judge",
]  # fmt: skip

_HOMES = {
    "AdapterConformance": "suite",
    "Allocator": "allocator",
    "Books": "books",
    "Drive": "drives",
    "Match": "allocator",
    "Moment": "drives",
    "PROPERTIES": "properties",
    "Prompt": "allocator",
    "Verdict": "properties",
    "allocator_test": "machine",
    "judge": "properties",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
