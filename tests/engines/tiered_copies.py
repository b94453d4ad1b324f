"""vLLM's tiers around a copy engine that copies at once: the one part of them that needs a GPU.

Scheduler, manager, the CPU tier's memory and the file-system tier below it are the engine's own.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class Copies(OffloadingWorker):  # type: ignore[misc]
    """Between the device's pages and the CPU tier's, which lie in memory that tiers share."""

    def __init__(self, caches: Any, region: Any) -> None:
        self.refs = caches.group_data_refs
        self.near = [t.tensor.view(torch.int8).view(-1, t.page_size_bytes) for t in caches.tensors]
        self.far = [region.create_next_worker_view(t.page_size_bytes) for t in caches.tensors]
        self.region = region
        self.done: list[TransferResult] = []

    def _copy(self, near: Any, far: Any, *, out: bool) -> None:
        at = 0
        for group, size in enumerate(near.group_sizes):
            for k in range(at, at + size):
                block, place = int(near.block_ids[k]), int(far.block_ids[k])
                for ref in self.refs[group]:
                    here, there = self.near[ref.tensor_idx][block], self.far[ref.tensor_idx][place]
                    (there if out else here).copy_(here if out else there)
            at += size

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        self._copy(src_spec, dst_spec, out=True)
        self.done.append(TransferResult(job_id, True))
        return True

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        self._copy(dst_spec, src_spec, out=False)
        self.done.append(TransferResult(job_id, True))
        return True

    def get_finished(self) -> list[TransferResult]:
        done, self.done = self.done, []
        return done

    def wait(self, job_ids: set[int]) -> None: ...

    def shutdown(self) -> None:
        self.near, self.far = [], []
        self.region.cleanup()


class Tiers(TieringOffloadingSpec):  # type: ignore[misc]
    """Says that this is how to copy."""

    def get_worker(self, kv_caches: Any) -> Any:
        if self._worker is None:
            region = SharedOffloadRegion(
                engine_id=self._engine_id, num_chunks=self.num_chunks, rank=0,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker,
            )  # fmt: skip
            self._worker = Copies(kv_caches, region)
        return self._worker
