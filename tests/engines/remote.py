"""A connector to a remote cache that loads while the engine goes on, as those to other hosts do.

It says that it has the beginning of every prompt, takes some steps for a load, and every third one
fails in its last block. No bytes move: what is looked at is what the engine is told, and when.
"""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
)

LONGEST = 128
TAKES = 3
"""Steps from the begin of a load to its end."""


class Wanted(KVConnectorMetadata):  # type: ignore[misc]
    def __init__(self, loads: dict[str, list[int]]) -> None:
        self.loads = loads


class Remote(KVConnectorBase_V1):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.wanted: dict[str, list[int]] = {}
        self.under_way: dict[str, tuple[int, list[int]]] = {}
        self.bad: set[int] = set()
        self.count = 0

    # The scheduler's side.

    def get_num_new_matched_tokens(self, request: Any, computed: int) -> tuple[int, bool]:
        has = min(request.num_tokens - 1, LONGEST) // 32 * 32
        return max(0, has - computed), has > computed

    def update_state_after_alloc(self, request: Any, blocks: Any, external: int) -> None:
        if external:
            self.wanted[request.request_id] = list(blocks.get_block_ids()[0])

    def build_connector_meta(self, scheduler_output: Any) -> Wanted:
        wanted, self.wanted = self.wanted, {}
        return Wanted(wanted)

    # The worker's.

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        for req, blocks in self._get_connector_metadata().loads.items():
            self.under_way[req] = (TAKES, blocks)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[None, set[str] | None]:
        done = set()
        for req, (left, blocks) in list(self.under_way.items()):
            self.under_way[req] = (left - 1, blocks)
            if left == 0:
                del self.under_way[req]
                done.add(req)
                self.count += 1
                if self.count % 3 == 0:
                    self.bad.add(blocks[-1])
        return None, done or None

    def get_block_ids_with_load_errors(self) -> set[int]:
        bad, self.bad = self.bad, set()
        return bad

    def wait_for_layer_load(self, layer_name: str) -> None: ...

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, metadata: Any, **kwargs: Any
    ) -> None: ...

    def wait_for_save(self) -> None: ...
