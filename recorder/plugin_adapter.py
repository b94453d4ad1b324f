"""An adapter whose engine loads a plug-in of ours: it leads to that plug-in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from hkvtool.recorder.attach_report import Report


class PluginAdapter:
    """Leads to what is imported only where somebody records: `plugin` and `attach` of the room of
    that name."""

    def __init__(self, engine: str) -> None:
        self.engine = engine

    def declare(self) -> Report:
        """What would attach; the engine is imported."""
        attach = self._of("attach")
        report: Report = attach.attach_report().besides(attach.NOT_SEEN)
        return report

    def attach(self, recording: Any) -> None:
        """Hook the engine."""
        self._of("plugin").start(recording)

    def detach(self, recording: Any) -> bool:
        """Put the engine's own functions back."""
        return bool(self._of("plugin").stop(recording))

    def geometry(self) -> Sequence[Mapping[str, Any]]:
        """What was told of pools, groups and kernels."""
        told: list[Mapping[str, Any]] = self._of("plugin").geometry()
        return told

    def _of(self, module: str) -> Any:
        return import_module(f"hkvtool.recorder.{self.engine}.{module}")
