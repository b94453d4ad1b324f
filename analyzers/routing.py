"""6xx: form routing. A block is read as what it is, by a route that fits its form.

What becomes of the transfers that bring blocks back (605) is in `transfers`.
"""

from __future__ import annotations

from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.state.reading import brought

FITTING = {
    "compressed": {"reuse", "load", "recompute", "decompress", "bypass"},
    "tail": {"reuse", "load", "recompute", "bypass"},
    "swa": {"reuse", "load", "recompute", "bypass"},
    "indexer": {"reuse", "load", "recompute", "reindex", "bypass"},
    "recurrent": {"reuse", "load", "recompute", "bypass"},
}
"""Recovery routes that can bring back a block of each form."""


class Routing(Silent):
    """602: the route that a resume states for a group does not fit its form."""

    codes = frozenset({"HKV601", "HKV602", "HKV603", "HKV604", "HKV803"})
    kinds = frozenset({"resume"})

    def before(self, event: Event) -> None:
        if event.ev != "resume":
            return
        fold = self.ctx.fold
        for name, route in (event.get("route") or {}).items():
            group = fold.group(name)
            if group is None or route in FITTING[group.form]:
                continue
            ids = brought(self.ctx, event, group) or []
            self.ctx.report(
                "HKV602",
                f"request {event.req} resumes group {group.name} by route {route}, which "
                f"does not fit form {group.form}",
                [event.pos],
                slots=[s for s in (fold.slot(group.pool, b) for b in ids) if s >= 0],
                group=group,
                request=event.req,
                check=event.pos,
                believed={"route": route},
                actual={"form": group.form},
            )
