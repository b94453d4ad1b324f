"""Geometries of real models, by the numbers their engines allocate with.

Row and page sizes are those of the fp8 formats of vLLM and SGLang (DeepSeek) or follow from heads,
head size and dtype; layers are grouped as vLLM groups them, so that every table's block has the
same size over all its layers.
"""

from __future__ import annotations

from typing import Any

from hkvtool.engine.geometry import Group, Preset
from hkvtool.model.errors import HkvError
from hkvtool.model.forms import Form


def _attention(name: str, form: Form, layers: int, block: int, row: int, **more: Any) -> Group:
    """A group of ordinary K and V rows in bf16, packed token by token."""
    return Group(
        name, form, block, layers, "bfloat16", row * block,
        order="block,token,head,kv,dim", row_bytes=row, **more,
    )  # fmt: skip


def _v4_row(name: str, form: Form, layers: int, block: int, page: int, **more: Any) -> Group:
    """A group of 584-byte rows: 448 fp8 and 64 bf16 values, 7 scales, one byte of padding."""
    return Group(
        name, form, block, layers, "float8_e4m3", page,
        codec="fp8_ds_v4/1", row_bytes=584, scale_bytes=8, **more,
    )  # fmt: skip


def _v4_state(name: str, layers: int, block: int, row: int, page: int, **more: Any) -> Group:
    """A compressor's state in fp32: the tail that is not compressed yet."""
    return Group(
        name, Form.TAIL, block, layers, "float32", page, row_bytes=row, sparse=True, **more,
    )  # fmt: skip


PLAIN = Preset(
    name="plain",
    model="Llama-3.1-8B: full attention everywhere; a block is a block of the Mooncake trace",
    groups=(_attention("kv", Form.COMPRESSED, 32, 512, 4096),),
    stride=32 * 512 * 4096, align=512, blocks=2048, partial=True,
)  # fmt: skip

DEEPSEEK_V4 = Preset(
    name="deepseek-v4",
    model="DeepSeek-V4-Flash: C4 and C128 history, indexer, compressor states, 128-token window",
    groups=(
        _v4_state("c4.state", 20, 4, 8192, 32832, offset=172800, unit=4, overlap=4,
                  serves="c4", table="c4.state"),
        _v4_state("idx.state", 20, 4, 2048, 8640, unit=4, overlap=4,
                  serves="idx", table="c4.state"),
        _v4_state("c128.state", 23, 8, 4096, 32832, unit=128, serves="c128"),
        _v4_row("c4", Form.COMPRESSED, 20, 256, 37440, ratio=4, offset=172800, table="history"),
        _v4_row("c128", Form.COMPRESSED, 23, 256, 1728, ratio=128, offset=921600, table="history"),
        Group("idx", Form.INDEXER, 256, 20, "float8_e4m3", 8640, codec="dsa_idx/1", row_bytes=132,
              scale_bytes=4, ratio=4, serves="c4", table="history"),
        _v4_row("swa0", Form.SWA, 22, 64, 37440, window=128, sparse=True),
        _v4_row("swa1", Form.SWA, 21, 64, 37440, window=128, sparse=True),
    ),
    stride=961344, align=576, blocks=12288, draft=2,
)  # fmt: skip

DEEPSEEK_V32 = Preset(
    name="deepseek-v3.2",
    model="DeepSeek-V3.2: MLA history and its indexer in one block table",
    groups=(
        Group("mla", Form.COMPRESSED, 64, 61, "float8_e4m3", 64 * 656, codec="fp8_ds_mla/1",
              row_bytes=656, scale_bytes=16, table="history"),
        Group("idx", Form.INDEXER, 64, 61, "float8_e4m3", 64 * 132, codec="dsa_idx/1",
              row_bytes=132, scale_bytes=4, offset=61 * 64 * 656, serves="mla", table="history"),
    ),
    stride=61 * 64 * (656 + 132), align=128, blocks=16384, draft=2,
)  # fmt: skip

GEMMA3 = Preset(
    name="gemma3",
    model="Gemma-3-12B: five sliding layers (1,024 tokens) to each full one",
    groups=(
        _attention("full", Form.COMPRESSED, 8, 32, 8192),
        *(_attention(f"swa{i}", Form.SWA, 8, 32, 8192, window=1024, sparse=True) for i in range(5)),
    ),
    stride=8 * 32 * 8192, align=512, blocks=49152,
)  # fmt: skip

GPT_OSS = Preset(
    name="gpt-oss",
    model="gpt-oss-120b: sliding (128 tokens) and full attention alternate",
    groups=(
        _attention("full", Form.COMPRESSED, 18, 32, 2048),
        _attention("swa", Form.SWA, 18, 32, 2048, window=128, sparse=True),
    ),
    stride=18 * 32 * 2048, align=512, blocks=32768, draft=3,
)  # fmt: skip

LLAMA4 = Preset(
    name="llama4",
    model="Llama-4-Scout: three layers of chunked attention (8,192 tokens) to each full one",
    groups=(
        _attention("full", Form.COMPRESSED, 12, 32, 4096),
        *(_attention(f"chunk{i}", Form.SWA, 12, 32, 4096, window=8192, chunked=True)
          for i in range(3)),
    ),
    stride=12 * 32 * 4096, align=512, blocks=49152,
)  # fmt: skip

QWEN3_NEXT = Preset(
    name="qwen3-next",
    model="Qwen3-Next-80B: three gated delta-net layers to each full one",
    groups=(
        _attention("full", Form.COMPRESSED, 12, 544, 2048),
        *(Group(f"gdn{i}", Form.RECURRENT, 544, 12, "bfloat16", 544 * 2048,
                order="block,conv,state", codec="gdn/1") for i in range(3)),
    ),
    stride=12 * 544 * 2048, align=512, blocks=2048,
)  # fmt: skip

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (PLAIN, DEEPSEEK_V4, DEEPSEEK_V32, GEMMA3, GPT_OSS, LLAMA4, QWEN3_NEXT)
}


def preset(name: str) -> Preset:
    """The preset of that name; HkvError names the ones there are."""
    found = PRESETS.get(name)
    if found is None:
        raise HkvError(f"no preset {name!r}", hint=f"presets: {', '.join(PRESETS)}")
    return found
