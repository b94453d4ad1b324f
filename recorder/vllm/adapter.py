"""vLLM as an adapter: what its plugin and recordings within a program attach with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hkvtool.recorder.attach_report import Report


class VllmAdapter:
    """Leads to what is imported only where somebody records."""

    engine = "vllm"

    def declare(self) -> Report:
        """What would attach; vLLM is imported."""
        from hkvtool.recorder.vllm.attach import NOT_SEEN, attach_report

        return attach_report().besides(NOT_SEEN)

    def attach(self, recording: Any) -> None:
        """Hook the engine, and go on from what it has if it has begun."""
        from hkvtool.recorder.vllm import plugin

        plugin.start(recording)

    def detach(self, recording: Any) -> bool:
        """Put the engine's own functions back."""
        from hkvtool.recorder.vllm import plugin

        return plugin.stop(recording)

    def geometry(self) -> Sequence[Mapping[str, Any]]:
        """The pools and groups of the engine, and its kernels' blocks."""
        from hkvtool.recorder.vllm import plugin

        return plugin.geometry()


ADAPTER = VllmAdapter()
