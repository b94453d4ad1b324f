"""vLLM's offloading connector, both halves, around a copy engine that copies at once.

In the order of either model runner: one flushes pending stores before new blocks are cleared, the
other after.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheGroupSpec,
    KVCacheTensor,
    SlidingWindowSpec,
)
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec
from vllm.v1.outputs import KVConnectorOutput

from engines.vllm_scheduler import make_request, make_scheduler, worker_output
from hkvtool.recorder.vllm.hooks import Hooks
from hkvtool.recorder.vllm.worker_hooks import step_begun, transfers_begun

PAGE = 16 * 2 * 64 * 4
Order = str
FIRST_RUNNER, SECOND_RUNNER = "V1", "V2"


class Copies(OffloadingWorker):
    """Copies when asked to, as a stream that waits for the compute stream would."""

    def __init__(self, caches: Any) -> None:
        self.caches = caches
        self.host: dict[int, list[torch.Tensor]] = {}
        self.done: list[TransferResult] = []
        self.stored: list[tuple[int, int, int, torch.Tensor]] = []

    def _pairs(self, near: Any, far: Any) -> Any:
        at = 0
        for group, size in enumerate(near.group_sizes):
            for _ in range(size):
                yield group, int(near.block_ids[at]), int(far.block_ids[at])
                at += 1

    def _pages(self, group: int, block: int) -> list[torch.Tensor]:
        return [
            self.caches.tensors[r.tensor_idx].tensor[block]
            for r in self.caches.group_data_refs[group]
        ]

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        for group, block, place in self._pairs(src_spec, dst_spec):
            pages = [p.clone() for p in self._pages(group, block)]
            self.host[place] = pages
            self.stored.append((job_id, group, block, pages[0]))
        self.done.append(TransferResult(job_id, True))
        return True

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        for group, block, place in self._pairs(dst_spec, src_spec):
            for page, kept in zip(self._pages(group, block), self.host[place], strict=True):
                page.copy_(kept)
        self.done.append(TransferResult(job_id, True))
        return True

    def get_finished(self) -> list[TransferResult]:
        done, self.done = self.done, []
        return done

    def wait(self, job_ids: set[int]) -> None:
        pass


class CopiesSpec(CPUOffloadingSpec):
    """Says that this is how to copy."""

    def get_worker(self, kv_caches: Any) -> Any:
        self._worker = self._worker or Copies(kv_caches)
        return self._worker


_module = ModuleType("engines_copies")
_module.CopiesSpec = CopiesSpec  # type: ignore[attr-defined]
sys.modules.setdefault("engines_copies", _module)


class Offloading:
    """A scheduler with the connector, and the worker's half of a step in one runner's order."""

    def __init__(
        self, folder: Path, hooks: Hooks, order: Order, groups: list[KVCacheGroupSpec], *,
        overlapped: bool, blocks: int, prompt_only: bool, host_bytes: int = 1 << 24,
        **scheduler: Any,
    ) -> None:  # fmt: skip
        transfer = KVTransferConfig(
            kv_connector="OffloadingConnector", kv_role="kv_both",
            kv_connector_extra_config={
                "cpu_bytes_to_use": host_bytes, "offload_prompt_only": prompt_only,
                "spec_name": "CopiesSpec", "spec_module_path": "engines_copies",
            },
        )  # fmt: skip
        made = make_scheduler(
            folder,
            groups,
            blocks=blocks,
            overlapped=overlapped,
            transfer=transfer,
            **{"budget": 256, **scheduler},
        )
        self.scheduler = made.scheduler
        self.order = order
        self.depth = 2 if overlapped else 1
        self.worker = OffloadingConnector(
            self.scheduler.vllm_config, KVConnectorRole.WORKER, self.scheduler.kv_cache_config
        )
        self._lay_out(blocks)
        hooks.tell.event({"ev": "buffer", "name": "block_table", "op": "write", "actor": "device"})
        first = order == FIRST_RUNNER
        self._prepare: Callable[..., Any] = step_begun("fake runner", marks=first)(hooks, _zero)
        self._transfers: Callable[..., Any] = transfers_begun(hooks, _flush)
        self.flight: deque[tuple[Any, Any]] = deque()

    def _lay_out(self, blocks: int) -> None:
        """A byte a block, whatever the groups: where blocks go is told, not what they hold."""
        self.pages = torch.zeros((blocks, 1), dtype=torch.int8)
        count = len(self.scheduler.kv_cache_config.kv_cache_groups)
        page = SimpleNamespace(tensor=self.pages, tensor_idx=0, page_size_bytes=1)
        self.worker.connector_worker._init_worker(
            SimpleNamespace(tensors=[page], group_data_refs=[[page]] * count)
        )

    def add(self, name: str, tokens: list[int], output: int) -> None:
        self.scheduler.add_request(make_request(self.scheduler, name, tokens, output))

    @property
    def busy(self) -> bool:
        s = self.scheduler
        return bool(s.has_unfinished_requests() or s.has_finished_requests() or self.flight)

    def step(self) -> None:
        planned = self.scheduler.schedule()
        output = worker_output(self.scheduler, planned)
        output.kv_connector_output = self._work(planned)
        self.flight.append((planned, output))
        keep = self.depth - 1 if planned.total_num_scheduled_tokens else 0
        while len(self.flight) > keep:
            self.scheduler.update_from_output(*self.flight.popleft())

    def _work(self, planned: Any) -> Any:
        told = planned.kv_connector_metadata
        if self.order == FIRST_RUNNER:
            self.worker.handle_preemptions(told)
        self._prepare(self, planned)
        if self.order == SECOND_RUNNER:
            self._transfers(self, planned)
        self.worker.bind_connector_metadata(told)
        self.worker.start_load_kv(None)
        self._forward(planned)
        self.worker.wait_for_save()
        _, received = self.worker.get_finished(planned.finished_req_ids)
        meta = self.worker.build_connector_worker_meta()
        self.worker.clear_connector_metadata()
        return KVConnectorOutput(finished_recving=received or None, kv_connector_worker_meta=meta)

    def _forward(self, planned: Any) -> None:
        """The model runs."""


class OffloadDrive(Offloading):
    """The same with real pages of two groups that overlay one another: what is stored is judged."""

    def __init__(
        self, folder: Path, hooks: Hooks, order: Order, *, blocks: int, **options: Any
    ) -> None:
        shape: dict[str, Any] = {"block_size": 16, "num_kv_heads": 2}
        groups = [
            KVCacheGroupSpec(["l0"], FullAttentionSpec(head_size=32, dtype=torch.float32, **shape)),
            KVCacheGroupSpec(
                ["l1"],
                SlidingWindowSpec(head_size=64, dtype=torch.bfloat16, sliding_window=48, **shape),
            ),
        ]
        tensors = [
            KVCacheTensor(
                size=blocks * PAGE,
                layers=g.layer_names,
                layer_stride=blocks * PAGE,
                block_stride=PAGE,
            )
            for g in groups
        ]
        super().__init__(folder, hooks, order, groups, blocks=blocks, tensors=tensors, **options)
        self.tags: dict[str, int] = {}
        self.job_of: dict[int, str] = {}
        self.tables: dict[str, list[list[int]]] = {}
        self.wrong: list[tuple[str, int, int]] = []
        self.right = 0

    def _lay_out(self, blocks: int) -> None:
        buffer = torch.zeros(blocks * PAGE, dtype=torch.int8)
        self.pages = buffer.view(blocks, PAGE)
        views = {}
        for group in self.scheduler.kv_cache_config.kv_cache_groups:
            spec = group.kv_cache_spec
            view = torch.as_strided(
                buffer, [blocks, 2, 16, spec.state_content_size_bytes],
                [PAGE, PAGE // 2, spec.state_content_size_bytes, 1],
            )  # fmt: skip
            views[group.layer_names[0]] = view.view(spec.dtype)
        self.worker.register_kv_caches(views)

    def add(self, name: str, tokens: list[int], output: int) -> None:
        self.tags[name] = len(self.tags) % 100 + 1
        super().add(name, tokens, output)

    def _work(self, planned: Any) -> Any:
        stores = planned.kv_connector_metadata.store_jobs
        self.job_of.update({job: one.req_id for job, one in stores.items()})
        stored = self.worker.connector_worker.worker.stored
        before = len(stored)
        output = super()._work(planned)
        self._judge(stored[before:])
        return output

    def _forward(self, planned: Any) -> None:
        starts = {}
        for new in planned.scheduled_new_reqs:
            self.tables[new.req_id] = [list(g) for g in new.block_ids]
            starts[new.req_id] = new.num_computed_tokens
        cached = planned.scheduled_cached_reqs
        for req, fresh, start in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            if req in cached.resumed_req_ids:
                self.tables[req] = [list(g) for g in fresh]
            elif fresh:
                for table, ids in zip(self.tables[req], fresh, strict=True):
                    table.extend(ids)
            starts[req] = start
        for req, count in planned.num_scheduled_tokens.items():
            for table in self.tables[req]:
                for token in range(starts[req], starts[req] + count):
                    block = table[token // 16]
                    if block:
                        self.pages[block].view(16, -1)[token % 16] = self.tags[req]

    def _judge(self, stored: list[tuple[int, int, int, torch.Tensor]]) -> None:
        """A stored page must hold what some request wrote, whole: never zeros, never two tags."""
        for job, group, block, page in stored:
            values = page.view(16, -1)[:, 0]
            if bool((values == values[0]).all()) and int(values[0]) == self.tags[self.job_of[job]]:
                self.right += 1
            else:
                self.wrong.append((self.job_of[job], group, block))


def _zero(drive: Any, planned: Any) -> None:
    for block in planned.new_block_ids_to_zero or ():
        drive.pages[block] = 0


def _flush(drive: Any, planned: Any) -> None:
    drive.worker.handle_preemptions(planned.kv_connector_metadata)


def own_prompts(count: int, length: int) -> list[list[int]]:
    """Prompts that share nothing, so that a page's tag is its request's."""
    rng = random.Random(5)
    return [[rng.randrange(3, 250) for _ in range(length)] for _ in range(count)]
