"""The engine's own KV events, as it publishes them, beside what the hooks saw: two witnesses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hkvtool.recorder.vllm.hooks import Hooks
from hkvtool.recorder.vllm.pool_state import PoolState

_KINDS = {"BlockStored": "stored", "BlockRemoved": "removed", "AllBlocksCleared": "cleared"}


def events_taken(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """`wire` for each event that the cache manager hands to the publisher."""

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        events = original(self, *args, **kwargs)
        if events:
            try:
                state = hooks.pool(self.block_pool)
                for event in events:
                    _tell(hooks, state, event)
            except Exception as e:
                hooks.fail("kv events", e)
        return events

    return wrapper


def _tell(hooks: Hooks, state: PoolState, event: Any) -> None:
    kind = _KINDS.get(type(event).__name__)
    if kind is None:
        return
    told: dict[str, Any] = {
        "ev": "wire", "kind": kind, "lane": "pub", "wseq": hooks.wires, "actor": "publisher",
    }  # fmt: skip
    hooks.wires += 1
    hashes = getattr(event, "block_hashes", None)
    if hashes is not None:
        told["hashes"] = [hooks.keyed.hash(_bytes(h)) for h in hashes]
    number = getattr(event, "group_idx", None)
    if number is not None:
        told["group"] = state.group(number)
    medium = getattr(event, "medium", None)
    if medium is not None:
        told["medium"] = str(medium).lower()
    hooks.tell.event(told)


def _bytes(published: Any) -> bytes:
    """A hash as it was before it was published, as far as its name needs it."""
    if isinstance(published, int):
        return (published & (1 << 64) - 1).to_bytes(8, "big")
    return bytes(published)
