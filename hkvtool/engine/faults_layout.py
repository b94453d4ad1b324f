"""Faults of layout: two sides that describe the same bytes in different words.

They are there before the first request, so nothing has to happen for them to be found; no read of
the reference engine follows a wrong description.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hkvtool.engine.engine import Engine
from hkvtool.engine.faults import Fault, wrap

Event = dict[str, Any]


class _Told(Fault):
    """The declaration of the history, or of its reader, says something else."""

    event = "kernel"

    def put(self, engine: Engine) -> None:
        wrap(engine, "sink", self._sink)

    def _sink(self, inner: Callable[[Event], None], event: Event) -> None:
        name = self.history().lead.name
        if event["ev"] == self.event and event["group"] == name and self.placed is None:
            key = "expects" if self.event == "kernel" else "layout"
            event[key] = {**event[key], **self.says(event[key])}
            self.mark()
        inner(event)

    def says(self, layout: Event) -> Event:
        """What is said instead."""
        raise NotImplementedError


class AbiDtype(_Told):
    """The kernel was built for another dtype than the cache holds."""

    code = "HKV201"

    def says(self, layout: Event) -> Event:
        return {"dtype": "float16"}


class AbiOrder(_Told):
    """The kernel takes the axes in another order than the cache keeps them."""

    code = "HKV202"

    def says(self, layout: Event) -> Event:
        return {"order": ",".join(reversed(layout["order"].split(",")))}


class AbiCodec(_Told):
    """The kernel was updated alone: it decodes the next version of the codec, of equal size."""

    code = "HKV203"

    def says(self, layout: Event) -> Event:
        return {"codec": layout["codec"].rpartition("/")[0] + "/9"}


class AbiBlock(_Told):
    """The kernel's block does not divide the manager's."""

    code = "HKV204"

    def says(self, layout: Event) -> Event:
        return {"kernel_block_tokens": self.history().lead.block_tokens * 3 // 4}


class AbiHash(Fault):
    """The host tier hashes with another seed than the engine."""

    code = "HKV205"

    def put(self, engine: Engine) -> None:
        engine.extra_evidence.append("key")
        wrap(engine, "sink", self._sink)

    def _sink(self, inner: Callable[[Event], None], event: Event) -> None:
        if event["ev"] == "group":
            name, _, tier = event["group"].partition("@")
            if name == self.history().lead.name:
                seed = 1 if tier == "cpu" else 0
                event["layout"] = {**event["layout"], "hash": f"sha256/seed={seed}"}
                if tier:
                    self.mark()
        inner(event)


class Misaligned(_Told):
    """The buffer begins where the allocator happened to put it."""

    code, event = "HKV401", "group"

    def says(self, layout: Event) -> Event:
        return {"base": 0x7F00_0000_0000 * layout["align"] + 8}


class OutOfRegion(_Told):
    """The registered length is payload times blocks, though blocks lie further apart."""

    code, event = "HKV402", "group"

    def says(self, layout: Event) -> Event:
        return {"region_bytes": layout["page_bytes"] * self.engine.config.blocks}


class StrideMismatch(_Told):
    """The kernel computes addresses from the payload, where the stride is another."""

    code = "HKV403"

    def says(self, layout: Event) -> Event:
        lead = self.history().lead
        return {"page_bytes": lead.page_bytes, "stride_bytes": lead.page_bytes}


class Straddle(_Told):
    """A page is sized without room for its last entry."""

    code, event = "HKV404", "group"

    def says(self, layout: Event) -> Event:
        lead = self.history().lead
        entries = lead.rows * lead.row_bytes
        return {"page_bytes": (entries - 1) // layout["align"] * layout["align"]}


FAULTS: tuple[type[Fault], ...] = (
    AbiDtype, AbiOrder, AbiCodec, AbiBlock, AbiHash, Misaligned, OutOfRegion, StrideMismatch,
    Straddle,
)  # fmt: skip
