"""A stand-in for a connector that fetches KV from another engine, recorded as such a one would be.

The network is left out: how much of a request is to be had elsewhere, and when it has come, says
the story. Everything that the scheduler decides about it is the release's own doing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1 import base

_MIXIN: tuple[type, ...] = (base.SupportsHMA,) if hasattr(base, "SupportsHMA") else ()


class Metadata(base.KVConnectorMetadata):
    """Nothing to tell the worker."""


class Remote(base.KVConnectorBase_V1, *_MIXIN):  # type: ignore[misc]
    """Fetches what the story says is elsewhere, all at once and asynchronously."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.elsewhere: dict[str, int] = {}
        """Tokens of a request that another engine has."""
        self.undecided: set[str] = set()
        """Requests of which the far side has not said yet what it has."""
        self.sink: Any = None
        self.scheduler: Any = None
        self.local: dict[str, int] = {}
        """Tokens of a request that were found here."""
        self.loading: dict[str, list[str]] = {}

    requires_kv_delivery = property(lambda self: False)

    # --- the scheduler's side ----------------------------------------------------------------

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:
        if request.request_id in self.undecided:
            return None, False
        self.local[request.request_id] = num_computed_tokens
        more = max(0, self.elsewhere.get(request.request_id, 0) - num_computed_tokens)
        return more, more > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if not num_external_tokens:
            return
        req = request.request_id
        self.elsewhere.pop(req, None)
        start = self.local[req]
        managers = self.scheduler.kv_cache_manager.coordinator.single_type_managers
        for manager, ids in zip(managers, blocks.get_block_ids(), strict=True):
            self._begin(req, manager, ids, start, start + num_external_tokens)

    def _begin(self, req: str, manager: Any, ids: list[int], start: int, end: int) -> None:
        number, unit = manager.kv_cache_group_id, manager.block_size
        mine = [i for i in ids[start // unit : -(-end // unit)] if i]
        if mine:
            handle = f"{req}.{number}"
            self.loading.setdefault(req, []).append(handle)
            self.sink(
                {"ev": "load_begin", "handle": handle, "req": req, "blocks": mine,
                 "group": manager.block_pool.hkvtool_state.group(number), "tokens": [start, end]}
            )  # fmt: skip

    def loaded(self) -> list[str]:
        """Every load that is on its way comes in now."""
        return sorted(self.loading)

    def transferred(self, output: Any) -> None:
        """What has come in is told before the engine hears of it."""
        for req in sorted(output.finished_recving or ()):
            for handle in self.loading.pop(req, ()):
                self.sink({"ev": "load_end", "handle": handle, "ok": True})

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        return Metadata()

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, Any]:
        return False, None

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, Any]:
        return False, None

    # --- the worker's side, which is not here ------------------------------------------------

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None: ...

    def wait_for_layer_load(self, layer_name: str) -> None: ...

    def save_kv_layer(self, layer_name: str, kv: Any, metadata: Any, **kwargs: Any) -> None: ...

    def wait_for_save(self) -> None: ...


def watch(engine: Any, told: Mapping[str, int]) -> None:
    """Give the connector what it needs to record, and tell it what is to be had elsewhere."""
    engine.connector.sink, engine.connector.scheduler = engine.sink, engine.scheduler
    engine.connector.elsewhere.update(told)
