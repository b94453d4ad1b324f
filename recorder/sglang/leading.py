"""Which of the processes that serve one model together tells what they do."""

from __future__ import annotations

import sys
from typing import Any

_RANKS = ("attn_tp_rank", "attn_cp_rank", "pp_rank")
"""Processes that differ in these only do the same with the same requests, each with its shard."""


def leads() -> bool:
    """Whether this process is the first of those that do alike, or the only one."""
    module: Any = sys.modules.get("sglang.srt.runtime_context")
    try:
        parallel = module.get_parallel()
        return not any(int(getattr(parallel, rank)) for rank in _RANKS)
    except Exception:
        # No groups of processes have been made.
        return True
