"""4xx: byte and hardware alignment. Every block where the hardware can reach it, whole."""

from __future__ import annotations

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.model.layout import entry_overflow, misalignment, overrun
from hkvtool.state.declarations import Group
from hkvtool.state.wording import shown


class Alignment(Silent):
    """Static at declarations, and for the bounds of each transfer."""

    codes = frozenset({"HKV401", "HKV402", "HKV404"})
    kinds = frozenset({"group", "kernel", "rebase", "store_begin", "load_begin"})

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.layers: dict[str, object] = {}
        self.misaligned: set[str] = set()

    def after(self, event: Event) -> None:
        if event.ev == "group":
            group = self.ctx.fold.group(event["group"])
            if group is not None and group.layout:
                self.layers[group.name] = event.get("layers", 1)
                self._misaligned(group, None, [group.pos])
                self._region(group)
                self._straddles(group)
        elif event.ev == "kernel":
            group = self.ctx.fold.group(event["group"])
            if group is not None and "align" in event["expects"]:
                self._misaligned(group, event["expects"]["align"], [group.pos, event.pos])
        elif event.ev == "rebase" and "layout" in event:
            for group in self.ctx.fold.declared.groups.values():
                if event.get("group") in (None, group.name):
                    if event.get("pool") in (None, group.pool.name):
                        self.misaligned.discard(group.name)
                        self._misaligned(group, None, [group.pos, event.pos])
                        self._region(group)
                        self._straddles(group)
        elif event.ev in ("store_begin", "load_begin"):
            self._bounds(event)

    def _misaligned(self, group: Group, align: object, events: list[int]) -> None:
        wrong = misalignment(group.layout, group.pool.blocks, align)
        if wrong and group.name not in self.misaligned:
            self.misaligned.add(group.name)
            self.ctx.report(
                "HKV401",
                f"group {group.name}: {'; '.join(wrong)}",
                events,
                group=group,
                use=events[-1],
                believed={"align": align if align is not None else group.layout.get("align")},
                actual={k: group.layout[k] for k in ("base", "offset", "stride_bytes")
                        if k in group.layout},
            )  # fmt: skip

    def _region(self, group: Group) -> None:
        last = group.pool.blocks - 1
        layers = self.layers.get(group.name, 1)
        beyond = overrun(group.layout, last, layers) if last >= 0 else 0
        if beyond:
            self.ctx.report(
                "HKV402",
                f"group {group.name}: block {last} ends {beyond:,} bytes beyond the registered "
                "region",
                [group.pos],
                group=group,
                use=group.pos,
                blocks=[last],
                pool=group.pool.name,
                believed={"region_bytes": group.layout["region_bytes"]},
                actual={"needed_bytes": group.layout["region_bytes"] + beyond},
            )

    def _straddles(self, group: Group) -> None:
        beyond = entry_overflow(group.layout, group.block_tokens, group.ratio)
        if beyond:
            row = group.layout["row_bytes"]
            self.ctx.report(
                "HKV404",
                f"group {group.name}: {group.block_tokens // group.ratio} entries of {row} bytes "
                f"do not fit a page of {group.layout['page_bytes']} bytes ({beyond} too many)",
                [group.pos],
                group=group,
                use=group.pos,
                believed={"page_bytes": group.layout["page_bytes"]},
                actual={"entries_bytes": row * (group.block_tokens // group.ratio)},
            )

    def _bounds(self, event: Event) -> None:
        """A transfer must start and stop between entries, and between blocks but at the end."""
        group = self.ctx.fold.group(event["group"])
        if group is None:
            return
        self._descriptor(event, group)
        tokens = event.get("tokens")
        if not tokens or group.form in ("tail", "recurrent"):
            return
        start, end = tokens
        ratio = max(group.ratio, self.ctx.fold.declared.ratio_served(group))
        if start % ratio or end % ratio:
            bound = start if start % ratio else end
            self._tell(event, group, f"bound {bound} falls inside an entry of {ratio} tokens")
            return
        unit = group.block_tokens
        slots = self.ctx.slots(event)
        if start % unit and group.form != "swa":
            self._tell(event, group, f"it starts at token {start}, inside a block of {unit}")
        elif end % unit and slots and slots[-1] >= 0 and event.ev == "store_begin":
            c = self.ctx.fold.component(slots[-1], group)
            st = self.ctx.fold.st
            written = st.hi[c] if st.cgen[c] == st.gen[slots[-1]] else 0
            if written > end and not st.vague[c]:
                what = f"it stops at token {end}, inside a block that is written to {written}"
                self._tell(event, group, what)

    def _tell(self, event: Event, group: Group, what: str) -> None:
        self.ctx.report(
            "HKV404",
            f"transfer {event['handle']} of group {group.name}: {what}",
            [event.pos],
            slots=[s for s in self.ctx.slots(event) if s >= 0],
            group=group,
            request=event.req,
            use=event.pos,
            tokens=tuple(event["tokens"]),
        )

    def _too_long(self, event: Event, group: Group, places: list[int]) -> None:
        """The bytes of one block, as the transfer counts them, reach beyond the region."""
        size, page = event.get("bytes"), group.layout.get("page_bytes")
        region = group.layout.get("region_bytes")
        if not isinstance(size, int) or not isinstance(page, int) or not isinstance(region, int):
            return
        if not places or size % len(places) or size // len(places) <= page:
            return
        each = size // len(places)
        if each % page == 0:
            # So many layers of the block, each in a region of its own.
            return
        stride = group.layout.get("stride_bytes", page)
        over = [b for b in places if group.layout.get("offset", 0) + b * stride + each > region]
        if over:
            self.ctx.report(
                "HKV402",
                f"transfer {event['handle']} takes {each:,} bytes from each block of group "
                f"{group.name}, which reach beyond the registered region at block {over[0]}",
                [group.pos, event.pos],
                group=group,
                request=event.req,
                use=event.pos,
                blocks=over,
                pool=group.pool.name,
                believed={"bytes_a_block": each},
                actual={"page_bytes": page, "region_bytes": region},
            )

    def _descriptor(self, event: Event, group: Group) -> None:
        """402: the descriptor of a transfer reaches beyond the region, by index or by bytes."""
        places = event.get("index") or event["blocks"]
        layers = self.layers.get(group.name, 1)
        self._too_long(event, group, places)
        out = [b for b in places if b >= 0 and overrun(group.layout, b, layers)]
        if out and not overrun(group.layout, group.pool.blocks - 1, layers):
            self.ctx.report(
                "HKV402",
                f"transfer {event['handle']} of group {group.name}: blocks {shown(out)} end "
                "beyond the registered region",
                [group.pos, event.pos],
                group=group,
                request=event.req,
                use=event.pos,
                blocks=out,
                pool=group.pool.name,
            )
