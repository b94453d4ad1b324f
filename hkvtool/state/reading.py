"""One read of cached blocks: a use, or a check that names blocks for one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hkvtool.model.event import Event
from hkvtool.model.rows import Names
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Span
from hkvtool.state.needs import pieces
from hkvtool.state.requests import Request
from hkvtool.state.scene import Scene

INTEGER = re.compile(r"-?[0-9]{1,19}")
"""An integer of 64 bits as text."""


@dataclass(slots=True)
class Read:
    """Which blocks are read, by whom and on what ground.

    `spans` are the tokens read of each block, where the event states them; `gens` the
    generations the reader holds (-1 where it holds none, and the latest is meant); `resume` the
    decision it follows from; `route` what that decision stated for the group.
    """

    event: Event
    group: Group
    request: Request | None
    slots: list[int]
    spans: list[Span | None]
    gens: list[int]
    resume: Event | None = None
    route: str | None = None

    @property
    def check(self) -> int | None:
        """Where the reader last checked what it reads."""
        if self.resume is not None:
            return self.resume.pos
        if self.request is not None and self.request.lookup is not None:
            return self.request.lookup.pos
        return None

    @property
    def at(self) -> int | None:
        return None if self.resume is None else int(self.resume["at"])


def whole_read(
    event: Event, group: Group, request: Request | None, slots: Sequence[int],
    resume: Event | None = None, route: str | None = None,
) -> Read:  # fmt: skip
    """A read of blocks as they stand, whatever tokens they hold."""
    count = len(slots)
    return Read(event, group, request, list(slots), [None] * count, [-1] * count, resume, route)


def read_of_use(scene: Scene, event: Event, group: Group) -> Read:
    """The read that a `use` event is: its blocks, and which tokens of each it reads."""
    request = scene.request(event)
    slots = scene.slots(event)
    read = whole_read(event, group, request, slots)
    tokens = event.get("tokens")
    if tokens and slots:
        start, end = tokens
        if group.form in ("compressed", "indexer"):
            end -= end % max(group.ratio, scene.fold.declared.ratio_served(group))
        read.spans = list(pieces(group, len(slots), (start, end), tokens[1]))
    if request is None:
        return read
    step = event.step
    dispatched = event.pos if step is None else scene.dispatched.get(step, event.pos)
    meant = scene.generations(slots, step)
    read.gens = [
        gen if slot >= 0 and request.held_at(slot, dispatched) else -1
        for slot, gen in zip(slots, meant, strict=True)
    ]
    if request.resume is not None and request.resume.pos <= dispatched:
        read.resume = request.resume
        read.route = route_of(scene, request.resume, group)
    return read


def reader_number(scene: Scene, request: Request | None) -> int:
    """The number of the reading request, as owners are numbered; -1 where there is none."""
    if request is None:
        return -1
    return request_number(scene.fold.names, request.name)


def request_number(names: Names, name: str) -> int:
    """The number of a request by the text of its name; -1 where there is none."""
    found = names.find("req", name)
    if found < 0 and INTEGER.fullmatch(name):
        # Names may be written as integers, and are numbered as they are written.
        found = names.find("req", int(name))
    return max(found, -1)


def route_of(scene: Scene, resume: Event, group: Group) -> str | None:
    """The recovery route that a resume states for a group; where it names neither the group's
    blocks nor its route, what it states for another group of the same table."""
    routes = resume.get("route") or {}
    if group.name in routes or group.name in (resume.get("blocks") or {}):
        route = routes.get(group.name)
        return None if route is None else str(route)
    for mate in scene.fold.declared.mates(group):
        if mate.name in routes:
            return str(routes[mate.name])
    return None


def brought(scene: Scene, event: Event, group: Group) -> list[int] | None:
    """Blocks that a lookup or resume names for a group or for one that shares its table; None
    where it names none of them."""
    named = event.get("blocks") or {}
    if group.name in named:
        return list(named[group.name])
    for mate in scene.fold.declared.mates(group):
        if mate.name in named:
            return list(named[mate.name])
    return None
