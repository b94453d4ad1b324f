"""302 of a seal: compressed entries are made of tokens that the tail must hold."""

from __future__ import annotations

from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.state.declarations import Group
from hkvtool.state.reading import reader_number
from hkvtool.state.requests import Request
from hkvtool.state.windows import window_faults


class Tails(Silent):
    """Judges seals that say which tail they take their tokens from."""

    codes = frozenset({"HKV302"})
    kinds = frozenset({"seal"})

    def before(self, event: Event) -> None:
        if event.ev != "seal" or event.get("pad"):
            return
        tail = self.ctx.fold.group(event.get("from"))
        tokens = event.get("tokens")
        request = self.ctx.request(event)
        if tail is None or tokens is None or request is None:
            return
        if not self.ctx.tables_known(request):
            return
        slots = self._sources(event, tail, request)
        if not slots:
            return
        gens = self.ctx.generations(slots, event.step)
        reader = reader_number(self.ctx, request)
        faults = window_faults(self.ctx.fold, tail, slots, [tuple(tokens)], reader, gens)
        for fault in faults[:1]:
            last = slots[-1]
            written = self.ctx.fold.st.wpos[self.ctx.fold.component(last, tail)]
            self.ctx.report(
                "HKV302",
                f"request {request.name} seals tokens {tokens[0]} to {tokens[1]} of group "
                f"{event['group']}, but group {tail.name} lacks tokens {fault.tokens[0]} to "
                f"{fault.tokens[1]}",
                [event.pos, written],
                slots=[s for s in [last, *self.ctx.slots(event)] if s >= 0],
                group=tail,
                request=request.name,
                step=event.step,
                use=event.pos,
                tokens=fault.tokens,
                believed={"tail": [tokens[0], tokens[1]]},
                actual=self.ctx.describe(last, tail),
            )

    def _sources(self, event: Event, tail: Group, request: Request) -> list[int]:
        """Slots that the seal takes its tokens from; none where that cannot be told."""
        sent = self.ctx.dispatched.get(event.step or -1, event.pos)
        slots = request.table_at(tail.table_id, sent)
        named = self.ctx.slots(event)
        group = self.ctx.fold.group(event["group"])
        shared = group is not None and group.table_id == tail.table_id
        gen = self.ctx.fold.st.gen
        late = self.ctx.generations(slots, event.step) != [gen[s] for s in slots]
        if late or (shared and set(named) - set(slots)):
            # The step was handed out with tables that the request no longer has.
            return named if shared else []
        return slots
