"""A finding confirmed, or not: two arms on real bytes, and what they found.

The fault arm must corrupt and the control arm must be clean, each in every run. Where the
recording's own order of lines shows nothing, a race is run in the other order that its edges
allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from hkvtool.model.event import Event
from hkvtool.model.findings import Finding, Report
from hkvtool.model.rules import RULES
from hkvtool.replay import arms
from hkvtool.replay.arms import Arm, Plan, Setting
from hkvtool.replay.compiling import Believed
from hkvtool.replay.controls import control_of
from hkvtool.replay.ops import Account
from hkvtool.replay.program import Program
from hkvtool.replay.slicing import Slice, sliced

CONFIRMED, NOT, CANNOT = "confirmed", "not-confirmed", "not-confirmable"

_NO_BYTES = {
    "HKV205": "keys, whose bytes no trace holds",
    "HKV308": "tokens computed again, and so no wrong byte",
    "HKV501": "blocks in flight, and so no wrong byte",
    "HKV502": "traffic, and so no wrong byte",
    "HKV503": "waiting, and so no wrong byte",
    "HKV504": "waiting, and so no wrong byte",
    "HKV901": "what a consumer believes, and so no byte of this engine",
    "HKV902": "what a consumer believes, and so no byte of this engine",
    "HKV903": "lost evidence",
    "HKV904": "blocks lost, and so no wrong byte",
    "HKV905": "an event that cannot be run",
}
"""Rules whose findings cost something other than right bytes: what they are about."""

_NEEDS = {
    "HKV301": "a kernel's read of what was resumed from",
    "HKV401": "a device that refuses a misaligned address",
    "HKV402": "memory beyond the region: an access there fails, or is of bytes that no trace holds",
    "HKV602": "bytes that the stated route turns into another form",
    "HKV605": "a read of what the transfer was to bring or to hold",
    "HKV704": "the block in two hands: its bytes read after another request has written it",
    "HKV708": "a write of other bytes than stand there, and a read of them by another holder",
    "HKV801": "a length that is baked in, or a rebase that says which memory moved",
    "HKV802": "a read of what the padding rows hit",
    "HKV804": "a read behind the access to memory that has moved",
    "HKV906": "what changed the bytes: the fingerprints differ, and no event between them writes",
}
"""What a trace must hold so that a finding of a rule can be confirmed, where it is not always
there."""

STAND_IN = "the table of recorded pointers stands in for the captured graph"
REPLAYED = "the launch replays a graph that was captured on the memory of then"

_NEXT = 8
"""Writes behind a race that the one of its two that comes late is tried after."""

MIDDLING = 20_000
"""Events of a trace that is replayed whole where a slice of it shows nothing."""

_RACES = frozenset({"HKV103", "HKV702", "HKV703", "HKV706", "HKV709", "HKV803", "HKV804"})


@dataclass
class Result:
    """One finding's verdict; `as_json` is the contract."""

    finding: Finding
    verdict: str
    reason: str
    fault: Arm | None = None
    control: Arm | None = None
    first: dict[str, Any] | None = None
    device: str = "cpu"

    def as_json(self) -> dict[str, Any]:
        return {
            "finding": self.finding.id,
            "code": self.finding.code,
            "verdict": self.verdict,
            "reason": self.reason,
            "fault_arm": _arm(self.fault, self.first),
            "control_arm": _arm(self.control, None),
            "device": self.device,
            "schedule": self.fault.plan.words if self.fault else None,
            "control": self.control.plan.words if self.control else None,
        }


def _arm(arm: Arm | None, first: dict[str, Any] | None) -> dict[str, Any] | None:
    if arm is None:
        return None
    out: dict[str, Any] = {"runs": arm.runs, "corrupt": arm.corrupt}
    if first is not None:
        out["first"] = first
    return out


def confirm(setting: Setting, report: Report, finding: Finding) -> Result:
    """Both arms of one root finding."""
    setting.programs.clear()
    about = _NO_BYTES.get(finding.code)
    if about is not None:
        return Result(finding, CANNOT, f"the finding is about {about}", device=setting.device)
    missing = report.not_evaluable.get(finding.code)
    if missing:
        return Result(finding, CANNOT, f"needs {', '.join(missing)}", device=setting.device)
    part = sliced(setting.events, report, finding)
    concerns = Concern(setting.events, report, finding)
    fault, other = _fault(setting, report, finding, part, concerns)
    if (fault is None or not fault.corrupt) and part and len(setting.events) <= MIDDLING:
        part = None
        fault, other = _fault(setting, report, finding, part, concerns)
    if fault is None or not fault.corrupt:
        return Result(finding, *_nothing(setting, finding, part, fault), fault=fault,
                      device=setting.device)  # fmt: skip
    first = concerns.first(fault)
    control_plan, control = _control(setting, finding, part, concerns, fault, other)
    if control is not None and control.corrupt and part is None:
        # What other findings do to the same requests is left out.
        less = sliced(setting.events, report, finding, always=True)
        again, other = _fault(setting, report, finding, less, concerns)
        if again is not None and again.corrupt:
            part, fault, first = less, again, concerns.first(again)
            control_plan, control = _control(setting, finding, part, concerns, fault, other)
    if control is None or control_plan is None:
        return Result(finding, NOT, f"{RULES[finding.code].name} has no control arm", fault,
                      None, first, setting.device)  # fmt: skip
    if control.corrupt:
        why = "the control arm reads wrong bytes too: the cause is another"
        return Result(finding, NOT, why, fault, control, first, setting.device)
    fault_all = arms.run(setting, fault.plan, part, concerns.hurt, setting.runs)
    control_all = arms.run(setting, control_plan, part, concerns.hurt, setting.runs)
    assert fault_all is not None and control_all is not None
    if fault_all.program.stale_graphs:
        fault_all.plan.words += "; " + (STAND_IN if setting.device == "cpu" else REPLAYED)
    if fault_all.corrupt < fault_all.runs or control_all.corrupt:
        return Result(finding, NOT, "the runs do not agree", fault_all, control_all, first,
                      setting.device)  # fmt: skip
    return Result(finding, CONFIRMED, _said(first, fault_all), fault_all, control_all, first,
                  setting.device)  # fmt: skip


