"""What a lookup found against what its resume takes: blocks that nothing led to, and matched
tokens thrown away (308)."""

from __future__ import annotations

from hkvtool.analyzers.context import Context
from hkvtool.model.event import Event
from hkvtool.state.reading import brought
from hkvtool.state.requests import Request


def report_veto(ctx: Context, event: Event, request: Request) -> None:
    """308: one group's short hit cost tokens that another had."""
    lookup = request.lookup
    if lookup is None:
        return
    named = ((ctx.fold.group(name), tokens) for name, tokens in lookup["hit"].items())
    hits = {g: tokens for g, tokens in named if g is not None and g.participates}
    if not hits:
        return
    best = max(hits, key=lambda g: hits[g])
    worst = min(hits, key=lambda g: hits[g])
    kept = max(event["at"], hits[worst])
    lost = hits[best] - kept
    if lost <= 0:
        return
    ctx.report(
        "HKV308",
        f"request {request.name} throws away {lost} matched tokens: group {best.name} hits "
        f"{hits[best]}, but group {worst.name} only {hits[worst]}",
        [lookup.pos, event.pos],
        group=worst,
        request=request.name,
        check=lookup.pos,
        tokens=(kept, hits[best]),
        believed={"hit": {g.name: tokens for g, tokens in hits.items()}},
        actual={"resumed_at": event["at"], "limiting_group": worst.name, "lost": lost},
        blocks=brought(ctx, lookup, best) or [],
        pool=best.pool.name,
    )
