"""The engines that can be recorded from inside, and the modules that attach to them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from importlib import import_module

from hkvtool.recorder.on_import import when_imported
from hkvtool.recorder.session import say

HOOK_SETS = {
    "vllm": "hkvtool.recorder.vllm.plugin",
    "sglang": "hkvtool.recorder.sglang.plugin",
    "transformers.generation.continuous_batching": "hkvtool.recorder.transformers",
}
"""Modules whose `register` attaches to an engine, by what the engine is known to be imported by."""

WATCHED = ("transformers.generation.continuous_batching",)
"""Engines that load no plugin: their import is watched for. The others load us by themselves."""


def attach_later() -> None:
    """Attach to engines that load no plugin as soon as they are imported."""
    for engine in WATCHED:
        when_imported(engine, partial(_register, HOOK_SETS[engine]))


def _register(hooks: str) -> None:
    import_module(hooks).register()


def attach_imported(besides: Iterable[str] = ()) -> list[str]:
    """Attach to every engine that this process has imported, but for those named; which they were.
    One that cannot be attached to is said and left alone."""
    found = []
    for engine, hooks in HOOK_SETS.items():
        if engine in sys.modules and engine not in besides:
            found.append(engine)
            try:
                _register(hooks)
            except Exception as e:
                say(f"cannot attach to {engine}: {type(e).__name__}: {e}")
    return found
