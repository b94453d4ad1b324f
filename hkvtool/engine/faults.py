"""Faults on purpose: one method of the engine replaced by a wrong one, at a seeded place.

A fault is a bug as engines have had it, injected beyond the reach of the validation, so that the
bytes and the checker have something to find. Each is named by the rule that must find it.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from hkvtool.engine.engine import Engine
from hkvtool.engine.geometry import Preset, Table
from hkvtool.engine.live import Live
from hkvtool.engine.lookup import Hit
from hkvtool.engine.tiers import Transfer
from hkvtool.engine.workload import OWN, Request
from hkvtool.model.errors import HkvError
from hkvtool.model.forms import Form
from hkvtool.model.rules import RULES

ECHO = ".again"
"""Ends the name of a request that a fault sends once more."""

_AMONG = 6
"""A fault takes one of so many first occasions, chosen by the seed."""


def wrap(owner: object, name: str, around: Callable[..., Any]) -> None:
    """Let `around(inner, *args)` stand in for a method of one object."""
    setattr(owner, name, partial(around, getattr(owner, name)))


class Fault:
    """A bug to install in an engine. `placed` is the event before which it happened first."""

    code = ""
    needs: tuple[Form, ...] = ()
    """Forms that the preset must have for the bug to be possible."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"{self.code} {seed}")
        self.skip = self.random.randrange(_AMONG)
        self.placed: int | None = None
        self.engine: Engine

    def install(self, engine: Engine) -> None:
        """Put the bug in; HkvError where the preset has no place for it."""
        forms = {group.form for group in engine.config.preset.groups}
        missing = [form for form in self.needs if form not in forms]
        if missing:
            raise HkvError(
                f"{self.code} needs a preset with a {missing[0]} group",
                hint="see the presets in `hkvtool run --help`",
            )
        self.engine = engine
        self.put(engine)

    def put(self, engine: Engine) -> None:
        """Replace what is to go wrong."""
        raise NotImplementedError

    def due(self) -> bool:
        """Whether this occasion is the one; call it once an occasion."""
        if self.placed is not None:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.mark()
        return True

    def mark(self) -> None:
        """The fault happens now."""
        if self.placed is None:
            self.placed = self.engine.events + 1

    # --- what several faults need ------------------------------------------------------------

    @property
    def preset(self) -> Preset:
        return self.engine.config.preset

    def history(self) -> Table:
        """The table of the full history."""
        return next(table for table in self.preset.tables if table.history)

    def table(self, form: Form) -> Table:
        """The first table of a form."""
        return next(table for table in self.preset.tables if table.lead.form is form)

    def withhold(self) -> Transfer:
        """Take the transfer that began last out of the queue; its end is ours to bring about."""
        queue = self.engine.tiers.under_way
        last = max(queue, key=lambda entry: entry[1])
        queue.remove(last)
        heapq.heapify(queue)
        return last[2]

    def push_out(self, request: Request) -> None:
        """Drop the device's hashes of a prompt, so that the next hit has to come from a tier."""
        allocator = self.engine.allocator
        for table in self.preset.tables:
            size = table.lead.block_tokens
            gone: list[int] = []
            for key in request.keys(range(request.prompt // size), size):
                block = allocator.gpu.find(table.name, key)
                if block is not None:
                    allocator.gpu.forget(block)
                    gone.append(block)
            if gone:
                self.engine.emit("unpublish", group=table.name, blocks=gone, reason="invalidate")


class EchoFault(Fault):
    """A bug in how a hit is taken up: a finished request is sent again, and its copy suffers."""

    from_tier = False
    """Whether the copy has to find its prefix on a lower tier."""

    def put(self, engine: Engine) -> None:
        self.echo: str | None = None
        self.waiting: Request | None = None
        wrap(engine.scheduler, "finish", self._finish)
        wrap(engine.scheduler, "match", self._match)
        if self.from_tier:
            wrap(engine.tiers, "poll", self._poll)

    def _finish(self, inner: Callable[[Live], None], live: Live) -> None:
        inner(live)
        long = live.request.prompt >= 3 * self.preset.grain
        echo = live.request.id.endswith(ECHO)
        if self.echo is not None or self.waiting is not None or self.placed is not None:
            return
        if echo or not long:
            return
        if self.skip:
            self.skip -= 1
        elif self.from_tier:
            self.waiting = live.request
        else:
            self.again(live.request)

    def _poll(self, inner: Callable[[], None]) -> None:
        """Once nothing is under way any more, all that was to be stored is."""
        inner()
        if self.waiting is not None and self.engine.tiers.next_end is None:
            request, self.waiting = self.waiting, None
            self.push_out(request)
            self.again(request)

    def again(self, request: Request) -> None:
        """Send a finished request once more, with other tokens to follow."""
        copy = self.copy(request)
        self.echo = copy.id
        self.engine.submit(copy, front=True)

    def copy(self, request: Request) -> Request:
        """The request to send."""
        own = OWN + (1 << 24) + self.engine.requests
        return replace(request, id=request.id + ECHO, output=40, own=own)

    def _match(self, inner: Callable[..., Hit], live: Live, **keys: Any) -> Hit:
        if live.request.id != self.echo or live.epoch or self.placed is not None:
            return inner(live, **keys)
        hit = self.find(inner, live)
        if hit.at >= 2 * self.preset.grain and bool(hit.loads()) == self.from_tier:
            if self.spoil(live, hit):
                self.mark()
                return hit
        # Something of it was evicted meanwhile: wait for the next one.
        self.echo = None
        return inner(live, **keys)

    def find(self, inner: Callable[..., Hit], live: Live) -> Hit:
        """The copy's hit."""
        return inner(live)

    def spoil(self, live: Live, hit: Hit) -> bool:
        """Make the hit wrong; False where this one offers no way to."""
        return True


def known() -> dict[str, type[Fault]]:
    """Every fault by its rule's code."""
    from hkvtool.engine import (
        faults_content,
        faults_evidence,
        faults_layout,
        faults_order,
        faults_pressure,
        faults_routing,
        faults_topology,
    )

    modules = (
        faults_content, faults_layout, faults_pressure, faults_routing, faults_order,
        faults_topology, faults_evidence,
    )  # fmt: skip
    return {kind.code: kind for module in modules for kind in module.FAULTS}


def fault(name: str, seed: int) -> Fault:
    """The fault that a rule's code, number or name stands for."""
    kinds = known()
    wanted = name.strip().lower()
    for code, kind in kinds.items():
        if wanted in (code.lower(), code[3:], RULES[code].name):
            return kind(seed)
    raise HkvError(
        f"there is no fault {name!r}",
        hint="faults: " + ", ".join(f"{code} {RULES[code].name}" for code in sorted(kinds)),
    )
