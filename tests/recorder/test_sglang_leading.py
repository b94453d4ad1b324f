"""Of SGLang's processes that do the same, each with its shard, one tells it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from hkvtool.recorder.sglang.leading import leads

RANKS = {"attn_tp_rank": 0, "attn_cp_rank": 0, "pp_rank": 0, "attn_dp_rank": 3}


@pytest.mark.parametrize(
    ("ranks", "tells"),
    [(RANKS, True), *(({**RANKS, rank: 1}, False) for rank in RANKS if rank != "attn_dp_rank")],
)
def test_the_first_of_those_that_do_alike(
    monkeypatch: pytest.MonkeyPatch, ranks: dict[str, int], tells: bool
) -> None:
    module = SimpleNamespace(get_parallel=lambda: SimpleNamespace(**ranks))
    monkeypatch.setitem(sys.modules, "sglang.srt.runtime_context", module)
    assert leads() is tells


def test_an_engine_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "sglang.srt.runtime_context", raising=False)
    assert leads()
