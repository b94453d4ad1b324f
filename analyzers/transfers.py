"""605: every transfer ends once, says what failed, and gives back what it held."""

from __future__ import annotations

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event


class Transfers(Silent):
    """Looks at the ends of transfers, at who goes on after a failure, and at the trace's end."""

    codes = frozenset({"HKV605"})
    kinds = frozenset({"store_begin", "load_begin", "store_end", "load_end", "resume", "use"})

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.ends: dict[str, Event] = {}
        self.unnamed: dict[str, tuple[Event, Event]] = {}
        self.begun: dict[str, Event] = {}

    def before(self, event: Event) -> None:
        if event.ev in ("store_end", "load_end"):
            self._end(event)
        elif event.ev in ("store_begin", "load_begin"):
            name = str(event["handle"])
            self.ends.pop(name, None)
            self.begun[name] = event
            if event.ev == "load_begin" and event.req is not None:
                self._retried(event)
        elif event.ev in ("resume", "use"):
            self._went_on(event)

    def _end(self, event: Event) -> None:
        name = str(event["handle"])
        begin = self.begun.get(name)
        if begin is None:
            return
        last = self.ends.get(name)
        if last is not None:
            self.ctx.report(
                "HKV605",
                f"transfer {name} ends a second time",
                [begin.pos, last.pos, event.pos],
                slots=self.ctx.slots(begin),
                group=self.ctx.fold.group(begin["group"]),
                request=begin.req,
            )
            return
        self.ends[name] = event
        if event.get("ok") is False and not event.get("failed"):
            self.unnamed[name] = (begin, event)

    def _retried(self, event: Event) -> None:
        """A new load of the same blocks resolves a failure that named none."""
        for name, (begin, _) in list(self.unnamed.items()):
            if begin.req == event.req and begin["group"] == event["group"]:
                del self.unnamed[name]

    def _went_on(self, event: Event) -> None:
        """A request continues although a transfer of its failed without naming a block."""
        if event.req is None or not self.unnamed:
            return
        for name, (begin, end) in list(self.unnamed.items()):
            if begin.req != event.req:
                continue
            del self.unnamed[name]
            group = self.ctx.fold.group(begin["group"])
            slots = self.ctx.slots(begin)
            found = self.ctx.report(
                "HKV605",
                f"transfer {name} failed without naming a block, and request {event.req} went on",
                [begin.pos, end.pos, event.pos],
                slots=slots,
                group=group,
                request=event.req,
                check=end.pos,
                use=event.pos,
                believed={"arrived": True},
                actual={"ok": False, "failed": []},
            )
            if found is not None and group is not None:
                self.ctx.blame.put_table(found, event.req, group)

    def forget(self, before: int) -> None:
        holders = self.ctx.requests.by_name
        for name, end in list(self.ends.items()):
            if end.pos < before and name not in self.unnamed and name not in holders:
                del self.ends[name]
                self.begun.pop(name, None)

    def finish(self) -> None:
        self._never_released()
        for name in self.never_ending():
            self._never_ends(name, self.begun[name])

    def never_ending(self) -> list[str]:
        """Transfers under way at the end of a trace that goes on behind them: who wanted them is
        over."""
        requests = self.ctx.requests.by_name
        if any(r.is_request and r.ended is None for r in requests.values()):
            over = {r.name for r in requests.values() if r.ended is not None}
        else:
            over = set(requests)
        found: list[str] = []
        for name, begin in self.begun.items():
            if name in self.ends or name not in self.ctx.moves.running:
                continue
            if self.ctx.lost_since(begin.pos):
                continue
            gone = begin.req in self.ctx.requests.over
            if begin.req is not None and begin.req not in over and not gone:
                continue
            if begin.req is None and len(over) != len(requests):
                continue
            found.append(name)
        return found

    def _never_ends(self, name: str, begin: Event) -> None:
        found = self.ctx.report(
            "HKV605",
            f"transfer {name} never ends, though the trace goes on behind it",
            [begin.pos],
            slots=self.ctx.slots(begin),
            group=self.ctx.fold.group(begin["group"]),
            request=begin.req,
        )
        if found is not None and found.cause is None and begin.ev == "load_begin":
            # Who read its blocks found them on their way in, as they would be for ever.
            for code in ("HKV305", "HKV603"):
                self.ctx.lead(found, code, begin.pos)

    def _never_released(self) -> None:
        """Everything has ended, and a transfer still holds blocks under its own name."""
        ctx = self.ctx
        requests = [r for r in ctx.requests.by_name.values() if r.is_request]
        if not (requests or ctx.requests.over) or ctx.lost:
            return
        if any(r.ended is None for r in requests):
            return
        for name, end in self.ends.items():
            holder = ctx.requests.by_name.get(name)
            slots = [s for s in holder.held if ctx.fold.st.refs[s] > 0] if holder else []
            begin = self.begun.get(name)
            if slots and begin is not None:
                ctx.report(
                    "HKV605",
                    f"transfer {name} has ended, and the references it held are never given back",
                    [begin.pos, end.pos],
                    slots=slots,
                    group=ctx.fold.group(begin["group"]),
                    request=begin.req,
                    check=begin.pos,
                    use=end.pos,
                    actual={"references": ctx.fold.st.refs[slots[0]]},
                )
