"""The cheap rules, asked of each event as it happens.

Every one is the analyzers' own definition, applied to the plain fold: references and pins
(`hkvtool.state.references`), what a resume takes (`resumed`), and whose a block is that is read,
where its bytes lie and what it holds (`use_faults`). Rules that need the order of lanes, or the end
of the trace, are left to `hkvtool check`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hkvtool.model.event import Event
from hkvtool.model.events import DECLARATIONS
from hkvtool.model.rules import RULES
from hkvtool.state import references, renewal
from hkvtool.state.faults import Fault, Kind, roots
from hkvtool.state.migration import of_migration
from hkvtool.state.reading import Read, read_of_use, whole_read
from hkvtool.state.resumed import due, resume_faults, resumed_groups
from hkvtool.state.scene import Scene
from hkvtool.state.use_faults import use_faults
from hkvtool.state.wording import sentence

MOST_NAMES = 1 << 16
"""Names of requests and hashes held before those that are over are forgotten: some 30 MB."""

_MOST_KNOWN = 4096

_COUNTED = frozenset({"alloc", "free", "unpin", "unpublish"})
"""What can break the counts of references and pins."""

_FILLS = frozenset({"write", "seal", "index", "load_begin", "copy"})

_OF_CONTENT = frozenset({
    Kind.EMPTY, Kind.PROMISED, Kind.SHORT, Kind.ELSEWHERE, Kind.ABSENT, Kind.NOT_MIGRATED,
})  # fmt: skip
"""What cannot be said of content that nobody tells the writes of."""


class Broken(NamedTuple):
    """A rule that an event breaks."""

    code: str
    message: str
    slots: tuple[int, ...]
    group: str | None
    request: str | None
    events: tuple[int, ...]


class Rules:
    """Follows a running engine event by event; `judge` says what each breaks."""

    def __init__(self, most_names: int = MOST_NAMES) -> None:
        self.scene = Scene()
        self.refused = 0
        """Events that are malformed or impossible as written: what they say is not followed."""
        self.renewals = 0
        self._evidence: frozenset[str] | None = None
        self._filled: set[str] = set()
        self._told: dict[tuple[str, int, int], None] = {}
        self._most_names = self._limit = most_names

    def judge(self, event: Event) -> list[Broken]:
        """What `event` breaks, which is then folded."""
        scene = self.scene
        scene.meet(event)
        ev = event.ev
        found: list[Broken] = []
        if ev in _COUNTED:
            breaches = references.breaches(scene, event)
            if breaches:
                found = self._references(event, breaches)
        elif ev == "use":
            found = self._use(event)
        elif ev == "resume":
            found = self._resume(event)
        elif ev in _FILLS:
            self._filled.add(str(event.get("group")))
        scene.note(event)
        if scene.follow(event) is not None:
            self.refused += 1
            return []
        if ev in _COUNTED:
            return found
        if ev == "state":
            found = self._references(event, references.listed_while_held(scene, event))
        elif ev in ("dispatch", "finish"):
            if renewal.size(scene) > self._limit:
                self._forget()
        elif ev in DECLARATIONS and "evidence" in event and "actor" not in event:
            self._evidence = frozenset(map(str, event["evidence"]))
        return found

    def _forget(self) -> None:
        renewal.forget(self.scene)
        self.renewals += 1
        # Where more is alive than that, only what comes on top is forgotten.
        self._limit = max(self._most_names, 2 * renewal.size(self.scene))

    # --- judging ---------------------------------------------------------------------------

    def _references(self, event: Event, found: Iterable[references.Breach]) -> list[Broken]:
        told: list[Broken] = []
        for breach in found:
            if self._evaluable("HKV704") and self._new("HKV704", breach.slots):
                message = references.sentence(self.scene.fold, event, breach)
                group = event.get("group")
                told.append(Broken(
                    "HKV704", message, tuple(breach.slots),
                    None if group is None else str(group), event.req, tuple(breach.events),
                ))  # fmt: skip
        return told

    def _resume(self, event: Event) -> list[Broken]:
        scene = self.scene
        request = scene.request(event)
        found: list[Broken] = []
        if request is None:
            return found
        for resumed in resumed_groups(scene, event, request):
            now, _ = due(resume_faults(scene, resumed), resumed.route)
            slots = [scene.fold.slot(resumed.group.pool, b) for b in resumed.blocks]
            read = whole_read(event, resumed.group, request, slots, event, resumed.route)
            found += self._of_read(read, now)
        return found

    def _use(self, event: Event) -> list[Broken]:
        scene = self.scene
        group = scene.fold.group(event.get("group"))
        if group is None or event.get("pad"):
            return []
        read = read_of_use(scene, event, group)
        return self._of_read(read, of_migration(scene, read, use_faults(scene, read)))

    def _of_read(self, read: Read, faults: Iterable[Fault]) -> list[Broken]:
        """The first fault by precedence, with the blocks that share it: the others follow."""
        blind = not self._filled.intersection(self._names(read))
        told = roots(
            (f for f in faults if not (blind and f.kind in _OF_CONTENT)), self._evaluable
        )  # fmt: skip
        if not told:
            return []
        code, same = next(iter(told.items()))
        slots = [f.slot for f in same if f.slot >= 0]
        if not self._new(code, slots):
            return []
        events = [] if read.check is None else [read.check]
        events += [self.scene.fold.st.alloc_pos[s] for s in slots[:2]]
        request = None if read.request is None else read.request.name
        message = sentence(self.scene, read, same)
        return [Broken(code, message, tuple(slots), read.group.name, request, tuple(events))]

    def _names(self, read: Read) -> set[str]:
        return {g.name for g in self.scene.fold.declared.mates(read.group)}

    def _evaluable(self, code: str) -> bool:
        return self._evidence is None or not RULES[code].missing(self._evidence)

    def _new(self, code: str, slots: Iterable[int]) -> bool:
        """Whether this was not told before of these blocks in their present generation."""
        gen = self.scene.fold.st.gen
        keys = [(code, s, gen[s]) for s in slots]
        if keys and all(key in self._told for key in keys):
            return False
        for key in keys:
            self._told[key] = None
        while len(self._told) > _MOST_KNOWN:
            del self._told[next(iter(self._told))]
        return True
