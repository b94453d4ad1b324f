"""What every rule family sees: the fold, the order, the requests; and where findings go.

A finding about blocks that an earlier root finding already blames is attached to it as its
consequence: one root cause gives one root finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hkvtool.analyzers.blame import Blame
from hkvtool.model.event import Event
from hkvtool.model.evidence import Evidence
from hkvtool.model.findings import Finding
from hkvtool.model.rows import MISSING
from hkvtool.model.rules import RULES, Severity
from hkvtool.state import renewal
from hkvtool.state.arrays import STEPS
from hkvtool.state.declarations import Group
from hkvtool.state.fold import Fold
from hkvtool.state.order import Order
from hkvtool.state.order_stamp import Stamp
from hkvtool.state.requests import Request
from hkvtool.state.scene import Scene
from hkvtool.state.serving import filled

MAX_EVENTS = 8
"""Positions a finding names at most."""

MOST_NAMES = 1 << 14
"""Names of requests, hashes and transfers from which on those of no use are forgotten."""

_ALONE = frozenset("2459")
"""Families whose rules say what is so by itself: none follows from a bad read."""


class Context(Scene):
    """Shared by the families of one check of one trace."""

    def __init__(
        self, evidence: Evidence, fold: Fold | None = None, order: Order | None = None
    ) -> None:
        super().__init__(fold)
        self.order = order or Order()
        self.blame = Blame(self.fold)
        self.evidence = frozenset(evidence.classes)
        self.lane_evidence: dict[str, frozenset[str]] = {}
        self.findings: list[Finding] = []
        self.stamp: Stamp | None = None
        self.retired: dict[int, int] = {}
        self.step_reqs: dict[int, frozenset[str]] = {}
        self.midway = False
        self.weights_pos: int | None = None
        self._most_names = MOST_NAMES

    def meet(self, event: Event) -> None:
        """From here on `event` is the one being judged."""
        super().meet(event)
        self.stamp = self.order.feed(event)

    # --- what is over ----------------------------------------------------------------------

    def horizon(self) -> int:
        """The position before which what is over is over for every step that may be in flight."""
        if not self.dispatched:
            return -1 if self.event is None else self.event.pos
        sent = list(self.dispatched.values())
        return sent[-STEPS] if len(sent) >= STEPS else -1

    def forget(self, before: int) -> None:
        """Let go of steps that are done, requests that have ended, and names that nothing bears."""
        self.forget_done(before)
        if renewal.size(self) > self._most_names:
            renewal.shrink(self, before)
            self._most_names = max(MOST_NAMES, 2 * renewal.size(self))

    def forget_done(self, before: int) -> None:
        """Let go of steps that are done and requests that have ended; names stay."""
        for step in list(self.dispatched)[:-STEPS]:
            # Both or neither: what is out is what was dispatched and not retired.
            if self.retired.pop(step, None) is not None or len(self.dispatched) > 2 * STEPS:
                del self.dispatched[step]
        for steps in (self.launched, self.step_reqs):
            for step in [step for step in steps if step not in self.dispatched]:
                del steps[step]
        self.requests.forget(before)

    # --- evidence --------------------------------------------------------------------------

    def evaluable(self, code: str) -> bool:
        """Whether the evidence in force here supports a rule."""
        classes = self.evidence
        if self.event is not None and self.lane_evidence:
            classes = self.lane_evidence.get(self.event.actor, classes)
        return not RULES[code].missing(classes)

    # --- findings --------------------------------------------------------------------------

    def report(
        self,
        code: str,
        message: str,
        events: Iterable[int | None],
        *,
        slots: Sequence[int] = (),
        group: Group | None = None,
        request: str | None = None,
        cause: Finding | None = None,
        of_read: bool = False,
        **facts: Any,
    ) -> Finding | None:
        """Add a finding, as a root or under the root that explains it; None where the evidence
        does not support the rule. What was said before of the same root is extended.

        `of_read` says that the finding judges a read, which may follow from a fault of another
        rule; what the host's books say by themselves does not.
        """
        if not self.evaluable(code):
            return None
        root = cause or self.blame.of(slots, request, group)
        if root is not None and cause is None:
            alone = code[3] in _ALONE or code == "HKV605" or (code == "HKV704" and not of_read)
            if root.severity is not Severity.ERROR or (alone and root.code != code):
                root = None
        named = _unique(events)
        if root is not None and root.code == code and root.request == request:
            self._extend(root, named, slots)
            self.blame.put(root, slots)
            return root
        finding = Finding(
            code, message, named, RULES[code].severity, group=group.name if group else None
        )
        finding.id = f"F{len(self.findings) + 1}"
        finding.request = request
        for name, value in facts.items():
            setattr(finding, name, value)
        real = [s for s in slots if s >= 0]
        if finding.pool is None and real:
            finding.pool = self.fold.pool_of(real[0]).name
        # Block ids mean something within one pool only.
        here = (self.fold.block_of[s] for s in real if self.fold.pool_of(s).name == finding.pool)
        finding.blocks = list(dict.fromkeys(here))
        if root is not None:
            finding.cause = root.id
            root.caused.append(finding.id)
        self.findings.append(finding)
        self.blame.put(root or finding, slots)
        if request is not None and group is not None and not _stands_alone(finding):
            self.blame.put_table(root or finding, request, group)
        return finding

    def lead(self, root: Finding, code: str, pos: int) -> None:
        """Root findings of a rule that name an event follow from one that came to light later,
        and so does what followed from them."""
        for finding in self.findings:
            if finding is root or finding.code != code or finding.cause is not None:
                continue
            if pos not in finding.events:
                continue
            followers = [f for f in self.findings if f.cause == finding.id]
            finding.caused = []
            root.tokens = root.tokens or finding.tokens
            for one in (finding, *followers):
                one.cause = root.id
                root.caused.append(one.id)

    def _extend(self, finding: Finding, events: list[int], slots: Sequence[int]) -> None:
        """The same fault again: its blocks are added, its events as far as there is room."""
        for slot in slots:
            if slot < 0:
                continue
            pool, block = self.fold.pool_of(slot).name, self.fold.block_of[slot]
            finding.pool = finding.pool or pool
            if pool == finding.pool and block not in finding.blocks:
                finding.blocks.append(block)
        for pos in events:
            if pos not in finding.events and len(finding.events) < MAX_EVENTS:
                finding.events.append(pos)
        finding.events.sort()

    # --- naming ----------------------------------------------------------------------------

    def after_loss(self, event: Event) -> bool:
        """Whether events were lost just before this one. An edge may be among them: nothing
        before it can be called unordered with what follows."""
        return event.ev == "dropped" or self.blind == event.pos

    def tables_known(self, request: Request) -> bool:
        """Whether every block that a request took was seen: events may have been lost since."""
        return self.blind < 0 or (request.whole and request.first > self.blind)

    def lost_since(self, pos: int) -> bool:
        """Whether events were lost behind this one: what is missing may be among them."""
        return self.blind > pos

    def describe(self, slot: int, group: Group) -> dict[str, Any]:
        """State of a block in the terms a finding speaks: form, version, generation, tokens."""
        st = self.fold.st
        c = self.fold.component(slot, group)
        current = filled(self.fold, slot, c)
        facts: dict[str, Any] = {"form": group.form, "generation": st.gen[slot]}
        if st.loads[slot] > 0:
            facts["form"] = "on_disk"
            facts["recovering"] = True
        facts["version"] = st.ver[c] if current else None
        if current and st.vague[c] == 0:
            facts["tokens"] = [st.lo[c], st.hi[c]]
        if not current:
            facts["written"] = False
        if group.form == "indexer" and current and st.kver[c] != MISSING:
            facts["kv_version"] = st.kver[c]
        owner = st.owner[slot]
        if owner >= 0:
            facts["owner"] = self.fold.names.name("req", owner)
        facts["references"] = st.refs[slot]
        return facts


def _unique(events: Iterable[int | None]) -> list[int]:
    seen = dict.fromkeys(pos for pos in events if pos is not None and pos >= 0)
    return sorted(seen) if len(seen) <= MAX_EVENTS else list(seen)[:MAX_EVENTS]


def _stands_alone(finding: Finding) -> bool:
    """Whether nothing else about the request's table follows from it."""
    alone = finding.code[3] in _ALONE or finding.code in ("HKV704", "HKV801", "HKV706")
    return alone or finding.severity is not Severity.ERROR
