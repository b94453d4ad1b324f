"""A search over the orders of a window, its schedules run on a Ray cluster.

The search itself stays where it was begun and takes the verdicts in its own order, so that it
finds what it would have found alone; see `hkvtool.replay.elsewhere`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hkvtool.fleet.on_ray import Cluster
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding, Report
from hkvtool.replay.arms import Setting, survey
from hkvtool.replay.elsewhere import Verdict, run_portion
from hkvtool.replay.scheduled import Scheduled, on_caches
from hkvtool.replay.schedules import unspell
from hkvtool.replay.window import Window


@dataclass(frozen=True)
class Portions:
    """What is asked of a task: verdicts on some schedules of one window."""

    window: Window

    def __call__(self, asked: Any) -> list[Verdict]:
        return run_portion(self.window, asked)


class OnCluster:
    """Runs portions on a cluster."""

    def __init__(self, cluster: Cluster, window: Window) -> None:
        self._cluster = cluster
        self._window = window

    def portions(self, asked: Iterator[Any]) -> Generator[list[Verdict], None, None]:
        """The verdicts on each portion, in order."""
        return self._cluster.ask(Portions(self._window), asked)


@dataclass
class Caches:
    """Runs schedules of a window on real caches; the trace is learned from once."""

    events: Sequence[Event]
    window: Window
    places: frozenset[tuple[str, int]]
    report: Report | None
    finding: Finding | None
    _setting: Setting | None = None

    def __call__(self, schedule: str) -> Scheduled:
        if self._setting is None:
            self._setting = Setting(self.events, survey(self.events))
        order = unspell(self.window, schedule)
        return on_caches(
            self._setting, self.window, order, self.places, self.report, self.finding
        )  # fmt: skip


def on_caches_of(cluster: Cluster, caches: Caches, schedules: Sequence[str]) -> list[Scheduled]:
    """What real caches say of schedules, a task each, with a GPU where the cluster has any."""
    return list(cluster.ask(caches, schedules, gpus=1 if cluster.gpus else 0))
