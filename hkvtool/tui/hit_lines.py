"""The matrix of a hit: groups down, tokens across."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hkvtool.model.findings import Finding, Report
from hkvtool.model.rules import RULES
from hkvtool.model.text import compact, shown
from hkvtool.tui.hit import GroupHit, Hit, layer_name, strip, told, with_findings
from hkvtool.tui.lines import Line, Span, fitted, heading, labelled, line, wrapped
from hkvtool.tui.palette import FORMS, LETTERS


def hit_lines(
    hit: Hit | None, width: int, *, report: Report | None = None, now: int = 0,
    req: str | None = None,
) -> Iterator[Line]:  # fmt: skip
    """One check, from the numbers to the blocks. How much of it could be resumed is for the check
    of the whole trace to say: what becomes of it later counts too. `req` is the request whose check
    was asked for, None for that of any."""
    if hit is None:
        yield line("")
        whose = "Request " + shown(req) + " has" if req else "No request has"
        told = f"{whose} looked up or resumed nothing up to here; h goes to the next that does."
        if req:
            told += " esc shows the last check of any request."
        yield from wrapped(told, width, "dim")
        return
    mine = [f for f in report.findings if _about(f, hit)] if report is not None else []
    if report is not None:
        hit = with_findings(hit, report)
    good = resumable(hit, report)
    yield from wrapped(verdict(hit, good), width, "bad" if hit.failing else "bold")
    yield from _summary(hit, good)
    yield line("")
    yield from _matrix(hit, width)
    yield line("")
    yield from _verdicts(hit, width, mine)
    if now > hit.pos:
        yield line("")
        text = f"seen at {now}, {now - hit.pos} positions after the check"
        yield line((text, "dim"))


def verdict(hit: Hit, good: int | None) -> str:
    """What came of a check, in one sentence."""
    told = shown(hit.req)
    if hit.resume is None:
        told += f" matches {hit.matched:,} of {hit.asked:,} tokens"
    elif hit.lookup is None:
        told += f" goes on from token {hit.at:,}"
    else:
        told += f" goes on from token {hit.at:,} ({hit.matched:,} of {hit.asked:,} tokens matched)"
    failing = hit.failing
    if failing:
        first = min(failing, key=lambda g: g.layer or 9)
        others = len(failing) - 1
        also = f" and {others} other{'s' * (others > 1)}" if others else ""
        why = f": {first.faults[0].why}" if first.faults else ""
        cannot = "could not resume there" if hit.resume is None else "cannot"
        return f"{told}, but {first.form} group {shown(first.group)}{also} {cannot}{why}."
    if not (hit.at or hit.matched):
        return f"{told}: nothing to resume from."
    if good is not None and good < hit.matched:
        return f"{told}, of which {good:,} could be resumed."
    return f"{told}; every group that is needed can." if hit.resume is not None else f"{told}."


def _about(finding: Finding, hit: Hit) -> bool:
    places = {e.pos for e in (hit.lookup, hit.resume) if e is not None}
    return finding.check in places or bool(places & set(finding.events))


def _summary(hit: Hit, good: int | None) -> Iterator[Line]:
    parts: list[Span] = [("request ", "label"), (shown(hit.req), "bold")]
    if hit.lookup is not None:
        parts += [(f"   lookup at {hit.lookup.pos}", "label")]
    if hit.resume is not None:
        parts += [(f"   resume at {hit.resume.pos}", "label")]
    yield line(*parts)
    if hit.lookup is None:
        yield line(("resumed at ", "label"), (f"{hit.at:,}", "bold"),
                   ("   no lookup of it is in the trace", "dim"))  # fmt: skip
        return
    spans: list[Span] = [
        ("asked ", "label"), (f"{hit.asked:,}", "bold"),
        ("   matched ", "label"), (f"{hit.matched:,}", "bold"),
    ]  # fmt: skip
    if good is None:
        spans += [("   resumable ", "label"), ("not checked", "dim")]
    else:
        lost = max(0, hit.matched - good)
        spans += [
            ("   resumable ", "label"), (f"{good:,}", "bad" if lost else "good"),
            ("   lost ", "label"), (f"{lost:,}", "bad" if lost else "dim"),
        ]  # fmt: skip
    spans += (
        [("   resumed at ", "label"), (f"{hit.at:,}", "bold")] if hit.resume
        else [("   not resumed yet", "label")]
    )  # fmt: skip
    yield line(*spans)


def resumable(hit: Hit, report: Report | None) -> int | None:
    """Tokens that the request could really go on from, as the report has it."""
    if report is None or hit.lookup is None:
        return None
    table = np.frombuffer(report.ratios.lookups, np.int64).reshape(-1, 4)
    found = table[table[:, 0] == hit.lookup.pos]
    return int(found[-1, 3]) if len(found) else None


def _matrix(hit: Hit, width: int) -> Iterator[Line]:
    end = max(1, min(hit.asked, 5 * max(hit.at, hit.matched) // 4) or hit.asked)
    name = min(14, max([5, *(len(shown(g.group)) for g in hit.groups)]))
    figures = 7
    room = max(16, width - name - figures - 4 - 22)
    yield line(
        (f"{'group':<{name}}  {'hit':>{figures}}  ", "label"),
        (_ruler(hit, end, room), "label"),
        ("  first fails", "label"),
    )
    for row in hit.groups:
        hit_text = "" if row.hit is None else f"{row.hit:,}"
        spans: list[Span] = [
            (f"{fitted(shown(row.group), name):<{name}}", f"form:{row.form}"),
            (f"  {hit_text:>{figures}}  ", "" if row.participates else "dim"),
        ]
        spans += _cells(row, end, room)
        if not row.participates:
            spans.append(("  not needed", "dim"))
        elif row.layer is None:
            spans.append(("  ok", "good"))
        else:
            spans.append((f"  {row.layer} {layer_name(row.layer)}"[:22], "bad"))
        yield line(*spans, key=("group", row.group))
    yield line(
        (" " * (name + figures + 4), ""),
        ("■", "good"), (" there  ", "dim"), ("▒", "dim"), (" brought, not needed  ", "dim"),
        ("3", "fault"), (" fails, by layer  ", "dim"), ("·", "edge"), (" nothing", "dim"),
    )  # fmt: skip


def _ruler(hit: Hit, end: int, room: int) -> str:
    """Where the request resumes, over the tokens."""
    cells = ["·"] * room
    for tokens, mark in ((hit.matched, "M"), (hit.at, "R")):
        if tokens:
            cells[min(room - 1, max(0, tokens * room // end - 1))] = mark
    text = "".join(cells)
    tail = f" {end:,}"
    return "0" + text[1 : room - len(tail)] + tail if room > len(tail) + 8 else text


def _cells(row: GroupHit, end: int, room: int) -> list[Span]:
    letter = LETTERS[[str(f) for f in FORMS].index(row.form)]
    spans: list[Span] = []
    for what in strip(row, end, room):
        if what == "ok":
            span = (letter, f"solid:{row.form}")
        elif what == "brought":
            span = ("▒", f"form:{row.form}")
        elif what:
            span = (what[3], "fault")
        else:
            span = ("·", "edge")
        if spans and spans[-1][1] == span[1]:
            spans[-1] = (spans[-1][0] + span[0], span[1])
        else:
            spans.append(span)
    return spans


def _verdicts(hit: Hit, width: int, findings: Sequence[Finding]) -> Iterator[Line]:
    veto = hit.vetoed_by
    if hit.failing:
        first = min(hit.failing, key=lambda g: g.layer or 9)
        yield line(
            ("first to fail  ", "label"), (shown(first.group), f"form:{first.form}"),
            (f"  in layer {first.layer}, {layer_name(first.layer or 1)}", "bad"),
        )  # fmt: skip
    if veto is not None:
        text = f" reaches {veto.hit:,} of the {hit.matched:,} tokens matched"
        yield line(("least reach    ", "label"), (shown(veto.group), f"form:{veto.form}"), text)
    for row in hit.failing:
        yield line("")
        yield line((shown(row.group), f"form:{row.form}"), (f"  {told(row.codes)}", "bad"))
        for fault in row.faults[:3]:
            span = f"tokens {fault.tokens[0]:,}..{fault.tokens[1]:,}"
            yield from labelled("  lacks", f"{span}: {fault.why}", width, column=12)
        if len(row.faults) > 3:
            yield line((f"            and {len(row.faults) - 3} more", "dim"))
        yield from labelled("  needs", row.need, width, column=12)
        yield from labelled("  route", f"{row.route or 'none'} was stated", width, column=12)
        if row.recovery:
            yield from labelled("  recovery", row.recovery, width, column=12)
        yield from _listed(row, width)
    fine = [g for g in hit.groups if g.participates and not g.codes]
    if fine and hit.at:
        yield line("")
        yield heading("can resume" if hit.failing else "every group can resume")
        for row in fine:
            route = f", route {row.route}" if row.route else ""
            listed = f"  blocks {compact(list(row.blocks))}{route}" if row.blocks else route
            yield line(
                ("  ", ""), (shown(row.group), f"form:{row.form}"), (fitted(listed, width), "dim"),
                key=("group", row.group),
            )  # fmt: skip
    for f in findings:
        yield line("")
        bad = "bad" if str(f.severity) == "error" else "warn"
        yield line((f"{f.id} {f.code} {RULES[f.code].name}", bad), key=("finding", f.id))
        yield from wrapped(shown(f.message), width, "", indent=2)


def _listed(row: GroupHit, width: int) -> Iterator[Line]:
    if row.blocks:
        yield from labelled("  blocks", compact(list(row.blocks)), width, column=12)
