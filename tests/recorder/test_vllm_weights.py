"""Which weights an engine has: the same wherever they lie, and another where any of it differs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from hkvtool.recorder.vllm.weights import weights_of

SIZE = 50_000


@pytest.fixture
def model(tmp_path: Path) -> Path:
    place = tmp_path / "model"
    place.mkdir()
    config = {"hidden_size": 64, "_name_or_path": "here", "transformers_version": "5.0"}
    (place / "config.json").write_text(json.dumps(config))
    for n in range(3):
        (place / f"model-{n}.safetensors").write_bytes(bytes([n]) * SIZE)
    return place


def name_of(place: Path, load_format: str = "auto", **more: object) -> str | None:
    model = {"model": str(place), "revision": None, "dtype": "bfloat16", "hf_overrides": {}} | more
    return weights_of(
        SimpleNamespace(
            model_config=SimpleNamespace(**model),
            load_config=SimpleNamespace(load_format=load_format),
        )
    )


def test_a_copy_has_the_same_name(model: Path, tmp_path: Path) -> None:
    there = tmp_path / "elsewhere"
    shutil.copytree(model, there)
    config = json.loads((there / "config.json").read_text())
    config |= {"_name_or_path": "there", "transformers_version": "5.1"}
    (there / "config.json").write_text(json.dumps(config))
    assert name_of(model) == name_of(there) is not None


def rope(place: Path) -> None:
    (place / "config.json").write_text(json.dumps({"hidden_size": 64, "rope_theta": 5e5}))


def quantised(place: Path) -> None:
    (place / "model-1.safetensors").write_bytes(bytes([1]) * (SIZE // 2))


def trained_on(place: Path) -> None:
    """Of the same size."""
    file = place / "model-2.safetensors"
    held = bytearray(file.read_bytes())
    held[SIZE // 2 + 7] ^= 1
    file.write_bytes(held)


@pytest.mark.parametrize("change", [rope, quantised, trained_on])
def test_what_differs_has_another(model: Path, change: Callable[[Path], None]) -> None:
    before = name_of(model)
    change(model)
    assert name_of(model) != before


def test_what_the_engine_is_told_counts(model: Path) -> None:
    names = [
        name_of(model), name_of(model, dtype="float16"), name_of(model, quantization="fp8"),
        name_of(model, hf_overrides={"rope_theta": 5e5}), name_of(model, "dummy"),
    ]  # fmt: skip
    assert len(set(names)) == len(names)


def test_files_that_no_index_names_are_not_of_it(model: Path) -> None:
    index = {"weight_map": {f"layer.{n}": f"model-{n}.safetensors" for n in range(3)}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    before = name_of(model)
    (model / "consolidated.safetensors").write_bytes(b"the same once more")
    assert name_of(model) == before


def test_without_files_there_is_none(tmp_path: Path) -> None:
    assert name_of(tmp_path / "org" / "none") is None
    (tmp_path / "config.json").write_text("{}")
    assert name_of(tmp_path) is None
