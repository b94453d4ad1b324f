"""`hkvtool preflight`: what the static rules say before the first request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hkvtool.model.errors import Exit

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
