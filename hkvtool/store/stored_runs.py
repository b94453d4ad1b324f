"""Which tokens a store is of, where its worker was told blocks and no tokens.

A worker copies blocks; that some between them are stored already, and so left out, it is not told.
The request's block table is: each stretch of blocks that stand side by side in it is a transfer,
which begins and ends with the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hkvtool.model.event import Event

Data = dict[str, Any]

FIRST = "first_block"
"""Key of a `store_begin`: where in the request's table its first block stands."""


class Runs:
    """Takes stores as they were recorded, and says as what transfers they are to be told."""

    def __init__(self) -> None:
        self._more: dict[str, int] = {}
        """Transfers that a store became beside its own, by handle."""

    def begun(
        self, event: Event, table: Sequence[int], unit: int
    ) -> tuple[Data | None, list[Data]]:
        """The store with its tokens (None: as it is), and the transfers of further stretches."""
        first = event.get(FIRST)
        if not isinstance(first, int):
            return None, []
        told = {key: value for key, value in event.data.items() if key != FIRST}
        blocks, peers = event["blocks"], event.get("peer")
        found = _stretches(blocks, table, first)
        if not found:
            return told, []
        handle = str(event["handle"])
        transfers = []
        for i, (low, high, place) in enumerate(found):
            one = dict(told)
            if i:
                one["handle"] = _further(handle, i)
                one.pop("seq", None)
            one["blocks"] = blocks[low:high]
            if peers is not None:
                one["peer"] = peers[low:high]
            one["tokens"] = [place * unit, (place + high - low) * unit]
            transfers.append(one)
        if len(transfers) > 1:
            self._more[handle] = len(transfers) - 1
        return transfers[0], transfers[1:]

    def ended(self, event: Event) -> list[Data]:
        """The ends of the transfers that began beside the one that ends."""
        handle = str(event.get("handle"))
        ends = []
        for i in range(1, self._more.pop(handle, 0) + 1):
            one = {key: value for key, value in event.data.items() if key != "seq"}
            one["handle"] = _further(handle, i)
            ends.append(one)
        return ends


def _further(handle: str, number: int) -> str:
    return f"{handle}+{number}"


def _stretches(
    blocks: Sequence[int], table: Sequence[int], first: int
) -> list[tuple[int, int, int]]:
    """Blocks [low, high) that stand side by side in the table, from `place` on; none where the
    table is not that of these blocks. They stand in it in their order, from `first` on."""
    found: list[tuple[int, int, int]] = []
    at = first
    for i, block in enumerate(blocks):
        try:
            at = table.index(block, at)
        except ValueError:
            return []
        if i == 0 and at != first:
            return []
        if found and at == found[-1][2] + i - found[-1][0]:
            found[-1] = (found[-1][0], i + 1, found[-1][2])
        else:
            found.append((i, i + 1, at))
        at += 1
    return found