def _control(
    setting: Setting, finding: Finding, part: Slice | None, concerns: Concern, fault: Arm,
    other: Plan | None,
) -> tuple[Plan | None, Arm | None]:  # fmt: skip
    """The first control that is clean: a race's other order, then what the rule's cause being
    away comes to."""
    plan, arm = other, None
    if plan is not None:
        arm = arms.run(setting, plan, part, concerns.hurt, 1)
    if arm is None or (arm.corrupt and finding.code in _RACES):
        by_rule = control_of(finding, setting.events, fault)
        if by_rule is not None:
            plan, arm = by_rule, arms.run(setting, by_rule, part, concerns.hurt, 1)
    return plan, arm


class Concern:
    """Which wrong reads are a finding's: those of its events, of its blocks and where they were
    copied to, of its request and step, and of whoever those hurt; of a layout all of its group."""

    def __init__(self, events: Sequence[Event], report: Report, finding: Finding) -> None:
        family = [finding, *(f for f in report.findings if f.cause == finding.id)]
        self.events = {p for f in family for p in (*f.events, f.check, f.use) if p is not None}
        self.blocks = {(f.pool, b) for f in family for b in f.blocks}
        self.requests = {f.request for f in family if f.request is not None}
        self.groups = {finding.group} if finding.code[3] in "24" else set()
        self.steps = set()
        pool_of: dict[str, str] = {}
        for event in events:
            if event.ev == "group":
                pool_of[str(event["group"])] = str(event["pool"])
            if event.pos not in self.events:
                continue
            if event.ev == "launch":
                self.steps.add(event.step)
            elif event.ev == "store_begin" and "to" in event:
                pairs = zip(event["blocks"], event.get("peer") or (), strict=False)
                self.blocks |= {(str(event["to"]), far) for near, far in pairs
                                if near in finding.blocks}  # fmt: skip
            elif event.ev == "load_begin" and event.get("from") == finding.pool:
                pairs = zip(event["blocks"], event.get("peer") or (), strict=False)
                self.blocks |= {(pool_of.get(str(event["group"]), ""), near) for near, far in pairs
                                if far in finding.blocks}  # fmt: skip

    def positions(self, program: Program, account: Account) -> set[int]:
        reads = {pos: about for (pos, _), about in account.readers.items()}
        mine = {
            pos for pos, about in reads.items()
            if pos in self.events or about.req in self.requests or about.group in self.groups
            or about.step in self.steps
            or account.blocks_at.get(pos, set()) & self.blocks
        }  # fmt: skip
        hurt = {reads[pos].req for pos in mine} - {None}
        return mine | {pos for pos, about in reads.items() if about.req in hurt}

    def hurt(self, program: Program, account: Account) -> bool:
        return bool(self.positions(program, account))

    def first(self, arm: Arm) -> dict[str, Any] | None:
        mine = self.positions(arm.program, arm.account)
        wrong = next((w for w in arm.account.wrong if w.about.pos in mine), None)
        return None if wrong is None else arms.told(arm.program, wrong)


def _fault(
    setting: Setting, report: Report, finding: Finding, part: Slice | None,
    concerns: Concern,
) -> tuple[Arm | None, Plan | None]:  # fmt: skip
    """The first arm that corrupts, and for a race its other order, which is its control."""
    last: Arm | None = None
    plans: list[tuple[Plan, Plan | None]] = [(Plan("in the order of the recording"), None)]
    pair = race_of(finding, setting.events)
    if pair is not None:
        first, second = pair
        flipped = Plan(f"what event {second} does comes before what event {first} does", flip=pair)
        held = Plan(f"an edge holds event {first} before event {second}")
        edge = Plan(f"an edge holds event {second} before event {first}", flip=pair)
        plans = [(flipped, held), (plans[0][0], edge)]
        if finding.code == "HKV103":
            plans[1] = (plans[1][0], None)
        for later in _writers(finding, setting.events, second):
            words = f"what event {first} does comes only after what event {later} does"
            plans.append((Plan(words, flip=(first, later)), held))
    late = _late(finding, setting.events)
    if late is not None:
        stale = Plan(f"step {late} works on the memory of when it was dispatched", late=late)
        plans.insert(0, (stale, Plan("the step is dispatched with the new addresses")))
    for believed in _believed(finding, setting.events):
        how = "transfers" if believed.moves else "reads"
        plans.append((Plan(f"{how} use the consumer's layout", believed=believed), None))
    for plan, other in plans:
        arm = arms.run(setting, plan, part, concerns.hurt, 1)
        if arm is None:
            continue
        if arm.corrupt:
            return arm, other
        last = arm
    return last, None


