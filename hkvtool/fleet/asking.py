"""What is asked of every instance, in a process of its own or a task on a cluster.

Whatever becomes of one instance is an answer about it: an unreadable trace must not cost the
fleet its report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hkvtool.analyzers.alone import check_alone
from hkvtool.analyzers.between import declared_groups
from hkvtool.analyzers.exchanges import BELOW, DIRECT, Exchanges, exchanges
from hkvtool.analyzers.long_check import check_trace
from hkvtool.analyzers.verdict import Why, why
from hkvtool.fleet.instances import Instance, open_instance
from hkvtool.model.errors import HkvError
from hkvtool.model.findings import Finding, Report
from hkvtool.store.identity import request_in


@dataclass(frozen=True)
class Outcome:
    """What a check of one instance came to; `report` is None where `trouble` says why. `groups` and
    `pools` are what it declared and `exchanged` what it gave and took, to be held against other
    instances."""

    instance: Instance
    report: Report | None
    trouble: HkvError | None = None
    groups: Sequence[Any] = ()
    exchanged: Exchanges | None = None
    pools: frozenset[str] = frozenset()

    @property
    def said(self) -> dict[str, str]:
        """The trouble, in the words of JSON; empty where there is none."""
        return {} if self.trouble is None else self.trouble.said


@dataclass(frozen=True)
class Answer:
    """What one instance has to say of a request; `found` is None where it knows none of that id,
    or where `trouble` says why."""

    instance: Instance
    found: Why | None
    trouble: HkvError | None = None

    def as_json(self) -> dict[str, Any]:
        """What it says of the request, or why it says nothing."""
        if self.found is not None:
            return self.found.as_json()
        return {} if self.trouble is None else self.trouble.said


@dataclass(frozen=True)
class Check:
    """Every rule over one instance, as `hkvtool check` does it, and what it exchanged by pools
    that it shares with other instances, `DIRECT` from device to device, `BELOW` through its own."""

    shared: frozenset[str] = frozenset()

    def __call__(self, instance: Instance) -> Outcome:
        try:
            with open_instance(instance.path) as trace:
                groups = declared_groups(trace.control)
                # A device's pool is nobody else's, whatever it is called.
                tiers = {str(e["pool"]) for e in trace.control
                         if e.ev == "pool" and e["medium"] != "gpu"}  # fmt: skip
                here = self.shared & tiers
                beside = self.shared & {DIRECT, *(BELOW + name for name in tiers)}
                report = check_alone(trace, here) if here else check_trace(trace)
                exchanged = exchanges(trace, here | beside)
                pools = frozenset(str(e.get("pool")) for e in trace.control if e.ev == "pool")
                return Outcome(instance, report, None, groups, exchanged, pools)
        except HkvError as e:
            return Outcome(instance, None, e)
        except MemoryError:
            return Outcome(instance, None, _too_large("checking"))


def _too_large(doing: str) -> HkvError:
    return HkvError(
        f"{doing} it takes more memory than a process may have",
        hint="fewer --workers have more each; or ask this trace by itself, outside the fleet",
    )


check_instance = Check()
"""Of an instance that shares nothing."""


@dataclass(frozen=True)
class WhyAsked:
    """The question after one request, by any of its ids; `charges` are findings about the loads of
    instances, from what others tell."""

    request: str
    charges: Mapping[str, Sequence[Finding]] = field(default_factory=dict)

    def __call__(self, instance: Instance) -> Answer:
        try:
            with open_instance(instance.path) as trace:
                try:
                    name = request_in(trace, self.request)
                except HkvError:
                    return Answer(instance, None)
                charges = self.charges.get(instance.name, ())
                found = why(trace.events(), name, charges=charges)
                return Answer(instance, found if found.span[1] else None)
        except HkvError as e:
            return Answer(instance, None, e)
        except MemoryError:
            return Answer(instance, None, _too_large("asking"))
