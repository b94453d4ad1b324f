"""Attaching to the engine in this process, and saying what would be attached."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from hkvtool.recorder.choke_point import ChokePoint
from hkvtool.recorder.hook_set import HookSet
from hkvtool.recorder.tell import Tell
from hkvtool.recorder.transformers.choke_points import POINTS
from hkvtool.recorder.transformers.declare import declare, tell_state
from hkvtool.recorder.transformers.hooks import EVIDENCE, Hooks


class TransformersAdapter(HookSet):
    """Half of what this engine does would mislead: all of it is hooked, or nothing."""

    engine = "transformers.generation.continuous_batching"
    distribution = "transformers"
    tried = ("5.19.0", "5.24.0")
    evidence = EVIDENCE

    def points(self) -> Sequence[ChokePoint]:
        return POINTS

    def version(self) -> str | None:
        try:
            return str(importlib.import_module("transformers").__version__)
        except ImportError:
            return None

    def hooks(self, tell: Tell, keyed: Callable[[Any], str], engine: str) -> Hooks:
        return Hooks(tell, keyed, engine)

    def take_over(self, hooks: Hooks) -> None:
        """Caches that are there already begin with what they hold."""
        module = importlib.import_module(f"{self.engine}.cache")
        for found in gc.get_objects():
            if type(found) is module.PagedAttentionCache and hasattr(found, "use_prefix_sharing"):
                tell_state(hooks, declare(hooks, found))


ADAPTER = TransformersAdapter()

attach = ADAPTER.hook
attach_report = ADAPTER.declare
