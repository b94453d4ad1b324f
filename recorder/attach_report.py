"""What a hook set says would attach to the engine in this environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hkvtool.recorder.choke_point import ChokePoint
from hkvtool.recorder.patches import Target


@dataclass(frozen=True)
class Report:
    """What attaches in this environment."""

    version: str | None
    """None where there is no engine."""
    found: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)
    """Why a choke point is not there, by name; those that only newer releases have are told too."""
    evidence: tuple[str, ...] = ()
    tried: bool = False
    """Whether this is a release that the tests have run with."""
    not_seen: tuple[str, ...] = ()
    """What no hook tells of, whatever attaches."""

    def besides(self, not_seen: Sequence[str]) -> Report:
        """The same, with what is not seen."""
        return replace(self, not_seen=tuple(not_seen))


def report_of(
    version: str,
    targets: Mapping[ChokePoint, Target | str],
    evidence: Sequence[str],
    *,
    tried: bool,
) -> Report:
    """What would attach: `targets` has of each choke point its function, or why there is none."""
    missing = {p.name: t for p, t in targets.items() if isinstance(t, str)}
    gone = {c for p in targets if p.name in missing for c in p.loses}
    names = tuple(p.name for p in targets if p.name not in missing)
    left = tuple(c for c in evidence if c not in gone)
    return Report(version, names, missing, left, tried)
