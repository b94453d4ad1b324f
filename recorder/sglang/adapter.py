"""SGLang as an adapter: what its plugin and recordings within a program attach with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hkvtool.recorder.attach_report import Report


class SglangAdapter:
    """Leads to what is imported only where somebody records."""

    engine = "sglang"

    def declare(self) -> Report:
        """What would attach; SGLang's cache is imported."""
        from hkvtool.recorder.sglang.attach import NOT_SEEN, attach_report

        return attach_report().besides(NOT_SEEN)

    def attach(self, recording: Any) -> None:
        """Follow the caches that the engine makes from here on."""
        from hkvtool.recorder.sglang import plugin

        plugin.start(recording)

    def detach(self, recording: Any) -> bool:
        """Put the engine's own functions back."""
        from hkvtool.recorder.sglang import plugin

        return plugin.stop(recording)

    def geometry(self) -> Sequence[Mapping[str, Any]]:
        """The pools and groups of its caches."""
        from hkvtool.recorder.sglang import plugin

        return [e for hooks in plugin._attached for e in hooks.tell.geometry]


ADAPTER = SglangAdapter()
