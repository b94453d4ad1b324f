"""What the engine's tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hkvtool.engine.workload import Request, read_workload
from hkvtool.model.shipped import shipped

CONVERSATION = Path(str(shipped("workloads", "conversation_trace.jsonl.gz")))


@pytest.fixture(scope="session")
def shipped_requests() -> Callable[[int], list[Request]]:
    """Short requests of the conversation trace, the first so many."""

    def first(count: int) -> list[Request]:
        short = (r for r in read_workload(CONVERSATION) if r.total < 9000)
        return [next(short) for _ in range(count)]

    return first
