"""The KV events that an engine publishes, and a router that applies them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hkvtool.engine.allocator import Emit


class Wire:
    """Turns publications and evictions into numbered `wire` events, sent and received.

    A hash is announced with its group and its medium: the same content can stand on several.
    """

    def __init__(self, emit: Emit) -> None:
        self.emit = emit
        self.number = 0
        self._hash: dict[tuple[str, int], int] = {}
        self._block: dict[tuple[str, int], int] = {}

    def follow(self, ev: str, keys: Mapping[str, Any]) -> None:
        """See one event of the engine and announce what it means for the cache."""
        if ev == "publish":
            for block, name in zip(keys["blocks"], keys["hashes"], strict=True):
                self._hash[keys["group"], block] = name
                self._block[keys["group"], name] = block
            self._tell("stored", keys["group"], keys["hashes"])
        elif ev == "unpublish":
            group = keys["group"]
            hashes = keys.get("hashes") or [self._hash[group, block] for block in keys["blocks"]]
            for name in hashes:
                del self._hash[group, self._block.pop((group, name))]
            self._tell("removed", group, hashes)

    def _tell(self, kind: str, name: str, hashes: Sequence[int]) -> None:
        _, _, tier = name.partition("@")
        event = {
            "kind": kind, "wseq": self.number, "group": name, "hashes": list(hashes),
            "medium": tier or "gpu",
        }  # fmt: skip
        self.number += 1
        self.send(event)
        self.receive(event)

    def send(self, event: dict[str, Any]) -> None:
        """The engine publishes the event."""
        self.emit("wire", actor="sched", lane="pub", **event)

    def receive(self, event: dict[str, Any]) -> None:
        """The router applies the event."""
        self.emit("wire", actor="router", lane="recv", **event)
