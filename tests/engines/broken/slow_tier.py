"""A lower tier of plain tensors. Broken, it says that a load has ended while bytes are on the way; or
once it changes a byte of a block that it has stored, drops a page of a store, or brings one elsewhere.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from sitecustomize import fault, met
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec

_STEPS = 12
"""Steps by which a broken load is late."""


class Copies(OffloadingWorker):
    """Copies when asked to. Of several workers one is broken."""

    def __init__(self, caches: Any, *, breaks: bool) -> None:
        self.caches, self.breaks = caches, breaks
        self.host: dict[int, list[Any]] = {}
        self.done: list[TransferResult] = []
        self.late: list[tuple[int, list[tuple[Any, Any]]]] = []
        self.stored = 0
        """The block that was stored last."""

    def _once(self, name: str, group: int, block: int, place: int) -> bool:
        """Whether that is broken now, in the last group, and was not yet since it is."""
        if group + 1 < len(self.caches.group_data_refs) or not self.breaks or fault() != name:
            return False
        met(block, place)
        return True

    def _pairs(self, near: Any, far: Any) -> Any:
        at = 0
        for group, size in enumerate(near.group_sizes):
            for _ in range(size):
                yield group, int(near.block_ids[at]), int(far.block_ids[at])
                at += 1

    def _pages(self, group: int, block: int) -> list[Any]:
        return [
            self.caches.tensors[ref.tensor_idx].tensor[block]
            for ref in self.caches.group_data_refs[group]
        ]

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        for group, block, place in self._pairs(src_spec, dst_spec):
            self.host[place] = [page.clone() for page in self._pages(group, block)]
            if self._once("dropped page", group, block, place):
                self.host[place] = [page * 0 for page in self.host[place]]
            self.stored = block
        self.done.append(TransferResult(job_id, True))
        return True

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        copies = []
        for group, block, place in self._pairs(dst_spec, src_spec):
            to = self._pages(group, block)
            if self._once("load elsewhere", group, block, place):
                to = [page.clone() for page in to]
            copies += [
                (page, kept.clone()) for page, kept in zip(to, self.host[place], strict=True)
            ]
        if self.breaks and fault() == "late load":
            self.late.append((_STEPS, copies))
        else:
            _copy(copies)
        self.done.append(TransferResult(job_id, True))
        return True

    def get_finished(self) -> list[TransferResult]:
        last = len(self.caches.group_data_refs) - 1
        if self.stored and self._once("changed bytes", last, self.stored, 0):
            page = self._pages(last, self.stored)[0].view(-1)
            page[page.numel() // 2] ^= 0x55
        self.late = [(left - 1, copies) for left, copies in self.late]
        for left, copies in self.late:
            if left == 0:
                _copy(copies)
        self.late = [one for one in self.late if one[0] > 0]
        done, self.done = self.done, []
        return done

    def wait(self, job_ids: set[int]) -> None: ...


def _copy(copies: list[tuple[Any, Any]]) -> None:
    for page, kept in copies:
        page.copy_(kept)


class SlowTierSpec(CPUOffloadingSpec):
    """Says that this is how to copy."""

    def get_worker(self, kv_caches: Any) -> Any:
        rank = int(os.environ.get("BROKEN_RANK", "0"))
        breaks = torch.distributed.get_rank() == rank
        self._worker = self._worker or Copies(kv_caches, breaks=breaks)
        return self._worker
