"""Where SGLang can be begun with, and how what it has then is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hkvtool.recorder import beginning
from hkvtool.recorder.sglang.hooks import Hooks
from hkvtool.recorder.sglang.late import Running, running, take_over


class Beginning(beginning.Beginning[Hooks, Running]):
    """The hooks of one recording in this process, from the wish for them to their end."""

    engine = "sglang"
    step = ("sglang.srt.managers.scheduler", "Scheduler", "get_next_batch_to_run")
    made = ("sglang.srt.mem_cache.unified_radix_cache", "UnifiedRadixCache", "__init__")

    def look(self) -> Running:
        return running()

    def runs(self, found: Running) -> bool:
        return bool(found.caches)

    def of_step(self, found: Running, scheduler: Any) -> Running:
        # Requests have come and gone since.
        return running()

    def take_over(self, hooks: Hooks, found: Running) -> None:
        take_over(hooks, found)

    def take_off(self, hooks: Hooks) -> bool:
        told = bool(hooks.caches)
        hooks.remove()
        return told

    def geometry_of(self, hooks: Hooks) -> list[Mapping[str, Any]]:
        return list(hooks.tell.geometry)
