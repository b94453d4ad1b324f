"""Findings about one trace that come from outside it: what other engines tell of its loads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hkvtool.analyzers.across import Side
from hkvtool.analyzers.check import Check, settled
from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.analyzers.taint import Spread, Taint
from hkvtool.model.collector import uncollected
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.state.wording import of_blocks


class Charges(Silent):
    """Puts each finding where its last event has been, so that what follows from it is followed."""

    def __init__(self, ctx: Context, charges: Sequence[Finding]) -> None:
        super().__init__(ctx)
        self._due: dict[int, list[Finding]] = {}
        for one in charges:
            # What is found in the trace itself may be put under it.
            own = replace(one, blocks=list(one.blocks), caused=list(one.caused))
            self._due.setdefault(max(one.events, default=0), []).append(own)

    def after(self, event: Event) -> None:
        self.ctx.findings += self._due.pop(event.pos, ())


def spreads(events: Iterable[Event], charges: Sequence[Finding]) -> dict[str, Spread]:
    """How far what is wrong in a trace has spread there, its charges included, by root finding."""
    evidence, events = settled(events)
    charged = frozenset(one.id for one in charges)
    watching: list[Taint] = []

    def follow(ctx: Context) -> Taint:
        watching.append(Taint(ctx, charged))
        return watching[0]

    with uncollected():
        Check(Context(evidence), [lambda ctx: Charges(ctx, charges), follow]).run(events)
    return watching[0].spreads


def loaded_of(root: tuple[str, str], loads: Sequence[Side], name: str, pool: str) -> Finding:
    """What an instance is charged with that loaded, rightly, what another one's fault made bad:
    `root` is that instance and the finding there."""
    first = loads[0].moved
    blocks = [one.moved.blocks[one.i] for one in loads]
    events = sorted({m.pos for m in (first.check, first.begin, first.end) if m is not None})
    return Finding(
        "HKV906",
        f"load {first.handle} takes {of_blocks(blocks)} of group {first.group} from {root[0]}, "
        f"whose content rests on what was wrong there ({root[1]})",
        events, check=first.check.pos if first.check else None, use=first.begin.pos,
        request=first.req, group=first.group, pool=pool, blocks=blocks, tokens=first.tokens,
        id=name,
    )  # fmt: skip
