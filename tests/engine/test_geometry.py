"""Forms and what they need; presets and the byte sizes that real engines allocate."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from hkvtool.engine.geometry import Group, Preset, Work
from hkvtool.engine.presets import PRESETS, preset
from hkvtool.model.errors import HkvError
from hkvtool.model.forms import Form

from .tiny import COMPRESSING


def make(form: Form, **more: object) -> Group:
    return Group("g", form, 8, 1, "uint8", 64, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("group", "at", "tokens"),
    [
        (make(Form.COMPRESSED), 40, (0, 40)),
        (make(Form.INDEXER), 40, (0, 40)),
        (make(Form.SWA, window=12), 40, (29, 40)),
        (make(Form.SWA, window=12), 5, (0, 5)),
        (make(Form.SWA, window=32, chunked=True), 40, (32, 40)),
        (make(Form.SWA, window=32, chunked=True), 64, (64, 64)),
        (make(Form.TAIL, unit=4, overlap=4), 42, (36, 42)),
        (make(Form.TAIL, unit=4, overlap=4), 40, (36, 40)),
        (make(Form.TAIL, unit=16), 40, (32, 40)),
        (make(Form.TAIL, unit=16), 48, (48, 48)),
        (make(Form.RECURRENT), 40, (39, 40)),
        (make(Form.RECURRENT), 0, (0, 0)),
    ],
)
def test_what_a_form_needs_to_resume(group: Group, at: int, tokens: tuple[int, int]) -> None:
    assert group.needs(at) == tokens


def test_form_follows_from_layer_and_position() -> None:
    """One decode step: where each form puts its tokens, and what it reads."""
    work = Work(start=42, end=45, draft=2, firm=42, decode=True)
    by = COMPRESSING.by_name
    written = {name: group.writes(work) for name, group in by.items()}
    assert written == {
        "c4.state": (42, 47), "c16.state": (42, 47), "c4": (40, 44), "c16": (32, 32),
        "idx": (40, 44), "swa": (42, 47),
    }  # fmt: skip
    read = {name: group.reads(work) for name, group in by.items()}
    assert read == {
        "c4.state": (36, 42), "c16.state": (32, 42), "c4": (0, 44), "c16": (0, 32),
        "idx": (0, 44), "swa": (31, 47),
    }  # fmt: skip


def test_a_prompt_keeps_only_its_open_units_as_tail() -> None:
    work = Work(start=32, end=90, firm=32)
    by = COMPRESSING.by_name
    assert by["c4.state"].writes(work) == (84, 90)
    assert by["c16.state"].writes(work) == (80, 90)
    assert by["c4"].writes(work) == (32, 88)
    assert by["c16"].writes(work) == (32, 80)


def test_accepted_drafts_are_sealed_by_the_next_step() -> None:
    """Drafts are never compressed before they are verified, so a rejection voids no entry."""
    work = Work(start=48, end=50, firm=46, decode=True)
    assert COMPRESSING.by_name["c4"].writes(work) == (44, 48)
    assert COMPRESSING.by_name["c4.state"].reads(work) == (40, 48)


@pytest.mark.parametrize("found", PRESETS.values(), ids=lambda p: p.name)
def test_every_page_fits_its_block_and_its_alignment(found: Preset) -> None:
    for table in found.tables:
        spans = sorted((g.offset, g.offset + g.layers * g.page_bytes) for g in table.groups)
        assert spans[-1][1] <= found.stride
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    for group in found.groups:
        assert group.offset % found.align == 0 == found.stride % found.align
        assert group.page_bytes % found.align == 0
        if group.row_bytes:
            assert group.rows * group.row_bytes <= group.page_bytes
        assert found.grain % group.block_tokens == 0
        assert found.grain % group.ratio == 0 == found.grain % group.unit
        if group.serves:
            served = found.by_name[group.serves]
            assert group.form is not Form.TAIL or group.unit == served.ratio


def test_sizes_are_those_that_engines_allocate() -> None:
    """vLLM's own figures for DeepSeek-V4-Flash and V3.2 in fp8."""
    v4, v32 = preset("deepseek-v4"), preset("deepseek-v3.2")
    assert v4.stride == 961_344 == 20 * 37_440 + 20 * 8_640 + 23 * 1_728
    sizes = {g.name: (g.block_tokens, g.page_bytes) for g in v4.groups}
    assert sizes["swa0"] == (64, 37_440) and sizes["c4"] == (256, 37_440)
    assert sizes["idx"] == (256, 8_640) and sizes["c128"] == (256, 1_728)
    assert sizes["c4.state"] == (4, 32_832) and sizes["c128.state"] == (8, 32_832)
    assert v32.by_name["mla"].page_bytes == 41_984
    assert v32.by_name["idx"].page_bytes == 8_448
    assert math.prod((2, 2, 256, 2)) * 544 == preset("qwen3-next").by_name["gdn0"].page_bytes


def test_an_unknown_preset_is_told_with_those_there_are() -> None:
    with pytest.raises(HkvError, match="no preset 'x'") as error:
        preset("x")
    assert "deepseek-v4" in error.value.hint
