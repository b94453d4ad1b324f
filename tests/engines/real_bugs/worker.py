"""What a model runner does with a step, as events: it writes and reads where it is told to.

There is no model; the block tables are kept from what the scheduler hands over, as a worker keeps
them, and each group is written and read as its kind of layer does. What is recorded of the
scheduler comes from the recorder's own hooks, not from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Sink = Callable[[Mapping[str, Any]], Any]
Span = tuple[str, int, int]
"""A request and the positions that the step computes."""


class Worker:
    """Block tables as the worker has them, and the accesses of each step."""

    def __init__(self, scheduler: Any, sink: Sink) -> None:
        self.scheduler = scheduler
        self.sink = sink
        self.tables: dict[str, list[list[int]]] = {}
        coordinator = scheduler.kv_cache_manager.coordinator
        self.managers = coordinator.single_type_managers

    def run(self, step: Any) -> None:
        """The step's accesses, in the order in which its kernels make them."""
        number = getattr(step, "hkvtool_step", None)
        starts = self._learn(step)
        if number is None:
            return
        if zeroed := getattr(step, "new_block_ids_to_zero", None):
            pool = self._state(0).name
            self.sink({"ev": "zero", "pool": pool, "blocks": list(zeroed), "step": number})
        for copy in getattr(step, "kv_cache_block_copies", None) or ():
            ends = {"src": [copy.src_block_id], "dst": [copy.dst_block_id]}
            self.sink({"ev": "copy", "pool": self._state(0).name, **ends, "step": number})
        spans = [(r, starts[r], starts[r] + n) for r, n in step.num_scheduled_tokens.items()]
        for i, manager in enumerate(self.managers):
            if type(manager.kv_cache_spec).__name__ == "MambaSpec":
                self._scan(number, i, spans)
            else:
                self._attend(number, i, spans)
        for req in step.finished_req_ids:
            self.tables.pop(req, None)

    def transferred(self, output: Any, step: Any) -> None:
        """A connector's worker half has its say before the step's output goes back."""
        connector = self.scheduler.connector
        hook = getattr(connector, "worker_transferred", None)
        if hook is not None:
            hook(output, step)

    def _learn(self, step: Any) -> dict[str, int]:
        starts: dict[str, int] = {}
        for new in step.scheduled_new_reqs:
            self.tables[new.req_id] = [list(ids) for ids in new.block_ids]
            starts[new.req_id] = new.num_computed_tokens
        cached = step.scheduled_cached_reqs
        resumed = getattr(cached, "resumed_req_ids", None) or ()
        for i, req in enumerate(cached.req_ids):
            fresh = cached.new_block_ids[i]
            starts[req] = cached.num_computed_tokens[i]
            if req in resumed:
                self.tables[req] = [list(ids) for ids in fresh]
            elif fresh is not None:
                for table, ids in zip(self.tables[req], fresh, strict=True):
                    table.extend(ids)
        return starts

    def _attend(self, step: int, number: int, spans: list[Span]) -> None:
        """Attention layers write the whole batch before they read."""
        manager = self.managers[number]
        unit, window = manager.block_size, getattr(manager.kv_cache_spec, "sliding_window", None)
        for req, start, end in spans:
            blocks = self.tables[req][number][start // unit : (end - 1) // unit + 1]
            common = self._common(step, number, req)
            self.sink({"ev": "write", **common, "blocks": blocks, "tokens": [start, end]})
        for req, start, end in spans:
            oldest = max(0, start - window + 1) // unit if window else 0
            blocks = self.tables[req][number][oldest : (end - 1) // unit + 1]
            common = self._common(step, number, req)
            self.sink({"ev": "use", **common, "blocks": blocks, "tokens": [oldest * unit, end]})

    def _scan(self, step: int, number: int, spans: list[Span]) -> None:
        """Recurrent layers read the whole batch's states before they write."""
        unit = self.managers[number].block_size
        for req, start, _ in spans:
            if start:
                slot = self.tables[req][number][(start - 1) // unit]
                self.sink({"ev": "use", **self._common(step, number, req), "blocks": [slot]})
        for req, start, end in spans:
            slot = self.tables[req][number][(end - 1) // unit]
            common = self._common(step, number, req)
            self.sink({"ev": "write", **common, "blocks": [slot], "tokens": [start, end]})

    def _common(self, step: int, number: int, req: str) -> dict[str, Any]:
        return {"group": self._state(number).group(number), "req": req, "step": step}

    def _state(self, number: int) -> Any:
        return self.managers[number].block_pool.hkvtool_state
