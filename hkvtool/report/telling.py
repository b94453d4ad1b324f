"""The story of one finding, out of the trace that it was found in."""

from __future__ import annotations

from hkvtool.model.block_state import CacheBlockState
from hkvtool.model.findings import Finding, Report
from hkvtool.report.checked import positions
from hkvtool.report.story import Story, chosen, ends
from hkvtool.store import Trace


def story_of(trace: Trace, report: Report, finding: Finding) -> Story:
    """The telling events, and the block's state before each of the two that matter most."""
    named = positions(finding)
    if not named:
        return chosen(finding, {}, [])
    first, last = min(named), max(named)
    events = {e.pos: e for e in trace.events(since=first, until=last) if e.pos in set(named)}
    between = []
    if finding.pool is not None and finding.blocks:
        block = (finding.pool, finding.blocks[0])
        between = list(trace.events(since=first, until=last, block=block))
    told = chosen(finding, events, between)
    by_id = {f.id: f for f in report.findings}
    told.cause = by_id.get(finding.cause or "")
    told.caused = [by_id[i] for i in finding.caused if i in by_id]
    told.states = [(p, _state(trace, finding, p)) for p in sorted(set(ends(finding)))]
    return told


def _state(trace: Trace, finding: Finding, pos: int) -> CacheBlockState | None:
    """The finding's first block as its group sees it, just before an event."""
    from hkvtool.state.view import block_state
    from hkvtool.store.moments import fold_at

    if not finding.blocks or pos <= 1:
        return None
    fold = fold_at(trace, pos - 1)
    group = fold.group(finding.group)
    if group is None or group.pool.name != finding.pool:
        return None
    return block_state(fold, group, finding.blocks[0])
