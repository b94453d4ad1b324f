"""The engines that can be recorded from inside, and the modules that attach to them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module

from hkvtool.recorder.session import say

HOOK_SETS = {
    "vllm": "hkvtool.recorder.vllm.plugin",
    "transformers.generation.continuous_batching": "hkvtool.recorder.transformers",
}
"""Modules whose `register` attaches to an engine, by what the engine is known to be imported by."""


def attach_imported(besides: Iterable[str] = ()) -> list[str]:
    """Attach to every engine that this process has imported, but for those named; which they were.
    One that cannot be attached to is said and left alone."""
    found = []
    for engine, hooks in HOOK_SETS.items():
        if engine in sys.modules and engine not in besides:
            found.append(engine)
            try:
                import_module(hooks).register()
            except Exception as e:
                say(f"cannot attach to {engine}: {type(e).__name__}: {e}")
    return found
