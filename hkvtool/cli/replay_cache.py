"""What `hkvtool replay` does on real caches: the whole trace, findings in two arms, free lanes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from hkvtool.cli.picking import root_finding
from hkvtool.cli.traces import counted, print_line, progress
from hkvtool.model.errors import Exit, HkvError
from hkvtool.model.event import Event
from hkvtool.model.text import shown

if TYPE_CHECKING:
    from hkvtool.model.findings import Finding, Report
    from hkvtool.replay.arms import Setting
    from hkvtool.replay.confirming import Result
    from hkvtool.replay.free import Free
    from hkvtool.replay.whole import Replayed
    from hkvtool.store import Trace


def setting(events: list[Event], device: str, runs: int, memory: int) -> Setting:
    """What the arms of a trace have in common; `memory` in MiB."""
    from hkvtool.replay.arms import Setting, survey

    return Setting(events, survey(events), device, memory << 20, runs)


def confirmed(
    trace: Trace, setting: Setting, wanted: str | None, request: str | None, until: int | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Run a trace as recorded and confirm its findings, or only the one wanted."""
    from hkvtool.analyzers.long_check import check_trace
    from hkvtool.replay.confirming import confirm
    from hkvtool.replay.whole import replay

    if until is not None and wanted is not None:
        raise HkvError("a finding is confirmed over the whole trace", hint="leave out --until")
    whole = None if wanted is not None else replay(setting, until)
    results: list[Result] = []
    if until is None:
        report = check_trace(trace, events=setting.events)
        chosen = _chosen(report, trace, wanted, request)
        with progress("confirming findings", len(chosen)) as done:
            for i, finding in enumerate(chosen):
                results.append(confirm(setting, report, finding))
                if done:
                    done(i + 1)
    if as_json:
        out: dict[str, Any] = {"trace": trace.path, "results": [r.as_json() for r in results]}
        if whole is not None:
            out["replay"] = whole.as_json()
        print(json.dumps(out))
    else:
        _print(trace, whole, results)
    wrong = whole is not None and whole.account.wrong_rows > 0
    return Exit.FINDINGS if wrong or any(r.verdict == "confirmed" for r in results) else Exit.OK


def _chosen(report: Report, trace: Trace, wanted: str | None, request: str | None) -> list[Finding]:
    if wanted is not None:
        return [root_finding(report, wanted, trace.path)]
    return [f for f in report.findings
            if not f.cause and (request is None or f.request == request)]  # fmt: skip


def freed(trace: Trace, setting: Setting, wanted: str | None, jitter: int, as_json: bool) -> int:
    """Run a trace, or what one finding concerns, with lanes that nothing but edges orders."""
    from hkvtool.analyzers.long_check import check_trace
    from hkvtool.replay.free import run_free

    report = finding = None
    if wanted is not None:
        report = check_trace(trace, events=setting.events)
        finding = root_finding(report, wanted, trace.path)
    with progress("running free", setting.runs) as done:
        seen = run_free(setting, report, finding, jitter=jitter, told_run=done)
    if as_json:
        named = finding.id if finding else None
        print(json.dumps({"trace": trace.path, "finding": named, "free": seen.as_json()}))
    else:
        for line in _free_lines(trace, finding, seen):
            print_line(line)
    return Exit.FINDINGS if seen.corrupt else Exit.OK


def _free_lines(trace: Trace, finding: Finding | None, seen: Free) -> Iterator[str]:
    from hkvtool.replay.confirming import in_words

    subject = f"{finding.id} {finding.code}" if finding else shown(trace.path)
    jitter = f", pauses of up to {seen.jitter} us" if seen.jitter else ""
    yield (
        f"{subject}: {counted(seen.steps, 'step')} on {seen.lanes} free lanes{jitter}: "
        f"{seen.corrupt} of {counted(seen.runs, 'run')} read wrong bytes"
    )
    if seen.first is not None:
        yield f"  {shown(in_words(seen.first))}"
    if seen.held is not None:
        yield f"  with the missing edge {seen.held} of {seen.runs}"
    if not seen.corrupt and finding is not None:
        yield "  chance did not lose this race; --finding alone forces the order that would"


def _print(trace: Trace, whole: Replayed | None, results: Iterable[Result]) -> None:
    if whole is not None:
        account = whole.account
        print_line(
            f"{shown(trace.path)}: {counted(whole.program.events, 'event')} on {whole.lanes} "
            f"lanes, {whole.bytes:,} bytes of cache on {whole.device}"
            + (" (rows are not of the recorded size)" if whole.program.thin else "")
        )
        read = f"{counted(account.reads, 'read')} of {counted(account.rows, 'row')}"
        if not account.wrong_rows:
            print_line(f"as recorded: {read}, no wrong byte")
        else:
            print_line(f"as recorded: {read}, {counted(account.wrong_rows, 'wrong row')}")
            for line in _wrong_lines(whole):
                print_line(f"  {line}")
    for number, result in enumerate(results):
        if number or whole is not None:
            print_line()
        for line in _result_lines(result):
            print_line(line)


def _wrong_lines(whole: Replayed) -> Iterator[str]:
    from hkvtool.replay.arms import told
    from hkvtool.replay.confirming import in_words

    seen: set[int] = set()
    for wrong in whole.account.wrong:
        if wrong.about.pos not in seen and len(seen) < 8:
            seen.add(wrong.about.pos)
            rows = whole.account.wrong_at[wrong.about.pos]
            text = in_words(told(whole.program, wrong))
            yield f"event {wrong.about.pos}: {shown(text)}; {counted(rows, 'row')}"
    more = len(whole.account.wrong_at) - len(seen)
    if more > 0:
        yield f"and {counted(more, 'event')} more"


def _result_lines(result: Result) -> Iterator[str]:
    finding = result.finding
    yield f"{finding.id} {finding.code}  {result.verdict}: {shown(result.reason)}"
    fault, control = result.fault, result.control
    if fault is not None and fault.corrupt:
        yield f"  fault arm    {fault.corrupt} of {fault.runs} runs corrupt; {fault.plan.words}"
    if control is not None:
        arm = f"{control.corrupt} of {control.runs} runs corrupt"
        yield f"  control arm  {arm}; {control.plan.words}"
