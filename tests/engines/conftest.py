"""Engines without network, without a second process, without packages that break at import."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hkvtool.model.event import Event
from hkvtool.recorder.guard import Guard
from hkvtool.store.derive_reads import derive_reads

_EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.append(str(_EXAMPLES / "hkvtool-lmcache"))

collect_ignore_glob = [
    f"test_{engine}*.py"
    for engine in ("vllm", "transformers", "lmcache")
    if importlib.util.find_spec(engine) is None
]
if importlib.util.find_spec("vllm") is None:
    collect_ignore_glob.append("test_no_deps.py")

if importlib.util.find_spec("vllm") is not None:
    for _name in ("torchvision", "torchaudio", "torchcodec"):
        sys.modules.setdefault(_name, None)  # type: ignore[arg-type]
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1",
        VLLM_NO_USAGE_STATS="1", VLLM_CPU_KVCACHE_SPACE="1", VLLM_LOGGING_LEVEL="ERROR",
        OMP_NUM_THREADS="1", VLLM_PLUGINS="",
        # An engine looks for a free port, and binds it later: from here on, where the system gives
        # none to anybody, and another process of tests looks elsewhere.
        VLLM_PORT=str(10_000 + os.getpid() % 400 * 50),
    )  # fmt: skip


@pytest.fixture
def recorded() -> Iterator[Any]:
    """The hooks attached, their events folded as they come: (folded, hooks)."""
    from engines.engine_state import Folded
    from hkvtool.recorder.vllm.attach import attach

    folded = Folded()
    hooks = attach(folded)
    try:
        yield folded, hooks
    finally:
        hooks.remove()


@pytest.fixture
def findings() -> Any:
    """What `check` finds in events as they were recorded: the report as JSON has it."""
    from hkvtool.analyzers.check import check

    def judge(events: list[dict[str, Any]]) -> dict[str, Any]:
        guard = Guard()
        for event in events:
            guard.see(event)
        assert guard.off is None and not guard.count, guard.count
        told = (Event.of(i, event) for i, event in enumerate(events, 1))
        return check(derive_reads(told)).as_json()

    return judge
