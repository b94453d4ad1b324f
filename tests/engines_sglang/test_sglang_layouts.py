"""Where SGLang's caches lie, as told: read from memory by nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import string_at
from typing import Any

import pytest
import torch
from sglang.srt.mem_cache.memory_pool import DSATokenToKVPool

from engines_sglang.sglang_cache import Engine
from engines_sglang.sglang_requests import begin, end
from engines_sglang.sglang_state import Folded
from engines_sglang.sglang_states import StateEngine
from engines_sglang.sglang_v4 import V4Engine
from hkvtool.recorder.sglang.attach import attach
from hkvtool.recorder.sglang.layouts import of_device
from hkvtool.recorder.sglang.parts import of_page


@pytest.fixture
def folded() -> Iterator[Folded]:
    told = Folded()
    hooks = attach(told)
    yield told
    hooks.remove()
    assert not hooks.failed


def rows(tensors: dict[str, list[Any]]) -> None:
    """Give every row bytes of its own."""
    for n, part in enumerate(tensors.values()):
        for layer, tensor in enumerate(part):
            count = torch.arange(tensor.shape[0]) % 64 + n * 64 + layer
            tensor.copy_(count.to(tensor.dtype)[:, None, None].expand_as(tensor))


def read(stretch: dict[str, Any], slot: int) -> bytes:
    start = stretch["base"] + slot * stretch["row_stride_bytes"]
    return string_at(start, stretch["row_bytes"])


def same(layout: dict[str, Any], tensors: dict[str, list[Any]], page: int) -> None:
    """What is told leads to every row of these."""
    rows(tensors)
    for stretch in layout["stretches"]:
        tensor = tensors[stretch["part"]][stretch["place"]]
        for slot in range(tensor.shape[0]):
            mine = tensor[slot].contiguous().view(torch.uint8).numpy().tobytes()
            assert read(stretch, slot) == mine, (stretch, slot)
    first = next(iter(tensors.values()))[0]
    assert layout["base"] == first.data_ptr()
    assert layout["stride_bytes"] == first[:page].numel() * first.element_size()
    assert layout["region_bytes"] == first.numel() * first.element_size()


def test_every_row_is_where_it_is_told_to_be(folded: Folded) -> None:
    engine = Engine("rust", host=2.0)
    end(engine, begin(engine, "r", list(range(30))))
    pools = engine.allocator.get_kvcache()
    host = engine.cache.host_pool_group.entry_map
    told = {e["group"]: e["layout"] for e in folded.events if e["ev"] == "group"}
    assert set(told) == {"full", "swa", "full.cpu", "swa.cpu"}
    for kind, name in (("full", "kv"), ("swa", "swa")):
        pool, far = getattr(pools, f"{kind}_kv_pool"), host[name].host_pool
        same(told[kind], {"k": pool.k_buffer, "v": pool.v_buffer}, 4)
        same(told[f"{kind}.cpu"], {"k": far.k_data_refs, "v": far.v_data_refs}, 4)
    report = folded.checked()
    assert not report.findings
    assert not {"HKV401", "HKV402", "HKV403", "HKV404"} & set(report.not_evaluable)


def test_latent_rows() -> None:
    pool = DSATokenToKVPool(
        size=256, page_size=64, kv_lora_rank=512, dtype=torch.float8_e4m3fn, qk_rope_head_dim=64,
        layer_num=2, device="cpu", index_head_dim=128, enable_memory_saver=False, kv_cache_dim=656,
    )  # fmt: skip
    layout = of_device(pool, 64)
    assert (layout["row_bytes"], layout["page_bytes"]) == (656, 656 * 64)
    assert (layout["dtype"], layout["codec"]) == ("float8_e4m3fn", "fp8_ds_mla/1")
    same(layout, {"kv": pool.kv_buffer}, 64)
    own, routing = of_page(pool, "full", 64)
    assert own["layout"] == layout
    assert {k: routing[k] for k in ("group", "form", "serves")} == {
        "group": ".indexer", "form": "indexer", "serves": "",
    }  # fmt: skip
    rows_of = routing["layout"]
    assert (rows_of["row_bytes"], rows_of["scale_bytes"], rows_of["page_bytes"]) == (132, 4, 8448)
    pages(rows_of, pool.index_key_cache.buffer)


def pages(layout: dict[str, Any], tensors: list[Any]) -> None:
    """What is told leads to every page of these."""
    for place, (stretch, tensor) in enumerate(zip(layout["stretches"], tensors, strict=True)):
        count = torch.arange(tensor.shape[0]) % 64 + 64 * place
        tensor.copy_(count.to(tensor.dtype)[:, None].expand_as(tensor))
        for page in range(tensor.shape[0]):
            mine = tensor[page].view(torch.uint8).numpy().tobytes()
            assert read(stretch, page) == mine, (stretch, page)
    assert layout["base"] == tensors[0].data_ptr()
    assert layout["region_bytes"] == tensors[0].numel() * tensors[0].element_size()


def test_pages_of_v4(folded: Folded) -> None:
    """Each part of it, in the tensors that its kernels are given."""
    pool = V4Engine("rust", pages=4, swa_pages=4).pool
    told = {e["group"]: e["layout"] for e in folded.events if e["ev"] == "group"}
    pages(told["full"], pool.c4_kv_pool.kv_buffer)
    pages(told["full.c128"], pool.c128_kv_pool.kv_buffer)
    pages(told["full.indexer"], pool.c4_indexer_kv_pool.index_k_with_scale_buffer)
    pages(told["swa"], pool.swa_kv_pool.kv_buffer)
    kept = [one for one in pool.compress_state_pools if one is not None and one.ratio == 4]
    rings = told["swa.c4_state"]
    pages(rings, [one.kv_score_buffer.kv_score for one in kept])
    slots = torch.arange(4 * 256)
    ring = kept[0].translate_from_swa_loc_to_state_loc(slots)
    row = rings["stretches"][0]["row_stride_bytes"]
    assert (ring * row // rings["stride_bytes"]).tolist() == (slots // 256).tolist()


def test_states_of_recurrent_layers(folded: Folded) -> None:
    pool = StateEngine("rust", "no_buffer", states=6).requests.mamba_pool.mamba_cache
    [layout] = [e["layout"] for e in folded.events if e.get("group") == "mamba"]
    for stretch in layout["stretches"]:
        held = pool.temporal if stretch["part"] == "temporal" else pool.conv[0]
        tensor = held[stretch["place"]]
        tensor.copy_(torch.arange(tensor.numel()).view(tensor.shape) % 50 + stretch["place"])
        for slot in range(tensor.shape[0]):
            mine = tensor[slot].contiguous().view(torch.uint8).numpy().tobytes()
            assert read(stretch, slot) == mine


def test_what_is_no_row_of_a_tensor_is_not_told() -> None:
    class Other:
        kv_buffer = torch.zeros(4, 4)

    assert of_device(Other(), 4) == {}
