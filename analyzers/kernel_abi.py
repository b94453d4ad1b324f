"""2xx: kernel ABI validation. Producer and consumer must mean the same bytes."""

from __future__ import annotations

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.model.layout import Disagreement, disagreements
from hkvtool.state.declarations import Group

ORDER = ("HKV201", "HKV202", "HKV203", "HKV204", "HKV205", "HKV404", "HKV403")
"""The first of these that two sides disagree on is the root; the rest follow from it."""

CARRIED = frozenset({"dtype", "row_bytes", "scale_bytes", "codec", "hash"})
"""Layout keys that a transfer leaves as they are: its two sides must mean the same by them."""


class KernelAbi(Silent):
    """Static: looks at declarations when they are made, and again when a layout changes."""

    codes = frozenset({"HKV201", "HKV202", "HKV203", "HKV204", "HKV205", "HKV403"})
    kinds = frozenset({"kernel", "store_begin", "load_begin"})

    def after(self, event: Event) -> None:
        if event.ev == "kernel":
            group = self.ctx.fold.group(event["group"])
            if group is not None:
                self._consumer(group, event)
        elif event.ev in ("store_begin", "load_begin"):
            self._transfer(event)

    def _consumer(self, group: Group, kernel: Event) -> None:
        wrong = disagreements(group.layout, group.block_tokens, group.ratio, kernel["expects"])
        self._tell(group, wrong, f"kernel {kernel['kernel']}", [group.pos, kernel.pos])

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.sides: set[tuple[str, str]] = set()

    def _transfer(self, event: Event) -> None:
        """The two sides of a transfer, once a pair of groups: bytes arrive as they were sent.

        Axis order and shards are left out: transfer engines convert those on the way.
        """
        ctx = self.ctx
        group = ctx.fold.group(event["group"])
        transfer = ctx.fold.transfers.get(str(event["handle"]))
        if group is None or transfer is None or transfer.far is None:
            return
        there = ctx.fold.declared.mirror(group, transfer.far)
        if there is None or (group.name, there.name) in self.sides:
            return
        self.sides.add((group.name, there.name))
        whole = len(event.get("peer") or ()) == len(event["blocks"])
        wrong = unlike_sides(group, there, whole=whole)
        self._tell(group, wrong, f"group {there.name}", [group.pos, there.pos, event.pos])

    def _tell(
        self, group: Group, wrong: list[Disagreement], consumer: str, events: list[int]
    ) -> None:
        root: Finding | None = None
        for code in ORDER:
            keys = [d for d in wrong if d.code == code]
            if not keys:
                continue
            said = "; ".join(f"{d.key} {d.producer} against {d.consumer}" for d in keys)
            found = self.ctx.report(
                code,
                f"group {group.name} and {consumer} disagree: {said}",
                events,
                group=group,
                cause=root,
                check=events[0],
                use=events[-1],
                believed={d.key: d.consumer for d in keys},
                actual={d.key: d.producer for d in keys},
            )
            root = root or found


def unlike_sides(group: Group, there: Group, *, whole: bool) -> list[Disagreement]:
    """What the two sides of a transfer disagree on; `whole` where a block goes to a block."""
    far = {k: v for k, v in there.layout.items() if k in CARRIED}
    far["ratio"] = there.ratio
    if whole:
        far["block_tokens"] = there.block_tokens
    return disagreements(group.layout, group.block_tokens, group.ratio, far)
