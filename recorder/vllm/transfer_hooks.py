"""Hooks on KV offloading: each transfer's begin and end, and what orders it against the steps.

A copy stream first waits for the compute stream, so a transfer begins behind everything that is on
the device's lane by then. A flush makes the worker wait for transfers, so what it launches next
comes behind their end; otherwise the end reaches the scheduler, and what it plans next is behind.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from hkvtool.recorder.patches import find, is_wrapped
from hkvtool.recorder.vllm.declare import group_names
from hkvtool.recorder.vllm.hooks import Hooks
from hkvtool.recorder.vllm.worker_hooks import DEVICE

WORKER = "worker:0"
"""The lane of the worker's own thread."""

TIER = "offload"
"""The pool that blocks are stored to, whatever lies behind it."""

_MANY = 1 << 40


class Transfers:
    """What the hooks know of the transfers of one connector's worker."""

    def __init__(self, hooks: Hooks, connector: Any) -> None:
        config = connector.kv_cache_config
        choose = getattr(sys.modules[type(connector).__module__], "get_offloading_group_ids", None)
        numbers = choose(config) if choose else range(len(config.kv_cache_groups))
        self.hooks = hooks
        self.tier = f"{TIER}{hooks.rank}"
        known = hooks.worker_config(config) or config
        pool = f"gpu{hooks.rank}"
        self.names = [group_names(known, n, pool) for n in numbers]
        """Of each group that is offloaded those of its block table: whole blocks are moved."""
        self.groups = [(names[0], n) for names, n in zip(self.names, numbers, strict=True)]
        self.units = [config.kv_cache_groups[n].kv_cache_spec.block_size for n in numbers]
        self.recurrent = [
            hasattr(config.kv_cache_groups[n].kv_cache_spec, "shapes") for n in numbers
        ]
        self.chunk = max(1, int(getattr(connector.spec, "blocks_per_chunk", 1) or 1))
        self.open: dict[int, tuple[str, list[str]]] = {}
        """Transfers under way by job: store or load, and their handles."""
        self.reqs: dict[int, str] = {}
        self._declared = False

    def begin(self, kind: str, job: int, near: Any, far: Any) -> None:
        """A job begins: one transfer for each group, and for each kind of content in its blocks."""
        if not self._declared:
            self._declared = True
            self.tell(
                {"ev": "pool", "pool": self.tier, "medium": "cpu", "blocks": _MANY, "actor": WORKER}
            )  # fmt: skip
        ids, far_ids = _ids(near) or [], _ids(far)
        handles: list[str] = []
        at = chunks = 0
        for i, size in enumerate(near.group_sizes):
            blocks, at = ids[at : at + size], at + size
            if not blocks:
                continue
            first = int(near.block_indices[i])
            used = -(-(first % self.chunk + size) // self.chunk)
            handle = f"{kind}{job}.{self.groups[i][1]}"
            handles.append(handle)
            event: dict[str, Any] = {
                "ev": f"{kind}_begin", "handle": handle, "group": self.groups[i][0],
                "blocks": blocks, "actor": DEVICE,
            }  # fmt: skip
            if self.hooks.worker_step is not None:
                # What a store reads is what that step left, whoever holds the block by now.
                event["step"] = self.hooks.worker_step
            if far_ids is not None:
                places = far_ids[chunks : chunks + used]
                skip = first % self.chunk
                event["to" if kind == "store" else "from"] = self.tier
                event["peer"] = [
                    places[(skip + k) // self.chunk] * self.chunk + (skip + k) % self.chunk
                    for k in range(size)
                ]
            chunks += used
            if not self.recurrent[i]:
                unit = self.units[i]
                if kind == "load" or size == 1:
                    event["tokens"] = [first * unit, (first + size) * unit]
                else:
                    # What is stored already is left out between them: the table says which.
                    event["first_block"] = first
            if job in self.reqs:
                event["req"] = self.reqs[job]
            self.tell(event)
            for part, name in enumerate(self.names[i][1:], 1):
                handles.append(f"{handle}.{part}")
                self.tell({**event, "group": name, "handle": handles[-1]})
            if self.hooks.prints:
                self.hooks.prints.transfer_begun(
                    kind, handle, self.groups[i], blocks, event.get("peer", []),
                    self.reqs.get(job),
                )  # fmt: skip
        self.open[job] = (kind, handles)

    def end(self, job: int, ok: bool, lane: str) -> None:
        """A job has ended, or is known to have."""
        found = self.open.pop(job, None)
        if found is None:
            return
        kind, handles = found
        for handle in handles:
            event: dict[str, Any] = {"ev": f"{kind}_end", "handle": handle, "actor": lane}
            if not ok:
                event["ok"] = False
            self.tell(event)
            if self.hooks.prints:
                self.hooks.prints.transfer_ended(handle, ok)

    def tell(self, event: dict[str, Any]) -> None:
        """Every worker moves its share of the same blocks; the first tells of it."""
        if not self.hooks.worker_rank:
            self.hooks.tell.event(event)


def worker_made(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """The connector's worker is there."""

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        try:
            follow_worker(hooks, self)
        except Exception as e:
            hooks.fail("offload worker", e)
        return result

    return wrapper


def follow_worker(hooks: Hooks, connector: Any) -> None:
    """Follow the transfers of a connector's worker, which is of a class that may come from
    anywhere: its four functions are wrapped now."""
    hooks.transfers = Transfers(hooks, connector)
    cls = type(connector.worker)
    for name, make in _FUNCTIONS.items():
        target = find(cls, name)
        if not isinstance(target, str) and not is_wrapped(cls, name):
            wrapped = make(hooks, target.function)
            hooks.install(f"{cls.__name__}.{name}", target, wrapped, ())


def jobs_seen(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """Whose transfers the jobs of a step are."""

    def wrapper(self: Any, metadata: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if hooks.transfers is not None:
                for jobs in (metadata.store_jobs, metadata.load_jobs):
                    for job, one in jobs.items():
                        hooks.transfers.reqs[job] = one.req_id
        except Exception as e:
            hooks.fail("offload jobs", e)
        return original(self, metadata, *args, **kwargs)

    return wrapper


def outputs_taken(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """The scheduler learns which jobs are over: what it does next comes behind them."""

    def wrapper(self: Any, connector_output: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            meta = getattr(connector_output, "kv_connector_worker_meta", None)
            for job in getattr(meta, "completed_jobs", ()):
                hooks.tell.event({"ev": "wait", "event": _edge(hooks, job)})
        except Exception as e:
            hooks.fail("offload output", e)
        return original(self, connector_output, *args, **kwargs)

    return wrapper


def _submit(kind: str) -> Callable[[Hooks, Any], Callable[..., Any]]:
    def make(hooks: Hooks, original: Any) -> Callable[..., Any]:
        def wrapper(self: Any, job_id: int, src: Any, dst: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                if hooks.transfers is not None:
                    near, far = (src, dst) if kind == "store" else (dst, src)
                    hooks.transfers.begin(kind, job_id, near, far)
            except Exception as e:
                hooks.fail(f"{type(self).__name__}.submit_{kind}", e)
            return original(self, job_id, src, dst, *args, **kwargs)

        return wrapper

    return make


def _finished(hooks: Hooks, original: Any) -> Callable[..., Any]:
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        results = original(self, *args, **kwargs)
        try:
            transfers = hooks.transfers
            for result in results if transfers is not None else ():
                transfers.end(result.job_id, bool(result.success), WORKER)
                transfers.reqs.pop(result.job_id, None)
                edge = _edge(hooks, result.job_id)
                transfers.tell({"ev": "signal", "event": edge, "actor": WORKER})
                # The worker knows that it is over before it launches anything more.
                transfers.tell({"ev": "wait", "event": edge, "actor": DEVICE})
        except Exception as e:
            hooks.fail(f"{type(self).__name__}.get_finished", e)
        return results

    return wrapper


def _waited(hooks: Hooks, original: Any) -> Callable[..., Any]:
    def wrapper(self: Any, job_ids: Any, *args: Any, **kwargs: Any) -> Any:
        jobs = set(job_ids)
        result = original(self, job_ids, *args, **kwargs)
        try:
            for job in sorted(jobs) if hooks.transfers is not None else ():
                hooks.transfers.end(job, True, DEVICE)
        except Exception as e:
            hooks.fail(f"{type(self).__name__}.wait", e)
        return result

    return wrapper


_FUNCTIONS: dict[str, Callable[[Hooks, Any], Callable[..., Any]]] = {
    "submit_store": _submit("store"), "submit_load": _submit("load"),
    "get_finished": _finished, "wait": _waited,
}  # fmt: skip


def _ids(spec: Any) -> list[int] | None:
    """Block ids of one side, if it has any."""
    found: Sequence[Any] | None = getattr(spec, "block_ids", None)
    return None if found is None else [int(b) for b in found]


def _edge(hooks: Hooks, job: int) -> str:
    return f"job {job}{hooks.rank}"
