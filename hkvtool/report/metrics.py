"""A running recording as Prometheus metrics, named in the style of the engines' own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hkvtool.analyzers.going_on import GoingOn
from hkvtool.model.findings import Report
from hkvtool.state.arrays import FORMS
from hkvtool.state.fold import Fold

PREFIX = "hkvtool:"

_SLICE = 4096
"""Events that are taken before what is over is forgotten."""

_COUNTERS = {
    "recorded_events": "Events that were read of the recording.",
    "dropped_events": "Events that the recorder lost.",
    "prefix_cache_lookups": "Prefix lookups that were judged.",
    "prefix_cache_queried_tokens": "Tokens that lookups asked for.",
    "prefix_cache_matched_tokens": "Tokens that hashes matched.",
    "prefix_cache_resumable_tokens": "Matched tokens that could really be resumed from.",
}


@dataclass(frozen=True)
class Reading:
    """What a recording had come to when it was looked at."""

    running: bool = True
    behind: bool = False
    checked: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    lost: dict[tuple[str, str], int] = field(default_factory=dict)
    findings: dict[tuple[str, str], int] = field(default_factory=dict)
    blocks: dict[tuple[str, str, str], int] = field(default_factory=dict)


class Metrics:
    """Follows a recording; `reading` is what a scrape is told, from whatever thread.

    Memory stays bounded by the pools and by what is under way. Raises TraceError.
    """

    def __init__(self, path: str) -> None:
        self._following = GoingOn(path, Fold(), check=True)
        self._events = 0
        self.reading = Reading(counts=dict.fromkeys(_COUNTERS, 0))

    def advance(self) -> bool:
        """Read all that is there by now; whether more is to come. Raises HkvError."""
        following = self._following
        while True:
            for event in following.more(_SLICE):
                following.take(event)
                self._events += 1
            if not following.waiting:
                break
            following.forget()
            if self._events % (16 * _SLICE) < _SLICE:
                self._look(running=True)
        over = following.over
        self._look(running=not over)
        return not over

    def _look(self, *, running: bool) -> None:
        following = self._following
        report = following.report(ended=not running)
        counts = {"recorded_events": self._events, "dropped_events": following.dropped}
        lost: Counter[tuple[str, str]] = Counter()
        findings: Counter[tuple[str, str]] = Counter()
        if report is not None:
            counts |= _of_ratios(report)
            for loss in report.ratios.lost_by:
                lost[loss.code, loss.group or ""] += loss.tokens
            for finding in report.findings:
                if not finding.cause:
                    findings[finding.code, str(finding.severity)] += 1
        self.reading = Reading(
            running, following.waiting, following.checked,
            # A counter never falls, also where a lookup turns out to have been another.
            {name: max(counts.get(name, 0), self.reading.counts[name]) for name in _COUNTERS},
            dict(lost), dict(findings), _blocks(following.fold),
        )  # fmt: skip

    def collect(self) -> Iterator[Any]:
        """The metrics, as a collector of `prometheus_client` gives them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        now = self.reading
        for name, said in _COUNTERS.items():
            yield CounterMetricFamily(PREFIX + name, said, value=now.counts[name])
        lost = CounterMetricFamily(
            PREFIX + "prefix_cache_lost_tokens",
            "Matched tokens that could not be resumed from, by the rule and group that cost them.",
            labels=("rule", "group"),
        )
        findings = GaugeMetricFamily(
            PREFIX + "findings", "Root findings so far, by rule.", labels=("rule", "severity")
        )
        blocks = GaugeMetricFamily(
            PREFIX + "blocks",
            "Blocks by pool, by the form that their bytes are in and by whether they could be "
            "resumed from; of form `empty` nothing was written.",
            labels=("pool", "form", "recoverable"),
        )
        for family, values in ((lost, now.lost), (findings, now.findings), (blocks, now.blocks)):
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family
        for name, said, value in (
            ("recording_running", "1 while the recording goes on.", now.running),
            ("recording_behind", "1 where more was recorded than was read.", now.behind),
            ("recording_checked", "1 where the rules are asked on the way.", now.checked),
        ):
            yield GaugeMetricFamily(PREFIX + name, said, value=int(value))


def _of_ratios(report: Report) -> dict[str, int]:
    ratios = report.ratios
    return {
        "prefix_cache_lookups": len(ratios.lookups) // 4,
        "prefix_cache_queried_tokens": ratios.asked,
        "prefix_cache_matched_tokens": ratios.matched,
        "prefix_cache_resumable_tokens": ratios.resumable,
    }


def _blocks(fold: Fold) -> dict[tuple[str, str, str], int]:
    """Blocks of each pool, by form and by whether they could be resumed from."""
    from hkvtool.state.overview import FILLED, LOADING, ON_DISK, blocks_of, overview

    found: Counter[tuple[str, str, str]] = Counter()
    for pool in fold.declared.pools.values():
        seen = overview(fold, pool, blocks_of(pool))
        good = seen.recoverable()
        there = seen.flags & (FILLED | LOADING) > 0
        for number, form in enumerate((*FORMS, "on_disk")):
            assert number <= ON_DISK
            of_form = there & (seen.form == number)
            for flag, chosen in (("true", of_form & good), ("false", of_form & ~good)):
                if count := int(chosen.sum()):
                    found[str(pool.name), str(form), flag] = count
        if count := int((~there).sum()):
            found[str(pool.name), "empty", "false"] = count
    return dict(found)
