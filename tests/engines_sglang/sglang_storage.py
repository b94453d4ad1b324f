"""HiCache's storage on a CPU: SGLang's own code of its threads, a turn at a time, over files."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from sglang.srt.managers import cache_controller
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.runtime_context import get_parallel
from sglang.srt.sampling.sampling_params import SamplingParams

from engines_sglang.sglang_cache import Engine


class _Idle:
    """A thread that does nothing by itself."""

    def __init__(self, **kwargs: Any) -> None:
        pass

    def start(self) -> None:
        pass

    def join(self, timeout: float | None = None) -> None:
        pass

    def is_alive(self) -> bool:
        return False


class _OneTurn:
    """An event that stops a thread's loop after its first round."""

    def __init__(self) -> None:
        self.asked = False

    def is_set(self) -> bool:
        self.asked, before = True, self.asked
        return before


@contextmanager
def one_rank(*, threads: bool = False) -> Iterator[None]:
    """A process that is the only one of its engine. Without `threads`, those of the storage do
    nothing until it is their turn."""
    inner = cache_controller.threading
    if not threads:
        cache_controller.threading = SimpleNamespace(
            Thread=_Idle, Event=threading.Event, Lock=threading.Lock
        )
    ranks = {"tp_rank": 0, "pp_rank": 0, "attn_dcp_rank": 0}
    try:
        with get_parallel().override(**ranks):
            yield
    finally:
        cache_controller.threading = inner


class Turns:
    """Has the threads of a storage do one thing each, when a test says so."""

    def __init__(self, engine: Engine) -> None:
        self.controller = engine.cache.cache_controller

    def _turn(self, loop: Callable[[], None], queue: Any) -> bool:
        if queue.empty():
            return False
        stop = self.controller.storage_stop_event
        self.controller.storage_stop_event = _OneTurn()
        try:
            loop()
        finally:
            self.controller.storage_stop_event = stop
        return True

    def ask(self) -> bool:
        """All who wait are looked up."""
        return self._turn(self.controller.prefetch_thread_func, self.controller.prefetch_queue)

    def read(self) -> bool:
        """One request's pages are read."""
        return self._turn(self.controller.prefetch_io_aux_func, self.controller.prefetch_buffer)

    def sync(self) -> bool:
        """One message of that passes what makes ranks agree."""
        return self._turn(
            self.controller.prefetch_sync_thread_func, self.controller.prefetch_sync_queue
        )

    def write(self) -> bool:
        """One node's pages are written."""
        return self._turn(self.controller.backup_thread_func, self.controller.backup_queue)

    def all(self, engine: Engine) -> None:
        """Everything, until nothing is left to do."""
        while any([self.ask(), self.read(), self.sync(), self.write()]):
            engine.cache.check_hicache_events()


def wait_for(engine: Engine, name: str, tokens: list[int], space: str | None = None) -> Any:
    """A request comes in, and the storage is asked for it, as SGLang's scheduler does."""
    req = Req(name, "", array("q", tokens), SamplingParams(max_new_tokens=4), extra_key=space)
    scheduler = MagicMock(
        enable_hicache_storage=True, enable_lmcache=False, tree_cache=engine.cache
    )
    Scheduler._prefetch_kvcache(scheduler, req)
    return req
