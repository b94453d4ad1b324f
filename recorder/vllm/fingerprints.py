"""Fingerprints of an engine's own blocks: when they are written, stored, loaded and resumed from.

A worker that runs in the engine core's process reads them, in the order of its compute stream:
before a step what the step resumes from, behind it what it has completed. Equal content has equal
fingerprints; where they differ something wrote behind the engine's back, or a transfer did not
bring what it should (HKV906).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hkvtool.recorder.vllm.fingerprint_choice import Choice, ChoiceError
from hkvtool.recorder.vllm.specs import parts

if TYPE_CHECKING:
    from hkvtool.recorder.vllm.hooks import Hooks
    from hkvtool.recorder.vllm.pool_state import PoolState

log = logging.getLogger("hkvtool.vllm")

EVIDENCE = "bytes"

_AT_ONCE = 256
"""Pages that are read in one go: what is unpacked of them is eight times their size."""

_MASK = (1 << 63) - 1
_ODD = 0x9E3779B97F4A7C15


class Pages:
    """Where a block's bytes lie in the worker's buffer, layer by layer, by the engine's group."""

    def __init__(self, runner: Any) -> None:
        import torch

        config = runner.kv_cache_config
        first = runner.kv_caches[0]
        while isinstance(first, (list, tuple)):
            first = first[0]
        whole = torch.empty(0, dtype=torch.uint8, device=first.device)
        self.buffer = whole.set_(first.untyped_storage())
        self.units = [g.kv_cache_spec.block_size for g in config.kv_cache_groups]
        places: dict[str, tuple[int, int]] = {}
        for tensor in config.kv_cache_tensors:
            for i, layer in enumerate(tensor.layers):
                base = int(tensor.offset) + i * int(tensor.layer_stride)
                places[layer] = base, int(tensor.block_stride)
        self._groups = [
            [
                (*places[layer], int(getattr(part.spec, "real_page_size_bytes", 0))
                 or int(part.spec.page_size_bytes))
                for part in parts(group)
                for layer in part.layers
                if layer in places
            ]
            for group in config.kv_cache_groups
        ]  # fmt: skip

    def values(self, group: int, blocks: Sequence[int]) -> list[int]:
        """The fingerprint of each block: of all its layers, without what pads them."""
        sums = [0] * len(blocks)
        sizes = {size for _, _, size in self._groups[group]}
        for size in sizes:
            layers = [(i, p) for i, p in enumerate(self._groups[group]) if p[2] == size]
            starts = [base + block * stride for _, (base, stride, _) in layers for block in blocks]
            found = self._read(starts, size)
            for k, value in enumerate(found):
                layer, at = layers[k // len(blocks)][0], k % len(blocks)
                sums[at] = (sums[at] + value * (2 * layer + 1) * _ODD) & _MASK
        return sums

    def _read(self, starts: Sequence[int], size: int) -> Iterable[int]:
        import torch

        from hkvtool.kernels.rows import Rows

        kernel = _kernel(self.buffer)
        for at in range(0, len(starts), _AT_ONCE):
            some = torch.tensor(starts[at : at + _AT_ONCE], dtype=torch.int64)[:, None]
            yield from kernel(self.buffer, Rows(some, (size,))).tolist()


def _kernel(buffer: Any) -> Callable[..., Any]:
    from importlib.util import find_spec

    if buffer.is_cuda and find_spec("triton") is not None:
        from hkvtool.kernels.triton_kernels import fingerprint
    else:
        from hkvtool.kernels.reference import fingerprint
    return fingerprint


class Fingerprints:
    """What is known of the worker of this process, its requests and what it has stored."""

    def __init__(self, hooks: Hooks, choice: Choice) -> None:
        self.hooks = hooks
        self.choice = choice
        self.wanted: set[str] = set()
        """Requests that somebody looks for."""
        self._pages: Pages | None = None
        self._said = False
        self._tables: dict[str, list[list[int]]] = {}
        self._far: set[int] = set()
        """Places of the lower tier whose content was fingerprinted as it was stored."""
        self._loads: dict[str, tuple[str, int, list[int]]] = {}

    # --- steps -------------------------------------------------------------------------------

    def before(self, runner: Any, out: Any) -> None:
        """What a step resumes from, before anything of it runs."""
        for req in out.finished_req_ids:
            self._tables.pop(req, None)
            self.wanted.discard(req)
        if self._pages is None:
            if self._pool() is None:
                self._apart()
                return
            self._pages = Pages(runner)
            self.hooks.sees(EVIDENCE)
        for new in out.scheduled_new_reqs:
            self._tables[new.req_id] = [list(ids) for ids in new.block_ids]
            self._resumed(new.req_id, new.num_computed_tokens)
        cached = out.scheduled_cached_reqs
        resumed = getattr(cached, "resumed_req_ids", ())
        for i, req in enumerate(cached.req_ids):
            fresh = cached.new_block_ids[i]
            if req in resumed:
                self._tables[req] = [list(ids) for ids in fresh or ()]
                self._resumed(req, cached.num_computed_tokens[i])
            elif fresh and req in self._tables:
                for table, ids in zip(self._tables[req], fresh, strict=True):
                    table.extend(ids)

    def _apart(self) -> None:
        """Say once that this worker does not know what is published."""
        if not self._said:
            self._said = True
            log.warning(
                "nothing is fingerprinted: this worker is not in the engine core's process, "
                "and does not know what is published"
            )

    def after(self, out: Any) -> None:
        """What the step has completed and the engine has published."""
        if self._pages is None:
            return
        starts = {new.req_id: new.num_computed_tokens for new in out.scheduled_new_reqs}
        cached = out.scheduled_cached_reqs
        starts.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for req, count in out.num_scheduled_tokens.items():
            if req in self._tables and req in starts:
                self._told(req, starts[req], starts[req] + count, "publish")

    def _resumed(self, req: str, tokens: int) -> None:
        if tokens:
            self._told(req, 0, tokens, "resume")

    def _told(self, req: str, start: int, end: int, at: str) -> None:
        """Tell of the blocks that end within these tokens."""
        pages, state = self._pages, self._pool()
        if pages is None or state is None:
            return
        for group, table in enumerate(self._tables[req]):
            unit = pages.units[group]
            blocks = self._chosen(state, table[start // unit : end // unit], req)
            if blocks:
                self._tell(state, group, blocks, at, req)

    def _chosen(self, state: PoolState, blocks: Iterable[int], req: str) -> list[int]:
        """Of some blocks those that are to be read: published, and sampled or looked for."""
        pool = state.pool
        found = []
        for block in blocks:
            # Block 0 stands for none.
            name = getattr(pool.blocks[block], "block_hash", None) if block else None
            if name is not None and (req in self.wanted or self.choice.samples(_bytes(name))):
                found.append(block)
        return found

    def _tell(
        self, state: PoolState, group: int, blocks: list[int], at: str, req: str | None
    ) -> None:
        assert self._pages is not None
        event: dict[str, Any] = {
            "ev": "fingerprint", "group": state.group(group), "blocks": blocks,
            "values": self._pages.values(group, blocks), "at": at, "actor": "device",
        }  # fmt: skip
        if req is not None:
            event["req"] = req
        if self.hooks.worker_step is not None and at != "resume":
            event["step"] = self.hooks.worker_step
        self.hooks.tell.event(event)

    def _pool(self) -> PoolState | None:
        """The scheduler's pool: only where it is in this process is it known what is published."""
        return next((s for s in self.hooks.pools if s.pool is not None), None)

    # --- transfers ---------------------------------------------------------------------------

    def transfer_begun(
        self, kind: str, handle: str, group: int, blocks: list[int], far: list[int], req: str | None
    ) -> None:
        """A store reads these blocks now; a load will have filled them when it ends."""
        if self._pages is None or (state := self._pool()) is None:
            return
        wanted = req is not None and req in self.wanted
        if kind == "load":
            known = [
                block
                for block, place in zip(blocks, far, strict=False)
                if wanted or self.choice.rate >= 1 or place in self._far
            ]
            self._loads[handle] = req or "", group, known
            return
        chosen = blocks if wanted else self._chosen(state, blocks, "")
        kept = set(chosen)
        for block, place in zip(blocks, far, strict=False):
            if block in kept:
                self._far.add(place)
            else:
                self._far.discard(place)
        if chosen:
            self._tell(state, group, list(chosen), "store", req)

    def transfer_ended(self, handle: str, ok: bool) -> None:
        """What a load has brought, as the engine is told that it is there."""
        req, group, blocks = self._loads.pop(handle, ("", 0, []))
        state = self._pool()
        if ok and blocks and state is not None:
            self._tell(state, group, blocks, "load", req or None)


def _bytes(name: Any) -> bytes:
    return bytes(name) if isinstance(name, (bytes, bytearray)) else repr(name).encode()


def _asked(hooks: Hooks) -> Fingerprints | None:
    """Those of this attachment, where they are asked for."""
    if hooks.prints is None:
        try:
            choice = Choice.of_environment()
        except ChoiceError as e:
            log.warning("nothing is fingerprinted: %s", e)
            choice = Choice()
        hooks.prints = Fingerprints(hooks, choice) if choice.any else False
    return hooks.prints or None


def stepped(name: str) -> Callable[[Hooks, Any], Callable[..., Any]]:
    """A worker runs a step."""

    def make(hooks: Hooks, original: Any) -> Callable[..., Any]:
        prints = _asked(hooks)

        def wrapper(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            if prints is None:
                return original(self, scheduler_output, *args, **kwargs)
            _safely(hooks, name, prints.before, self, scheduler_output)
            result = original(self, scheduler_output, *args, **kwargs)
            _safely(hooks, name, prints.after, scheduler_output)
            return result

        return wrapper

    return make


def request_added(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """A request comes: is it one of those looked for?"""
    prints = _asked(hooks)

    def wrapper(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        if prints is not None and prints.choice.targeted:
            _safely(hooks, "request added", _look, prints, request)
        return original(self, request, *args, **kwargs)

    return wrapper


def _look(prints: Fingerprints, request: Any) -> None:
    own = str(request.request_id)
    ids = [own, str(getattr(request, "hkvtool_external", None) or own)]
    adapter = getattr(getattr(request, "lora_request", None), "lora_name", None)
    tenants = [str(t) for t in (getattr(request, "cache_salt", None), adapter) if t]
    if prints.choice.wants(ids, tenants, request.prompt_token_ids or ()):
        prints.wanted.add(own)


def _safely(hooks: Hooks, name: str, then: Callable[..., None], *args: Any) -> None:
    """What goes wrong takes the hook off, with the evidence that it gave, and not the engine."""
    try:
        then(*args)
    except Exception as e:
        hooks.prints = False
        hooks.evidence = [c for c in hooks.evidence if c != EVIDENCE]
        hooks.fail(name, e)
