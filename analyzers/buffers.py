"""706: metadata and staging buffers that change under their reader, or are read too far."""

from __future__ import annotations

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.analyzers.places import KEPT
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.state.order_stamp import Stamp


class Buffers(Silent):
    """Remembers who writes and reads each buffer, and asks the order about them."""

    codes = frozenset({"HKV706"})
    kinds = frozenset({"buffer"})

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.accesses: dict[str, list[tuple[Event, Stamp]]] = {}
        self.explained: list[tuple[Finding, Stamp, Stamp]] = []

    def before(self, event: Event) -> None:
        if self.ctx.after_loss(event):
            self.accesses.clear()
        if event.ev == "buffer":
            self._access(event)

    def finish(self) -> None:
        for finding, first, second in self.explained:
            finding.edge = str(self.ctx.order.explain_missing(first, second))

    def _access(self, event: Event) -> None:
        stamp = self.ctx.stamp
        if stamp is None:
            return
        held = self.accesses.setdefault(str(event["name"]), [])
        before = self.ctx.order.before
        writes = event["op"] == "write"
        if "stream" in self.ctx.evidence:
            for earlier, when in held:
                if (writes or earlier["op"] == "write") and not before(when, stamp):
                    self._mutated(event, earlier, when, stamp)
                    break
        if writes:
            held[:] = [(e, s) for e, s in held if not before(s, stamp)]
        else:
            last = next((e for e, _ in reversed(held) if e["op"] == "write"), None)
            if last is not None:
                self._too_far(event, last)
        held.append((event, stamp))
        del held[:-KEPT]

    def _too_far(self, event: Event, last: Event) -> None:
        """A read takes more entries than the last write left valid."""
        valid, extent = last.get("valid"), event.get("extent")
        if valid is None or extent is None or extent <= valid:
            return
        self.ctx.report(
            "HKV706",
            f"buffer {event['name']} is read to {extent} entries, of which only {valid} are valid",
            [last.pos, event.pos],
            request=event.req,
            check=last.pos,
            use=event.pos,
            step=event.step,
            believed={"extent": extent},
            actual={"valid": valid},
        )

    def _mutated(self, event: Event, earlier: Event, when: Stamp, stamp: Stamp) -> None:
        name = event["name"]
        if earlier["op"] == "read":
            what = f"buffer {name} is written again before its reader has surely read it"
        else:
            what = f"buffer {name} is read though its write is not ordered before"
        finding = self.ctx.report(
            "HKV706",
            f"{what}: no edge orders event {earlier.pos} before event {event.pos}",
            [earlier.pos, event.pos],
            request=event.req,
            check=earlier.pos,
            use=event.pos,
            step=event.step if event.step is not None else earlier.step,
            believed={"version": earlier.get("version")},
            actual={"version": event.get("version")},
        )
        if finding is not None and finding.edge is None:
            finding.edge = ""
            self.explained.append((finding, when, stamp))
