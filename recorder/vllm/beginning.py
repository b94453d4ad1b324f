"""Where vLLM can be begun with, and how what it has then is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hkvtool.recorder import beginning
from hkvtool.recorder.vllm.hooks import Hooks
from hkvtool.recorder.vllm.late import Running, running, take_over


class Beginning(beginning.Beginning[Hooks, Running]):
    """The hooks of one recording in this process, from the wish for them to their end."""

    engine = "vllm"
    step = ("vllm.v1.core.sched.scheduler", "Scheduler", "schedule")
    made = ("vllm.v1.core.kv_cache_manager", "KVCacheManager", "__init__")

    def look(self) -> Running:
        return running()

    def runs(self, found: Running) -> bool:
        return bool(found.managers)

    def of_step(self, found: Running, scheduler: Any) -> Running:
        config = getattr(scheduler, "vllm_config", None)
        # A worker may be one that another engine has left in the process.
        return found if config is None else replace(found, configs=[config])

    def take_over(self, hooks: Hooks, found: Running) -> None:
        take_over(hooks, found)

    def take_off(self, hooks: Hooks) -> bool:
        told = bool(hooks.pools)
        hooks.remove()
        return told

    def geometry_of(self, hooks: Hooks) -> list[Mapping[str, Any]]:
        return list(hooks.tell.geometry)
