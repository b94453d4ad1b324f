"""`hkvtool preflight`: what the static rules say before the first request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hkvtool.engine.presets import PRESETS
from hkvtool.model.errors import Exit
from hkvtool.model.shipped import shipped

CONFIG: dict[str, Any] = {
    "pools": [{"pool": "gpu", "medium": "gpu", "blocks": 100}],
    "groups": [
        {"group": "kv", "form": "compressed", "pool": "gpu", "block_tokens": 64,
         "layout": {"dtype": "fp8_e4m3", "codec": "fp8_ds_mla/1", "row_bytes": 656,
                    "page_bytes": 41984, "stride_bytes": 41984, "align": 128,
                    "region_bytes": 4198400, "order": "block,token,row"}},
    ],
    "kernels": [
        {"kernel": "mla", "group": "kv",
         "expects": {"dtype": "fp8_e4m3", "codec": "fp8_ds_mla/1", "row_bytes": 656,
                     "kernel_block_tokens": 64}},
    ],
}  # fmt: skip


def written(folder: Path, **changes: Any) -> str:
    """The configuration, with keys of its group's layout or its kernel's expectations changed."""
    config = json.loads(json.dumps(CONFIG))
    for side, keys in changes.items():
        place = config["groups"][0] if side != "expects" else config["kernels"][0]
        (place if side == "group" else place[side]).update(keys)
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return str(path)


def test_a_configuration_that_agrees(hkvtool: Any, tmp_path: Path) -> None:
    found = hkvtool("preflight", written(tmp_path))
    assert found.code == Exit.OK and "0 errors" in found.out
    assert "compared codec, dtype, kernel_block_tokens, row_bytes" in found.out
    assert "only one side says order, page_bytes, stride_bytes" in found.out


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"expects": {"dtype": "bfloat16"}}, "HKV201"),
        ({"expects": {"order": "kv,block,token"}}, "HKV202"),
        ({"expects": {"codec": "fp8_ds_mla/2"}}, "HKV203"),
        ({"expects": {"kernel_block_tokens": 48}}, "HKV204"),
        ({"layout": {"hash": "sha256/1"}, "expects": {"hash": "xxh3/7"}}, "HKV205"),
        ({"layout": {"stride_bytes": 42640, "region_bytes": 4264000}}, "HKV401"),
        ({"layout": {"region_bytes": 4198399}}, "HKV402"),
        ({"expects": {"stride_bytes": 41856}}, "HKV403"),
        ({"layout": {"page_bytes": 41856}}, "HKV404"),
    ],
)
def test_each_static_rule_is_found_before_the_first_request(
    hkvtool: Any, tmp_path: Path, changes: Any, code: str
) -> None:
    path = written(tmp_path, **changes)
    found = hkvtool("preflight", path)
    assert found.code == Exit.FINDINGS and code in found.out
    said = json.loads(hkvtool("preflight", path, "--format", "json").out)
    assert code in {f["code"] for f in said["findings"]} and said["compared"]
    for format in ("sarif", "junit", "github"):
        assert code in hkvtool("preflight", path, "--format", format).out


def test_a_lower_tier_is_a_consumer_of_what_will_be_sent_to_it(
    hkvtool: Any, tmp_path: Path
) -> None:
    config = json.loads(json.dumps(CONFIG))
    config["pools"].append({"pool": "cpu", "medium": "cpu", "blocks": 100})
    tier = {**config["groups"][0], "group": "kv@cpu", "pool": "cpu", "participates": False}
    tier["layout"] = {**tier["layout"], "codec": "fp8_ds_mla/2"}
    config["groups"].append(tier)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    found = hkvtool("preflight", str(path))
    assert found.code == Exit.FINDINGS and "HKV203" in found.out and "kv@cpu on cpu" in found.out


def test_what_the_cases_show_is_shown_without_a_request(hkvtool: Any, case: Any) -> None:
    early = {"A09", "A27", "E01", "E04", "E08", "S01", "S03", "S09", "S11"}
    for arm, path in (("bad", case.bad), ("good", case.good)):
        found = hkvtool("preflight", str(path), "--format", "json")
        codes = {f["code"] for f in json.loads(found.out)["findings"]} - {"HKV905"}
        assert bool(codes) == (arm == "bad" and case.id in early), codes


def test_what_declares_nothing_is_refused(hkvtool: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    for text in ('{"ev": "trace", "format": "hkv/1"}\n', "{}", '{"groups": 3}', '{"groups": [3]}'):
        path.write_text(text)
        found = hkvtool("preflight", str(path))
        assert found.code == Exit.UNREADABLE and found.out == "" and "error:" in found.err
    assert hkvtool("preflight", str(tmp_path / "gone.json")).code == Exit.UNREADABLE
    path.write_text('{"groups": [{"group": 3}]}')
    found = hkvtool("preflight", str(path))
    assert found.code == Exit.UNREADABLE


MODELS = Path(str(shipped("configs")))


def derived(hkvtool: Any, name: str, *flags: str) -> dict[str, Any]:
    found = hkvtool("preflight", str(MODELS / f"{name}.json"), "--format", "json", *flags)
    said: dict[str, Any] = json.loads(found.out)
    return said


def shape(group: dict[str, Any]) -> tuple[str, int, int, int]:
    return (
        group["form"],
        group["layers"],
        group["block_tokens"],
        group["layout"]["page_bytes"],
    )


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("gemma3-12b", "gemma3"),
        ("gpt-oss-120b", "gpt-oss"),
        ("qwen3-next-80b", "qwen3-next"),
        ("deepseek-v3.2", "deepseek-v3.2"),
        ("llama4-scout", "llama4"),
    ],
)
def test_what_a_models_config_comes_to(name: str, preset: str, hkvtool: Any) -> None:
    # The reference engine's presets were written from what the engines allocate.
    known = PRESETS[preset].groups
    flags = ["--block-size", "32"] if known[0].block_tokens == 32 else []
    said = derived(hkvtool, name, *flags)
    assert said["summary"]["error"] == 0
    assert sorted(map(shape, said["model"]["groups"])) == sorted(
        (str(g.form), g.layers, g.block_tokens, g.page_bytes) for g in known
    )
    assert said["model"]["unknown"]


def test_compressed_layers_have_the_pages_of_the_engine(hkvtool: Any) -> None:
    # As the engine itself allocates for ratios 0, 4, 128, 4.
    groups = derived(hkvtool, "deepseek-v4-like")["model"]["groups"]
    pages = {g["group"]: (g["block_tokens"], g["layout"]["page_bytes"]) for g in groups}
    assert pages == {
        "swa0": (64, 37440), "swa1": (64, 37440), "c4": (256, 37440), "c128": (256, 1728),
        "idx": (256, 8640), "c4.state": (4, 32832), "idx.state": (4, 8640),
        "c128.state": (8, 32832),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "flags", "codes"),
    [
        ("deepseek-v3.2", ["--block-size", "32"], {"HKV204"}),
        ("deepseek-v3.2", ["--kv-cache-dtype", "fp8_e5m2"], {"HKV201"}),
        ("deepseek-v3.2", ["--kv-cache-dtype", "bfloat16"], set()),
        ("deepseek-v4-like", ["--block-size", "128"], {"HKV204"}),
        ("gemma3-12b", ["--block-size", "24"], {"HKV204"}),
        ("gemma3-12b", ["--kv-cache-dtype", "fp8"], set()),
    ],
)
def test_flags_that_no_kernel_works_with(
    name: str, flags: list[str], codes: set[str], hkvtool: Any
) -> None:
    assert {f["code"] for f in derived(hkvtool, name, *flags)["findings"]} == codes


def test_what_follows_for_hits_is_told(hkvtool: Any) -> None:
    path = str(MODELS / "qwen3-next-80b.json")
    found = hkvtool("preflight", path, "--max-num-batched-tokens", "512", "--block-size", "64")
    said = " ".join(found.out.split())
    assert "no state is kept" in said and "makes blocks of 544" in said
    assert "not derived: the dtype of the states" in said


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"layer_types": ["mystery"] * 36}, "mystery are not known"),
        ({"layer_types": ["full_attention"]}, "1 entries for 36 layers"),
        ({"num_attention_heads": None, "head_dim": None}, "does not say `num_attention_heads`"),
        ({"torch_dtype": "int3"}, "int3 is not known"),
        ({"sliding_window": "wide"}, "not a positive integer"),
        ({"num_hidden_layers": 1 << 40, "layer_types": None}, "layers are more"),
    ],
)
def test_a_config_that_says_too_little(
    change: dict[str, Any], told: str, hkvtool: Any, tmp_path: Path
) -> None:
    config = json.loads((MODELS / "gpt-oss-120b.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, **change}))
    found = hkvtool("preflight", str(path))
    assert found.code == Exit.UNREADABLE and told in found.err


def test_flags_of_an_engine_are_for_a_models_config(hkvtool: Any, tmp_path: Path) -> None:
    found = hkvtool("preflight", written(tmp_path), "--block-size", "32")
    assert found.code == Exit.USAGE


def test_flags_and_a_file_that_is_not_there_say_that_it_is_not(
    hkvtool: Any, tmp_path: Path
) -> None:
    found = hkvtool("preflight", str(tmp_path / "config.json"), "--block-size", "16")
    assert found.code == Exit.UNREADABLE and "there is no file" in found.err
