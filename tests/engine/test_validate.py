"""Each layer of the validation says no to what it is there for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hkvtool.engine.presets import preset
from hkvtool.engine.validate import Verdict, validate_resume
from hkvtool.model.block_state import CacheBlockState
from hkvtool.model.forms import Form

from .tiny import COMPRESSING, INDEXED, RECURRENT, WINDOWED


def state(block: int, group: str, start: int, size: int, **more: Any) -> CacheBlockState:
    good: dict[str, Any] = {
        "version": 1, "recoverable": True, "last_touch": 0, "group": group, "pool": "gpu",
        "tokens": (start, start + size), "written": size, "published": "h", "ref_count": 0,
    }  # fmt: skip
    return CacheBlockState(block, Form.COMPRESSED, **(good | more))


def good(preset_: Any, at: int) -> dict[str, list[CacheBlockState]]:
    """Blocks that let every table resume at `at`."""
    out: dict[str, list[CacheBlockState]] = {}
    for n, table in enumerate(preset_.tables):
        size = table.lead.block_tokens
        span = table.lead.span(*table.lead.needs(at))
        out[table.name] = [state(100 * n + i + 1, table.name, i * size, size) for i in span]
    return out


@pytest.mark.parametrize("found", [WINDOWED, COMPRESSING, RECURRENT, INDEXED])
def test_whole_states_pass(found: Any) -> None:
    assert validate_resume(found, 2 * found.grain, good(found, 2 * found.grain)) == Verdict(True)
    assert validate_resume(found, 0, {}).ok


def spoiled(name: str, place: int, **more: Any) -> Verdict:
    blocks = good(WINDOWED, 32)
    blocks[name][place] = replace(blocks[name][place], **more)
    return validate_resume(WINDOWED, 32, blocks)


def test_layer_one_wants_whole_blocks() -> None:
    verdict = spoiled("full", 1, written=7)
    assert (verdict.layer, verdict.code, verdict.block) == ("whole block", "HKV101", 2)
    assert "7 of 8" in verdict.why
    verdict = spoiled("swa", 0, published=None)
    assert (verdict.code, verdict.group) == ("HKV102", "swa")
    assert spoiled("swa", 0, published=None, ref_count=1).ok, "a holder is as good as a hash"


def test_layer_two_wants_the_codec_that_the_reader_decodes() -> None:
    verdict = validate_resume(WINDOWED, 32, good(WINDOWED, 32), {"full": "identity/2"})
    assert (verdict.layer, verdict.code, verdict.group) == ("kernel ABI", "HKV203", "full")
    assert validate_resume(WINDOWED, 32, good(WINDOWED, 32), {"full": "identity/1"}).ok


@pytest.mark.parametrize(
    ("found", "name", "code"),
    [
        (WINDOWED, "full", "HKV102"),
        (WINDOWED, "swa", "HKV303"),
        (COMPRESSING, "c4.state", "HKV302"),
        (RECURRENT, "gdn1", "HKV306"),
        (INDEXED, "mla", "HKV102"),
    ],
)
def test_layer_three_wants_every_form_at_this_position(found: Any, name: str, code: str) -> None:
    at = 2 * found.grain
    blocks = good(found, at)
    first = blocks[name].pop(0)
    verdict = validate_resume(found, at, blocks)
    assert (verdict.layer, verdict.code, verdict.group) == ("group intersection", code, name)
    blocks[name].insert(0, replace(first, group="another"))
    assert validate_resume(found, at, blocks).code == "HKV601"


def test_a_state_of_another_position_is_no_state() -> None:
    blocks = good(RECURRENT, 16)
    blocks["gdn0"] = [state(9, "gdn0", 8, 8, written=5)]
    assert validate_resume(RECURRENT, 16, blocks).code == "HKV306"


def test_layer_four_wants_entries_and_pages_whole() -> None:
    verdict = validate_resume(COMPRESSING, 18, good(COMPRESSING, 18))
    assert (verdict.layer, verdict.code) == ("alignment", "HKV404")
    v32 = preset("deepseek-v3.2")
    for change, code in (({"align": 100}, "HKV401"), ({"stride": v32.stride - 128}, "HKV402")):
        crooked = replace(v32, **change)
        assert validate_resume(crooked, 64, good(crooked, 64)).code == code
