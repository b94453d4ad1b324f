"""A probe beside a recorder: at a divergence the rings are kept, and the trace of them is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hkvtool.cli.errors import tell
from hkvtool.model.errors import HkvError
from hkvtool.model.recording import Stage, stage_of

if TYPE_CHECKING:
    from hkvtool.model.findings import Finding
    from hkvtool.probe.run import Divergence, Probe

_BUDGET = 400
"""Candidates that are checked on the way to the fewest events."""


class Snapshots:
    """Takes one at each divergence; makes traces of them once the probe has ended."""

    def __init__(self, recording: Path, folder: Path | None) -> None:
        if stage_of(recording) is not Stage.RECORDING:
            raise HkvError(
                f"{recording} is not being recorded",
                hint="start the server with `hkvtool record -o NAME.hkv -- …`",
            )
        self._recording = recording
        self._folder = folder or recording.parent
        self._taken: dict[str, str] = {}

    def take(self, divergence: Divergence) -> None:
        """What the rings hold now, before the repeats overwrite it."""
        from hkvtool.recorder.snapshot import snapshot

        try:
            place = snapshot(str(self._recording), f"probe-{divergence.id}")
        except HkvError as e:
            divergence.links["no_snapshot"] = e.what
            return
        self._taken[divergence.id] = place
        divergence.links["snapshot"] = place

    def read(self, probe: Probe) -> None:
        """Link each finding with what the trace says of its requests, and the fewest events that
        show it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for divergence in probe.found:
            place = self._taken.get(divergence.id)
            if place is None:
                continue
            try:
                divergence.links |= self._read(divergence, place)
            except HkvError as e:
                tell(e.what, where=place, hint=e.hint)

    def _read(self, divergence: Divergence, place: str) -> dict[str, Any]:
        from hkvtool.analyzers import check
        from hkvtool.store import open_trace
        from hkvtool.store.ingesting import ingest

        target = self._folder / f"{divergence.id}.duckdb"
        ingest(place, target, force=True)
        links: dict[str, Any] = {"trace": str(target)}
        with open_trace(str(target)) as trace:
            events = list(trace.events())
        report = check(events)
        ids = [i for c in divergence.record.get("compared", ()) for i in c["requests"]]
        roots = [f for f in report.findings if not f.cause]
        # A client's id is a part of the engine's, and those have counters behind.
        mine = [f for f in roots if any(str(f.request or "").startswith(i) for i in ids)]
        whose = "" if mine else " (of other requests)"
        told = mine or roots
        links["trace_findings"] = [f"{f.id} {f.code}{whose}: {f.message}" for f in told[:8]]
        if told:
            links["minimal"] = self._minimal(divergence, events, report, told[0])
        return links

    def _minimal(
        self, divergence: Divergence, events: list[Any], report: Any, finding: Finding
    ) -> str:
        from hkvtool.replay.minimize import minimize

        small = minimize(events, report, finding, budget=_BUDGET)
        path = self._folder / f"{divergence.id}.jsonl"
        path.write_text("\n".join(small.lines) + "\n", encoding="ascii")
        return str(path)