def race_of(finding: Finding, events: Sequence[Event]) -> tuple[int, int] | None:
    """The two events of a race, in line order."""
    if finding.code in ("HKV305", "HKV603"):
        named = [e for e in events if e.pos in finding.events]
        begins = [e.pos for e in named if e.ev == "load_begin"]
        uses = [finding.use] if finding.use else [e.pos for e in named if e.ev == "use"]
        late = [use for use in uses if begins and use > max(begins)]
        return (max(begins), min(late)) if late else None
    if finding.check is None or finding.use is None:
        return None
    if finding.code == "HKV705":
        begin = min(finding.events)
        return (begin, finding.check) if begin < finding.check else None
    if finding.code not in _RACES:
        return None
    return min(finding.check, finding.use), max(finding.check, finding.use)


def _writers(finding: Finding, events: Sequence[Event], behind: int) -> list[int]:
    """The next writes to a finding's blocks: a write that nothing holds back may come after any
    of them, where two writes race."""
    if finding.code not in ("HKV703", "HKV709"):
        return []
    blocks = set(finding.blocks)
    found = (
        e.pos for e in events
        if e.pos > behind and e.ev in ("write", "seal", "index", "zero")
        and not blocks.isdisjoint(e["blocks"])
    )  # fmt: skip
    return list(islice(found, _NEXT))


def _late(finding: Finding, events: Sequence[Event]) -> int | None:
    """The step of a finding that was dispatched before the memory moved and works behind it."""
    moved = {e.pos for e in events if e.ev == "rebase"} & set(finding.events)
    step = finding.step
    if finding.code != "HKV804" or step is None or not moved:
        return None
    sent = max((e.pos for e in events if e.ev == "dispatch" and e["step"] == step), default=0)
    return step if 0 < sent < max(moved) else None


def _believed(finding: Finding, events: Sequence[Event]) -> list[Believed]:
    """The consumers' layouts that a finding of families 2 and 4 is about: first of transfers
    where another consumer reads as the producer writes, else first of reads."""
    if finding.code[3] not in "24" or finding.group is None:
        return []
    by_pos = {e.pos: e for e in events}
    event = by_pos.get(finding.use or -1)
    kernels = [e for e in events if e.ev == "kernel" and str(e["group"]) == finding.group]
    if event is not None and event.ev == "kernel":
        moves = len(kernels) > 1
        expects = event["expects"]
    elif finding.believed:
        moves, expects = True, finding.believed
    else:
        return []
    return [Believed(finding.group, expects, m) for m in (moves, not moves)]


def _nothing(
    setting: Setting, finding: Finding, part: Slice | None, fault: Arm | None
) -> tuple[str, str]:
    """Why no arm corrupts."""
    if fault is None:
        return NOT, "edges forbid the order that would corrupt"
    if not fault.account.reads:
        return CANNOT, "needs a read of these blocks: nothing in the trace reads them"
    if finding.code in _NEEDS:
        return CANNOT, (
            f"needs {_NEEDS[finding.code]}; none of the {fault.account.reads} reads of the blocks "
            "concerned finds other bytes than it is due"
        )
    return NOT, (
        f"no wrong byte in {fault.account.reads} reads of the blocks concerned: nothing in the "
        "trace reads what the finding spoils"
    )


def _said(first: dict[str, Any] | None, fault: Arm) -> str:
    return "wrong bytes" if first is None else in_words(first)


def in_words(wrong: dict[str, Any]) -> str:
    """A wrong row, as `arms.told` tells it, in one clause."""
    found, due = wrong["found"], wrong["expected"]
    return (
        f"{wrong['request'] or 'a reader'} was due {_bytes(due)} at {wrong['pool']}:"
        f"{wrong['block']} row {wrong['row']} and got {_bytes(found)}"
    )


def _bytes(stamp: dict[str, Any]) -> str:
    if "sequence" not in stamp:
        state: str = stamp["state"]
        words = {"zero": "zeros", "torn": "bytes that are no one row's",
                 "never written": "bytes that nobody wrote"}  # fmt: skip
        return words.get(state, state)
    whose = f"token {stamp['token']} of {stamp['request']}"
    if stamp["group"] is not None:
        whose += f" in group {stamp['group']}"
    return f"freed bytes: {whose}" if stamp["state"] == "freed" else whose
