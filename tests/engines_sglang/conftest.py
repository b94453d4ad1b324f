"""SGLang where it is installed: without its GPU packages, a server or a network."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import pytest

collect_ignore_glob = ["test_*.py"] if importlib.util.find_spec("sglang") is None else []

if not collect_ignore_glob:
    os.environ.update(
        HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", OMP_NUM_THREADS="1", SGLANG_PLUGINS="none"
    )  # fmt: skip
    from engines_sglang.absent import stand_in

    stand_in()


@pytest.fixture
def watched() -> Iterator[tuple[Any, Any]]:
    """The hooks attached, their events folded as they come: (folded, hooks)."""
    from engines_sglang.sglang_state import Folded
    from hkvtool.recorder.sglang.attach import attach

    folded = Folded()
    hooks = attach(folded, keyed=lambda digest: digest.hex()[:16])
    yield folded, hooks
    hooks.remove()
    assert not hooks.failed
