"""Faults of the evidence: events that are lost, disordered or malformed, and what leaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hkvtool.engine.engine import Engine
from hkvtool.engine.faults import EchoFault, Fault, wrap
from hkvtool.engine.geometry import Group
from hkvtool.engine.live import Live
from hkvtool.engine.memory import GARBLE
from hkvtool.engine.wire import Wire

_AFTER = 500
"""Events before a fault of the stream itself happens, at least."""


class _WireFault(Fault):
    """A bug between the engine and the router that follows its KV events."""

    def put(self, engine: Engine) -> None:
        wire = engine.wire = engine.wire or Wire(engine.emit)
        engine.extra_evidence.append("wire")
        self.spoil(wire)

    def spoil(self, wire: Wire) -> None:
        """Replace what is to go wrong."""
        raise NotImplementedError


class WireOrder(_WireFault):
    """A late replay is applied over newer events: one event is received twice."""

    code = "HKV901"

    def spoil(self, wire: Wire) -> None:
        wrap(wire, "receive", self._receive)

    def _receive(self, inner: Callable[..., None], event: dict[str, Any]) -> None:
        inner(event)
        if event["kind"] == "stored" and self.due():
            inner(event)


class WireDiverged(_WireFault):
    """A block is evicted, and nobody is told."""

    code = "HKV902"

    def spoil(self, wire: Wire) -> None:
        wrap(wire, "send", self._send)
        wrap(wire, "receive", self._receive)
        self.silent: int | None = None

    def _send(self, inner: Callable[..., None], event: dict[str, Any]) -> None:
        if event["kind"] == "removed" and event["medium"] == "gpu" and self.due():
            self.silent = event["wseq"]
            assert self.engine.wire is not None
            self.engine.wire.number -= 1
        else:
            inner(event)

    def _receive(self, inner: Callable[..., None], event: dict[str, Any]) -> None:
        if event["wseq"] == self.silent:
            self.silent = None
        else:
            inner(event)


class EventsDropped(Fault):
    """The recorder cannot keep up and loses three reads."""

    code = "HKV903"

    def put(self, engine: Engine) -> None:
        self.lost = 0
        wrap(engine, "sink", self._sink)

    def _sink(self, inner: Callable[..., None], event: dict[str, Any]) -> None:
        if event["ev"] == "use" and self.engine.events > _AFTER:
            if self.lost < 3 and (self.lost or self.due()):
                self.lost += 1
                if self.lost == 3:
                    inner({"ev": "dropped", "count": 3, "reason": "ring full", "ts": event["ts"]})
                return
        inner(event)


class LeakAtEnd(Fault):
    """One way in which a request can end forgets its last block."""

    code = "HKV904"

    def put(self, engine: Engine) -> None:
        wrap(engine.scheduler, "finish", self._finish)

    def _finish(self, inner: Callable[[Live], None], live: Live) -> None:
        blocks = self.engine.allocator.held[live.request.id][self.preset.tables[-1].name]
        if blocks and self.due():
            blocks.popitem()
        inner(live)


class Malformed(Fault):
    """A converter passes the engine's own name for an event on."""

    code = "HKV905"

    def put(self, engine: Engine) -> None:
        wrap(engine, "sink", self._sink)

    def _sink(self, inner: Callable[..., None], event: dict[str, Any]) -> None:
        if event["ev"] == "free" and self.due():
            inner({**event, "ev": "release"})
        inner(event)


class BytesDiffer(EchoFault):
    """A transfer flips bits, and ends as if it had not."""

    code = "HKV906"
    from_tier = True

    def put(self, engine: Engine) -> None:
        super().put(engine)
        self.flipped = False
        engine.tiers.fingerprint = True
        engine.extra_evidence.append("bytes")
        wrap(engine.memory, "move", self._move)

    def _move(
        self, inner: Callable[..., None], group: Group, source: str, target: str, here: Any,
        there: Any,
    ) -> None:  # fmt: skip
        inner(group, source, target, here, there)
        if self.placed is not None and target == "gpu" and not self.flipped:
            self.flipped = True
            self.engine.memory.garble("gpu", group, there[:1], GARBLE)


FAULTS: tuple[type[Fault], ...] = (
    WireOrder, WireDiverged, EventsDropped, LeakAtEnd, Malformed, BytesDiffer,
)  # fmt: skip
